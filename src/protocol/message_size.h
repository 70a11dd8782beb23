// How long the messages between the coordinator and its workers may be, in bytes.
#pragma once

#include <cstdint>

namespace tenuto {

// A report, or the question of a command: the most that a process that has shown the token may send
// at once.
inline constexpr int64_t kMostReport = int64_t{64} << 20;
// The events of a traced step are the longest part of a report: the rest gets a quarter.
inline constexpr int64_t kMostTraceText = kMostReport / 4 * 3;
// The messages of a run with server shards (Numbered) that go with one report or one instruction.
// Those beyond it wait until the first ones are acknowledged.
inline constexpr int64_t kMostNumberedBytes = kMostReport / 8;
// A plan as JSON.
inline constexpr int64_t kMostPlanText = int64_t{256} << 20;
// An instruction carries at most two plans, the one of the epoch and the one of what is left of a
// step. Everything else in it is far shorter than a report.
inline constexpr int64_t kMostInstruction = 2 * kMostPlanText + kMostReport;

}  // namespace tenuto
