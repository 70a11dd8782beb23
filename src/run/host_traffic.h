// What the processes of a run send and receive over the network of the coordinator's host, from
// what they report; and how what they may send together is divided among them.
//
// Between processes of one host nothing goes over the network, unless its device is the loopback:
// then all processes are on this host, and all that they send is both sent and received here.
//
// Right: tests/run/host_traffic_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "parameter_server/host_message.h"

namespace tenuto {

// The automaton. It has no clock: moments are those of the caller, on one clock that never goes
// back.
class HostTraffic {
 public:
  // `host`: the name of the coordinator's host
  HostTraffic(std::string host, bool is_loopback);

  // The processes that live, and the names of their hosts. What others send is not counted.
  void set_processes(std::map<WorkerId, std::string> hosts);
  // A process has sent so much.
  void add(WorkerId from, const servers::SentBytes& sent);

  // Bytes per second of this host.
  struct Rates {
    double sent = 0, received = 0;
  };
  // Those since the call before; zero in the first call.
  Rates take(Duration now);

  // The part of `bytes_per_second` that each process of this host may send: most of it as they have
  // sent in the last seconds, and some of it alike, so that one that was quiet can begin.
  // None gets less than 100 kB/s.
  std::vector<servers::SendingLimit> divide(double bytes_per_second) const;
  // The processes to which nothing goes over the network from here.
  std::vector<WorkerId> spared() const;

 private:
  bool is_here(WorkerId process) const;

  const std::string host_;
  const bool is_loopback_;
  std::map<WorkerId, std::string> hosts_;
  std::map<WorkerId, double> fresh_;  // bytes that each process here has sent since take()
  std::map<WorkerId, double> means_;  // bytes per second in the last seconds
  double received_ = 0;               // bytes since take()
  std::optional<Duration> at_;        // of the last take()
};

}  // namespace tenuto
