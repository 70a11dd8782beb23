// Sums of fp32 numbers whose bits do not depend on the order of the additions, nor on who added
// what.
//
// Idea:  every term is rounded to a whole number of 2^-k, and whole numbers are added: that is
//        associative. k is one for a block of numbers, and the same for all who add to it.
// Range: of a term so many units fit that `most_terms` of them never overflow an int64. A term with
//        more goes into a second limb on a grid 2^(limb_shift) times as coarse: so large a number
//        has no bits below that grid, so nothing is lost. Together the limbs are 128 bits wide.
// Bytes: 8 a number; 8 more in a block that has ever needed its second limb.
// Error: of a block whose terms fit, at most most_terms * 2^-(k+1), then one rounding to fp32.
// Not taken: fp64, rounded once (one element in some 10^7 still depends on the order); a full
//        superaccumulator (40 bytes a number).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenuto {

// Numbers of one block, which share an exponent.
inline constexpr size_t kFixedBlock = 4096;

// Bits of head-room of make_exponent(): a block's largest term may grow by 2^8 from one step to the
// next without a second limb.
inline constexpr int32_t kFixedHeadRoom = 8;

// The exponent k for a block whose terms were at most `largest` the step before; `before` when
// there is none to go by (zero, infinite or not a number). A function of state that all agree on.
//
// Requires: most_terms in [1, 2^20]
int32_t make_exponent(float largest, int64_t most_terms, int32_t before);

// A sum of up to `most_terms` terms for each of `count` numbers.
class FixedSum {
 public:
  // Zeros. `exponents` has one k for each kFixedBlock numbers.
  //
  // Requires: most_terms in [1, 2^20]; an exponent of [-120, 180] for each block
  FixedSum(size_t count, int64_t most_terms, std::vector<int32_t> exponents);

  // Adds one term to each number from `first` on. Blocks are independent: several threads may add
  // to different ones.
  //
  // Requires: the terms end within the numbers; `first` is the begin of a block
  void add(size_t first, std::span<const float> terms);
  // Adds all terms of another sum.
  //
  // Requires: it is of equally many numbers, terms and exponents
  void add(const FixedSum& other);
  // The sums, each rounded once, to the nearest, ties to even. Not a number in blocks that are
  // overrun().
  void read(std::span<float> into) const;
  // True when a term was infinite, not a number, or too large for the second limb.
  bool overrun() const;
  // Blocks that have needed a second limb.
  size_t wide_blocks() const;

 private:
  struct Block {
    int32_t exponent = 0;
    bool overrun = false;
    std::vector<int64_t> wide;  // the second limb, empty until it is needed
  };

  void add_block(Block& block, int64_t* units, std::span<const float> terms) const;
  void add_wide(Block& block, int64_t* units, std::span<const float> terms) const;

  int32_t fit_bits_, limb_shift_;  // a term of the first limb is below 2^fit_bits_ units
  std::vector<int64_t> units_;
  std::vector<Block> blocks_;
};

}  // namespace tenuto
