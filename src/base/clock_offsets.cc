#include "base/clock_offsets.h"

#include <cstddef>
#include <utility>

namespace tenuto {

ClockOffsets join_clocks(int32_t clocks, const std::vector<ClockPair>& pairs) {
  const auto at = [](int32_t number) { return static_cast<size_t>(number); };
  std::vector<std::vector<std::pair<int32_t, double>>> beside(at(clocks));
  for (const ClockPair& pair : pairs) {
    beside[at(pair.first)].push_back({pair.second, pair.ahead});
    beside[at(pair.second)].push_back({pair.first, -pair.ahead});
  }
  ClockOffsets offsets;
  offsets.ahead.resize(at(clocks));
  offsets.joined.resize(at(clocks));
  offsets.joined[0] = true;
  std::vector<int32_t> reached = {0};
  for (size_t next = 0; next < reached.size(); ++next) {
    const int32_t from = reached[next];  // `reached` grows in the loop
    for (const std::pair<int32_t, double>& to : beside[at(from)]) {
      if (offsets.joined[at(to.first)]) continue;
      offsets.joined[at(to.first)] = true;
      offsets.ahead[at(to.first)] = offsets.ahead[at(from)] + to.second;
      reached.push_back(to.first);
    }
  }
  return offsets;
}

}  // namespace tenuto
