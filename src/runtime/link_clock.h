// Links on the nominal clock: when a message would arrive over links of a given latency and rate,
// while the bytes themselves go at once.
#pragma once

#include <unordered_map>

#include "base/id.h"
#include "base/unit.h"
#include "world/cluster.h"
#include "world/job.h"

namespace tenuto {

// The way of one message over one directed link.
struct Passage {
  Duration start{};    // when the link was free and the bytes were there
  Duration finish{};   // when the last byte has left: the link is free again
  Duration arrival{};  // when the last byte is there
};

// The outgoing links of one worker. A link carries one message at a time, in the order of the
// calls.
class LinkClock {
 public:
  // `every` holds for each link without one of its own. `patience`: how long, in real time, a
  // choice between ops waits for messages that are nominally here already (Dispatch::Ready).
  LinkClock(Link every, Duration patience) : every_(every), patience_(patience) {}
  // Gives the link to `peer` its own latency and rate from now on: a slow link.
  void set(WorkerId peer, Link link) { own_[peer] = link; }
  // Sends `size` bytes that are there at `ready` to `peer`.
  Passage send(WorkerId peer, Bytes size, Duration ready);
  // See the constructor.
  Duration patience() const { return patience_; }

 private:
  Link every_;
  Duration patience_{};
  std::unordered_map<WorkerId, Link> own_;
  std::unordered_map<WorkerId, Duration> free_;
};

// The links of a paced run on the nominal clock: [network] latency_ms and megabytes_per_second; the
// patience is a fifth of the shortest op, 1 ms at most.
LinkClock make_link_clock(const Job& job);

}  // namespace tenuto
