#include "collective/ring.h"

#include "base/check.h"

namespace tenuto {

Collective make_ring(const std::vector<WorkerId>& members) {
  CHECK(!members.empty(), "a ring needs a member");
  const int32_t count = static_cast<int32_t>(members.size());
  const auto member = [&](int32_t i) { return members[static_cast<size_t>(i % count)]; };
  Collective ring{members, count, {}};
  ring.rounds.reserve(static_cast<size_t>(2 * (count - 1)));
  for (int32_t turn = 0; turn < 2 * (count - 1); ++turn) {
    Round round;
    round.moves.reserve(members.size());
    for (int32_t i = 0; i < count; ++i) {
      // In turn t member i sends chunk i - t; from turn 1 on it has received it in the turn before.
      const int32_t chunk = ((i - turn) % count + count) % count;
      round.moves.push_back({member(i), member(i + 1), {chunk}, turn < count - 1});
    }
    ring.rounds.push_back(std::move(round));
  }
  return ring;
}

}  // namespace tenuto
