// Links on the virtual clock: when a message would arrive over links of a given latency and rate,
// while the bytes themselves go at once.
#pragma once

#include <unordered_map>

#include "base/id.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "transport/transport.h"
#include "world/cluster.h"
#include "world/fault.h"
#include "world/job.h"

namespace tenuto {

// The times of one message on one directed link.
struct Passage {
  Duration start{};    // when the link was free and the bytes were there
  Duration finish{};   // when the last byte has left: the link is free again
  Duration arrival{};  // when the last byte is there
};

// The outgoing links of one worker. A link carries one message at a time, in the order of the
// calls. Jitter is added to each arrival, so a message may arrive before the one ahead of it.
class LinkClock {
 public:
  // `every` is the latency and rate of each link that set() or set_links() has not given its own.
  // `patience`: how long, in real time, a choice between ops waits for messages that are here
  // already on the virtual clock (Dispatch::Ready). `blocking`: messages leave through the device's
  // queue (ir/device_queue.h).
  LinkClock(Link every, Duration patience, bool blocking = false)
      : every_{every, {}}, patience_(patience), blocking_(blocking) {}
  // Sets the latency and rate of the healthy link to `peer`, instead of those of `every`.
  void set_healthy(WorkerId peer, Link link) { healthy_[peer] = {link, {}}; }
  // From now on each message takes as long as one of the size that `sizes` returns for it.
  void set_sizes(MessageSizes sizes) { sizes_ = std::move(sizes); }
  // Gives the link to `peer` its own latency and rate from now on: a slow link.
  void set(WorkerId peer, Link link) { own_[peer] = {link, {}}; }
  // Sets the links from `self` to `states`; other links are healthy. `seed` draws the jitter.
  void set_links(const LinkStates& states, WorkerId self, uint64_t seed);
  // Sends `size` bytes that are there at `ready` to `peer`; `tag` names the message.
  Passage send(WorkerId peer, Bytes size, Duration ready, const Tag& tag = {});
  // The time of a message on a link that has nothing else to carry.
  Duration way(WorkerId peer, Bytes size, const Tag& tag) const;
  // See the constructor.
  Duration patience() const { return patience_; }
  // See the constructor.
  bool blocking() const { return blocking_; }

 private:
  const LinkState& link(WorkerId peer) const;

  Bytes counted(Bytes size, const Tag& tag) const { return sizes_ ? sizes_(tag, size) : size; }

  LinkState every_;
  MessageSizes sizes_;
  Duration patience_{};
  bool blocking_ = false;
  WorkerId self_;
  uint64_t seed_ = 0;
  std::unordered_map<WorkerId, LinkState> own_, healthy_;
  std::unordered_map<WorkerId, Duration> free_;
};

// The links from worker `self` in a paced run of `plan` on the virtual clock: those of [network]
// and of its cluster file, without faults; the patience is half of the shortest op that takes time,
// 1 ms if none does.
LinkClock make_link_clock(const Job& job, const Plan& plan, WorkerId self);

}  // namespace tenuto
