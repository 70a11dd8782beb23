#include "adapt/quota.h"

#include <algorithm>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// How often `part` fits into `whole`, rounded up.
int64_t ceiling(Duration whole, Duration part) {
  if (part.count() <= 0) return whole.count() > 0 ? INT32_MAX : 0;
  return (whole.count() + part.count() - 1) / part.count();
}

// Messages of one micro-batch between `stage` and the next, both ways.
Duration messages(const Line& line, int32_t stage) {
  const Leg& before = line.legs[at(stage)];
  const Leg& behind = line.legs[at(stage) + 1];
  return before.down + before.down_busy + behind.up + behind.up_busy;
}

int32_t clamp(const Line& line, int64_t quota) {
  return static_cast<int32_t>(std::clamp<int64_t>(quota, 1, line.micros));
}

bool fits(const Line& line, const Quotas& quotas, int32_t reserve) {
  for (size_t s = 0; s < quotas.size(); ++s) {
    if (!line.legs[s].memory.fits(quotas[s], reserve)) return false;
  }
  return true;
}

}  // namespace

Duration busiest(const Line& line) {
  Duration most{};
  for (const Leg& leg : line.legs) most = std::max(most, leg.forward + leg.backward + leg.weight);
  return most;
}

Duration round_trip(const Line& line, int32_t from, int32_t to) {
  Duration time{};
  for (int32_t s = from; s <= to; ++s) {
    time += line.legs[at(s)].forward + line.legs[at(s)].backward;
    if (s < to) time += messages(line, s);
  }
  return time;
}

Quotas ring_quotas(const Line& line, Duration period) {
  const int32_t last = line.stages() - 1;
  Quotas quotas(line.legs.size(), 1);
  for (int32_t s = last - 1; s >= 0; --s) {
    int64_t quota = quotas[at(s) + 1] + 1;
    Duration ring = line.legs[at(s)].forward + line.legs[at(s)].backward;
    for (int32_t j = s + 1; j <= last; ++j) {
      ring += messages(line, j - 1) + line.legs[at(j)].forward + line.legs[at(j)].backward;
      quota = std::max(quota, quotas[at(j)] - 1 + ceiling(ring, period));
    }
    quotas[at(s)] = clamp(line, quota);
  }
  return quotas;
}

Quotas ring_quotas_within(const Line& line, int32_t reserve) {
  Duration low = busiest(line);
  Quotas quotas = ring_quotas(line, low);
  if (fits(line, quotas, reserve)) return quotas;
  Duration high = 2 * round_trip(line, 0, line.stages() - 1) + std::chrono::nanoseconds(1);
  for (int round = 0; round < 40 && high - low > std::chrono::nanoseconds(1); ++round) {
    const Duration middle = low + (high - low) / 2;
    (fits(line, ring_quotas(line, middle), reserve) ? high : low) = middle;
  }
  return ring_quotas(line, high);
}

Quotas filling_quotas(const Line& line) {
  Quotas quotas;
  for (int32_t s = 0; s < line.stages(); ++s) {
    const Leg& leg = line.legs[at(s)];
    const Duration gap = round_trip(line, s, line.stages() - 1) - leg.backward;
    quotas.push_back(clamp(line, leg.forward.count() > 0 ? gap / leg.forward : line.micros));
  }
  return quotas;
}

Quotas even_quotas(const Line& line) {
  int32_t most = line.micros;
  for (const Leg& leg : line.legs) most = std::min(most, leg.memory.most_whole(line.micros));
  const int32_t gaps = std::max(1, line.stages() - 1);
  const int32_t each = (most - 1) / gaps, rest = (most - 1) % gaps;
  Quotas quotas{clamp(line, most)};
  for (int32_t s = 1; s < line.stages(); ++s) {
    quotas.push_back(clamp(line, quotas.back() - each - (s <= rest ? 1 : 0)));
  }
  return quotas;
}

Quotas neighbour_quotas(const Line& line) {
  Quotas quotas(line.legs.size(), 1);
  for (int32_t s = line.stages() - 2; s >= 0; --s) {
    const Leg& leg = line.legs[at(s)];
    const Leg& next = line.legs[at(s) + 1];
    const int64_t step =
        ceiling(leg.forward + leg.backward + messages(line, s), next.forward + next.backward);
    quotas[at(s)] = clamp(line, quotas[at(s) + 1] + std::max<int64_t>(step, 2));
  }
  return quotas;
}

Quotas stepped_quotas(const Line& line, int32_t step, int32_t ways) {
  Quotas quotas(line.legs.size(), 1);
  for (int32_t s = line.stages() - 2; s >= 0; --s) {
    const int64_t delay = ceiling(ways * messages(line, s) / 2, line.legs[at(s)].forward);
    quotas[at(s)] = clamp(line, quotas[at(s) + 1] + step + delay);
  }
  return quotas;
}

Quotas within_memory(const Line& line, Quotas quotas) {
  int32_t before = line.micros;
  for (size_t s = 0; s < quotas.size(); ++s) {
    before = quotas[s] = std::min({quotas[s], line.legs[s].memory.most_whole(line.micros), before});
  }
  return quotas;
}

}  // namespace tenuto
