// Holds what the processes of a job send over a network device to a rate, by the kernel's traffic
// control: a class of the discipline htb, and filters that bring the job's connections into it. It
// needs the right to administrate the network and the program `tc`. Without them the caller lets
// the transports pace themselves (transport/pace.h).
//
// Only a device that the job names is touched, and only if it has the discipline that the kernel
// gives it by itself, or that of another job: the root htb with the handle kTcHandle. All that no
// job's filter takes passes it as before. A job's class has a number that follows from that of its
// process. The class is removed when the job ends, and the root with the last class; one that a
// killed job has left is removed by the next job of the same ledger.
//
// Right: tests/run/traffic_control_test.cc, with a program in place of tc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sync/ledger.h"

namespace tenuto {

// Of the root that jobs share, as tc writes it.
inline constexpr std::string_view kTcHandle = "7e70:";

// What `tc` says of a class: its number, and its rate in bits per second.
struct TcClass {
  int32_t minor = 0;
  double bits_per_second = 0;
};

// The classes of the root kTcHandle in the text of `tc class show`. Lines that are no such class
// are left out, and so are those whose rate cannot be read.
std::vector<TcClass> tc_classes_in(std::string_view text);

// The discipline at the root of the device in the text of `tc qdisc show`, as its handle: "0:" =
// the kernel's own. None: the text has no root.
std::optional<std::string> tc_root_in(std::string_view text);

// The number of a job's class, 1 to 65534.
int32_t tc_minor_of(HostJob job);

// Where a process of the job listens. All its connections have such an end.
struct SendingEnd {
  bool is_here = false;   // it is on this host
  bool is_there = false;  // this host sends to it over the device
  std::string address;    // "IPv4:PORT"
};

// The device, and for whom.
struct TrafficControlSettings {
  std::string device;  // empty = none is touched
  HostJob job;         // the number of its process
  // Runs a program: see run_program (run/program.h).
  std::function<Result<std::string>(const std::vector<std::string>& words)> run;
};

// The traffic control of one job. It touches the device when it has to limit something for the
// first time. What has failed is not tried again, because rights do not change.
class TrafficControl {
 public:
  explicit TrafficControl(TrafficControlSettings settings) : settings_(std::move(settings)) {}
  // As remove().
  ~TrafficControl();
  TrafficControl(const TrafficControl&) = delete;
  TrafficControl& operator=(const TrafficControl&) = delete;

  // From now on the job sends with at most this many bytes per second; 0 = as fast as it can.
  // `living`: the jobs of the ledger, this one among them.
  //
  // Returns: whether it took effect, read back from the kernel
  bool hold(double bytes_per_second, const std::vector<SendingEnd>& ends,
            const std::vector<HostJob>& living);
  // Removes the classes of jobs that live no more, if the device has such classes. Once is enough.
  void remove_left_behind(const std::vector<HostJob>& living);
  // What the first limit came to, as a sentence. Empty before, and without a device.
  const std::string& outcome() const { return outcome_; }
  // Takes the limit off, and leaves the device as it was found if no other job needs the root.
  void remove();

 private:
  Result<std::string> tc(std::vector<std::string> words) const;
  Result<std::vector<TcClass>> classes() const;
  Status open(const std::vector<HostJob>& living);
  Status limit(double bytes_per_second);
  Status add_filters(const std::vector<SendingEnd>& ends);
  Status read_back() const;
  void remove_class(int32_t minor) const;
  bool fail(const Error& why);
  std::string class_of(int32_t minor) const;

  const TrafficControlSettings settings_;
  bool is_open_ = false, has_failed_ = false;
  int64_t kilobits_ = 0;            // per second, the present limit
  std::set<std::string> filtered_;  // ends that have their filter
  std::string outcome_;
};

}  // namespace tenuto
