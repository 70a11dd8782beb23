#include "rehearsal/link_clock.h"

#include <algorithm>

#include "transport/jitter.h"

namespace tenuto {

const LinkState& LinkClock::link(WorkerId peer) const {
  const auto own = own_.find(peer);
  return own == own_.end() ? every_ : own->second;
}

void LinkClock::set_links(const LinkStates& states, WorkerId self, uint64_t seed) {
  self_ = self;
  seed_ = seed;
  own_.clear();
  for (const auto& [ends, state] : states) {
    if (ends.first == self) own_[ends.second] = state;
  }
}

Passage LinkClock::send(WorkerId peer, Bytes size, Duration ready, const Tag& tag) {
  const LinkState& state = link(peer);
  const Duration transfer = transfer_time(size, state.link.bytes_per_second);
  const Duration latency = state.link.latency + jitter_of(seed_, self_, peer, tag, state.jitter);
  // A message that takes no time on the link delays no other, in whichever order the calls come.
  if (transfer.count() == 0) return {ready, ready, ready + latency};
  Duration& free = free_[peer];
  Passage passage;
  passage.start = std::max(free, ready);
  passage.finish = passage.start + transfer;
  passage.arrival = passage.finish + latency;
  free = passage.finish;
  return passage;
}

Duration LinkClock::way(WorkerId peer, Bytes size, const Tag& tag) const {
  const LinkState& state = link(peer);
  return state.link.latency + transfer_time(size, state.link.bytes_per_second) +
         jitter_of(seed_, self_, peer, tag, state.jitter);
}

LinkClock make_link_clock(const Job& job) {
  Link link;
  link.latency = from_milliseconds(job.network.latency_ms);
  link.bytes_per_second = job.network.megabytes_per_second * 1e6;
  // The patience is shorter than every op. So an op that starts late, because its choice waited for
  // messages, can still end at its virtual moment.
  Duration shortest = Duration::max();
  const DeviceSettings& device = job.device;
  for (const auto* lengths :
       {&device.forward_ms, &device.backward_input_ms, &device.backward_weight_ms}) {
    for (const double length : *lengths) {
      if (length > 0) shortest = std::min(shortest, from_milliseconds(length));
    }
  }
  const Duration patience =
      shortest == Duration::max() ? std::chrono::milliseconds(1) : shortest / 2;
  return LinkClock(link, patience, job.network.send == "blocking");
}

}  // namespace tenuto
