// Tallies: a number that says which gradients a sum is made of, and adds up as the sum does.
//
// Idea:  each weight gradient has a random number of 64 bits; the tally of a sum is the sum of the
//        numbers of what is in it. A collective that adds two chunks adds their tallies, so at its
//        end the tally of every chunk says whether each gradient of the step is in it exactly once.
// Right: any other set of gradients has the same tally with a probability of 2^-64.
// Size:  8 bytes a message, however many micro-batches a step has. A mask would need a bit for each
//        micro-batch, and more than a bit where one can be in the sum twice.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"

namespace tenuto {

// One weight gradient: of a stage and a micro-batch.
struct Contribution {
  StageId stage;
  MicroId micro;
  auto operator<=>(const Contribution&) const = default;
};

// Its number.
uint64_t tally_of(const Contribution& each);

// The tally of a sum of these.
uint64_t tally_of(std::span<const Contribution> all);

// Says how a sum with the tally `found` differs from the sum of `wanted`, naming what is missing or
// in it twice if that is one or two contributions: "micro-batch 3 of stage 1 is in it twice".
// `own`: what this worker brought to it.
//
// Cost: O(n log n) for n contributions
std::string difference_of(std::span<const Contribution> wanted, uint64_t found,
                          std::span<const Contribution> own);

}  // namespace tenuto
