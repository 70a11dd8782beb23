#include "world/port_sides.h"

#include <algorithm>

#include "base/longest_time.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

PortSides::PortSides(const Cluster& cluster) {
  if (cluster.ports.empty()) return;
  entries_.resize(cluster.workers.size());
  for (size_t p = 0; p < cluster.ports.size(); ++p) {
    const Port& port = cluster.ports[p];
    const auto out = static_cast<int32_t>(sides_.size());
    const int32_t in = port.half_duplex ? out : out + 1;
    sides_.resize(at(in) + 1, {port.bytes_per_second, {}, {}});
    for (const WorkerId device : port.devices) {
      entries_[at(device.value)].push_back({static_cast<int32_t>(p), out, in, port.inside});
    }
  }
}

// Calls `take` with each side on the way, by port.
template <class Take>
void PortSides::visit(WorkerId from, WorkerId to, Take take) const {
  if (sides_.empty()) return;
  const std::vector<Entry>&senders = entries_[at(from.value)], &receivers = entries_[at(to.value)];
  size_t s = 0, r = 0;
  while (s < senders.size() || r < receivers.size()) {
    const int32_t mine = s < senders.size() ? senders[s].port : INT32_MAX;
    const int32_t theirs = r < receivers.size() ? receivers[r].port : INT32_MAX;
    if (mine == theirs) {
      if (senders[s].inside) {
        take(senders[s].out);
        if (senders[s].in != senders[s].out) take(senders[s].in);
      }
      ++s, ++r;
    } else if (mine < theirs) {
      take(senders[s++].out);
    } else {
      take(receivers[r++].in);
    }
  }
}

std::vector<int32_t> PortSides::between(WorkerId from, WorkerId to) const {
  std::vector<int32_t> sides;
  visit(from, to, [&](int32_t side) { sides.push_back(side); });
  return sides;
}

double PortSides::rate(WorkerId from, WorkerId to) const {
  double slowest = 0;
  visit(from, to, [&](int32_t side) {
    const double rate = sides_[at(side)].bytes_per_second;
    if (slowest == 0 || rate < slowest) slowest = rate;
  });
  return slowest;
}

Duration PortSides::free_at(std::span<const int32_t> sides, Duration ready) const {
  for (const int32_t side : sides) ready = std::max(ready, sides_[at(side)].free_at);
  return ready;
}

void PortSides::occupy(std::span<const int32_t> sides, Bytes size, Duration begin) {
  for (const int32_t index : sides) {
    Side& side = sides_[at(index)];
    const Duration time = transfer_time(size, side.bytes_per_second);
    side.free_at = plus(begin, time);
    side.busy = plus(side.busy, time);
  }
}

Duration PortSides::busiest() const {
  Duration most{};
  for (const Side& side : sides_) most = std::max(most, side.busy);
  return most;
}

}  // namespace tenuto
