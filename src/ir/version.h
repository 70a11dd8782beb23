// Iterations and versions, and how far a worker may be from the committed version.
//
// Idea:  an *iteration* is counted by each replica: one pass over its share of the micro-batches. A
//        *version* of the parameters counts the updates that made it. In synchronous training each
//        update has the gradients of one iteration of every replica, so iteration i reads version i
//        and its update makes version i + 1. This file and control/commit.h alone say how far
//        anybody may be ahead of the committed version; the functions below follow from
//        kUpdatesAhead and from may_update().
// Right: tests/ir/version_test.cc plays all interleavings of workers that obey may_update() alone.
#pragma once

#include <compare>
#include <cstdint>

namespace tenuto {

// A count of one kind, from 0. Counts of different kinds cannot be compared or mixed up.
template <class Tag>
struct Count {
  int64_t value = 0;
  auto operator<=>(const Count&) const = default;
};

// The count that is so much further on.
template <class Tag>
constexpr Count<Tag> operator+(Count<Tag> from, int64_t further) {
  return {from.value + further};
}

// The number of a replica's iteration: of the step of a job in synchronous training.
using Iteration = Count<struct IterationTag>;
// How many updates the parameters have taken.
using Version = Count<struct VersionTag>;

// So many updates beyond the committed version a worker may have taken, and can undo.
inline constexpr int64_t kUpdatesAhead = 1;

// The iteration that reads the version.
constexpr Iteration iteration_on(Version version) { return {version.value}; }

// The version that the update of the iteration makes.
constexpr Version version_made_by(Iteration iteration) { return {iteration.value + 1}; }

// The iteration whose update made the version; -1 for version 0, which no update made.
constexpr Iteration iteration_that_made(Version version) { return {version.value - 1}; }

// The newest version that any worker can have while `committed` is the committed one.
constexpr Version newest_version(Version committed) { return committed + kUpdatesAhead; }

// True when a worker may take the update of the iteration. Until then it may do all else of it.
constexpr bool may_update(Iteration iteration, Version committed) {
  return version_made_by(iteration) <= newest_version(committed);
}

// The oldest version that no worker can have.
constexpr Version first_unmade(Version committed) { return newest_version(committed) + 1; }

// The first iteration that no worker can have begun: none has the version that it reads. What is to
// change for all workers at once can change with it.
constexpr Iteration first_unbegun(Version committed) {
  return iteration_on(first_unmade(committed));
}

// True when undoing leads a worker that has version `held` back to `wanted`, which is older.
constexpr bool leads_back(Version held, Version wanted) {
  return held > wanted && held <= newest_version(wanted);
}

}  // namespace tenuto
