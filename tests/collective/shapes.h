// Shapes of collectives for tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "collective/algorithm.h"

namespace tenuto {

// `count` members whose numbers are neither in order nor neighbours, with `chunks` chunks. The late
// ones, as many as the algorithm takes or a quarter, are spread over the members.
inline CollectiveShape shape_for(const AlgorithmCard& card, int32_t count, int32_t chunks = 0) {
  CollectiveShape shape;
  for (int32_t i = 0; i < count; ++i) shape.members.push_back({(i * 7 + 3) % (7 * count)});
  if (card.free_chunks) shape.chunks = chunks;
  const int32_t late = card.late_most < 0 ? std::max(count / 4, 1) : card.late_most;
  for (int32_t i = 0; i < late; ++i) {
    shape.late.push_back(shape.members[static_cast<size_t>((i * 3 + 1) % count)]);
  }
  return shape;
}

// True when an algorithm supports so many members.
inline bool takes(const AlgorithmCard& card, int32_t count) {
  return card.late_most == 0 || count >= 2;
}

// Number of rounds after all members have come: those of the last section, or all if none is late.
inline int32_t last_rounds(const Procedure& procedure) {
  const auto rounds = static_cast<int32_t>(procedure.collective.rounds.size());
  if (procedure.late.empty() || procedure.sections.size() < 2) return rounds;
  return rounds - procedure.sections[procedure.sections.size() - 2].round_end;
}

}  // namespace tenuto
