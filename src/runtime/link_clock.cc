#include "runtime/link_clock.h"

#include <algorithm>

namespace tenuto {

Passage LinkClock::send(WorkerId peer, Bytes size, Duration ready) {
  const auto own = own_.find(peer);
  const Link& link = own == own_.end() ? every_ : own->second;
  const Duration transfer = transfer_time(size, link.bytes_per_second);
  // What takes no time on the link keeps nothing waiting, in whichever order the calls come.
  if (transfer.count() == 0) return {ready, ready, ready + link.latency};
  Duration& free = free_[peer];
  Passage passage;
  passage.start = std::max(free, ready);
  passage.finish = passage.start + transfer;
  passage.arrival = passage.finish + link.latency;
  free = passage.finish;
  return passage;
}

LinkClock make_link_clock(const Job& job) {
  Link link;
  link.latency = from_milliseconds(job.network.latency_ms);
  link.bytes_per_second = job.network.megabytes_per_second * 1e6;
  Duration shortest = std::chrono::milliseconds(5);
  const DeviceSettings& device = job.device;
  for (const auto* lengths :
       {&device.forward_ms, &device.backward_input_ms, &device.backward_weight_ms}) {
    for (const double length : *lengths) {
      if (length > 0) shortest = std::min(shortest, from_milliseconds(length));
    }
  }
  return LinkClock(link, shortest / 5);
}

}  // namespace tenuto
