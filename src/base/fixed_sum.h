// Sums of fp32 numbers that have the same bits in whatever order they are made, and whoever added
// what.
//
// Idea:  every number is cut into two whole numbers, of units of 2^-24 and, of what is left, of
//        2^-74. Whole numbers are added, which is associative; so a sum of sums is one, too.
// Range: numbers below 2^23, at most kFixedTerms of them in one sum. Every other one is counted.
// Error: 2^-75 a number, then one rounding to fp32.
// Not taken: one 64-bit number on a grid that follows the largest gradient of the step before. Half
//        the memory, but the grid is then state that members, checkpoints and joiners agree on, and
//        what does not fit needs a second number after all. Fp64: one sum in some 10^7 still
//        depends on the order. A full superaccumulator: 40 bytes a number.
#pragma once

#include <cstdint>
#include <span>

namespace tenuto {

// Numbers that one sum may be made of.
inline constexpr int64_t kFixedTerms = 1 << 13;

// One sum: high * 2^-24 + low * 2^-74.
struct FixedSum {
  int64_t high = 0, low = 0;
  bool operator==(const FixedSum&) const = default;
};

// Adds terms[i] to sums[i], and to `refused` how many of the terms were no numbers of the range:
// these add nothing.
//
// Shapes: as many sums as terms
void add_to(std::span<FixedSum> sums, std::span<const float> terms, int64_t& refused);

// The sums, each rounded once, to the nearest, ties to even.
//
// Shapes: as many of `into` as sums
void read(std::span<const FixedSum> sums, std::span<float> into);

}  // namespace tenuto
