// Sums of fp32 numbers. Their bits do not depend on the order of the terms, nor on which member
// adds which term.
//
// Idea:  every number is split into two integers: in units of 2^-24, and, for the remainder, in
//        units of 2^-74. Adding integers is associative, so partial sums can be added, too.
// Range: numbers below 2^23, at most kFixedTerms in one sum. Numbers outside the range are counted,
//        not added.
// Error: at most 2^-75 a term, then one rounding to fp32.
// Alternatives that were rejected:
//        One 64-bit integer, in a unit that follows the largest gradient of the previous step: it
//        takes half the memory, but all members, checkpoints and joiners must agree on the unit,
//        and numbers that do not fit need a second integer anyway.
//        fp64: about one sum in 10^7 still depends on the order of its terms.
//        A full superaccumulator: 40 bytes for each sum.
#pragma once

#include <cstdint>
#include <span>

namespace tenuto {

// The most terms that one sum may have.
inline constexpr int64_t kFixedTerms = 1 << 13;

// One sum: high * 2^-24 + low * 2^-74.
struct FixedSum {
  int64_t high = 0, low = 0;
  bool operator==(const FixedSum&) const = default;
};

// Adds terms[i] to sums[i]. A term that is NaN or outside the range adds nothing to its sum and 1
// to `refused`.
//
// Shapes: as many sums as terms
void add_to(std::span<FixedSum> sums, std::span<const float> terms, int64_t& refused);

// The sums, each rounded once, to the nearest, ties to even.
//
// Shapes: as many of `into` as sums
void read(std::span<const FixedSum> sums, std::span<float> into);

}  // namespace tenuto
