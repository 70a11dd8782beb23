#include "base/fixed_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tenuto {

namespace {

// Bits of a float's mantissa but one: a number of at least 2^n has no bits below 2^(n - 23).
constexpr int32_t kMantissa = 23;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 WideBits;
static_assert(std::numeric_limits<long double>::digits >= 62,
              "62 bits are rounded to a float once");

int32_t ceil_log2(int64_t number) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(number - 1)));
}

// Adding and taking away 1.5 * 2^52 leaves a double of less than 2^51 rounded to a whole number,
// ties to even; the whole number is in its low bits.
constexpr double kToWhole = 6755399441055744.0;
constexpr int32_t kMagicBits = 51;

// Terms below 2^51 units: vector instructions, without conversions to int64.
void add_small(int64_t* __restrict units, const float* __restrict terms, size_t count,
               double scale) {
  const auto offset = std::bit_cast<int64_t>(kToWhole);
  for (size_t i = 0; i < count; ++i) {
    const double whole = static_cast<double>(terms[i]) * scale + kToWhole;
    units[i] += std::bit_cast<int64_t>(whole) - offset;
  }
}

uint32_t largest_bits(std::span<const float> terms) {
  uint32_t largest = 0;
  for (const float term : terms) {
    largest = std::max(largest, std::bit_cast<uint32_t>(term) & kMagnitude);
  }
  return largest;
}

// The float nearest to `value` * 2^-exponent, ties to even: rounded once.
float to_float(Wide value, int32_t exponent) {
  if (value == 0) return 0;
  const bool negative = value < 0;
  auto magnitude = negative ? -static_cast<WideBits>(value) : static_cast<WideBits>(value);
  const auto high = static_cast<uint64_t>(magnitude >> 64);
  const int32_t width =
      high != 0 ? 64 + static_cast<int32_t>(std::bit_width(high))
                : static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(magnitude)));
  int32_t shift = 0;
  if (width > 62) {  // what is shifted out only matters as "not nothing"
    shift = width - 62;
    const auto lost = magnitude & ((static_cast<WideBits>(1) << shift) - 1);
    magnitude = (magnitude >> shift) | (lost != 0 ? 1 : 0);
  }
  // At most 62 bits, and a float keeps 24: scaled in long double, which has 64, and rounded once.
  const long double exact =
      std::ldexp(static_cast<long double>(static_cast<uint64_t>(magnitude)), shift - exponent);
  return static_cast<float>(negative ? -exact : exact);
}

}  // namespace

int32_t make_exponent(float largest, int64_t most_terms, int32_t before) {
  CHECK(most_terms >= 1 && most_terms <= (int64_t{1} << 20), "too many terms");
  if (!(largest > 0) || !std::isfinite(largest)) return before;
  int32_t above = 0;  // 2^above is above the largest
  std::frexp(largest, &above);
  return std::clamp(62 - ceil_log2(most_terms) - kFixedHeadRoom - above, -120, 180);
}

FixedSum::FixedSum(size_t count, int64_t most_terms, std::vector<int32_t> exponents)
    : fit_bits_(62 - ceil_log2(most_terms)), limb_shift_(fit_bits_ - kMantissa), units_(count, 0) {
  CHECK(most_terms >= 1 && most_terms <= (int64_t{1} << 20), "too many terms");
  CHECK(exponents.size() == (count + kFixedBlock - 1) / kFixedBlock, "an exponent for each block");
  for (const int32_t exponent : exponents) {
    CHECK(exponent >= -120 && exponent <= 180, "an exponent is in [-120, 180]");
    blocks_.push_back({exponent, false, {}});
  }
}

void FixedSum::add(size_t first, std::span<const float> terms) {
  CHECK(first % kFixedBlock == 0 && first + terms.size() <= units_.size(),
        "terms begin with a block and end within the numbers");
  for (size_t done = 0; done < terms.size(); done += kFixedBlock) {
    const size_t count = std::min(kFixedBlock, terms.size() - done);
    add_block(blocks_[(first + done) / kFixedBlock], units_.data() + first + done,
              terms.subspan(done, count));
  }
}

void FixedSum::add_block(Block& block, int64_t* units, std::span<const float> terms) const {
  const auto largest = std::bit_cast<float>(largest_bits(terms));
  const double scale = std::ldexp(1.0, block.exponent);
  if (std::abs(largest) * scale < std::ldexp(1.0, std::min(fit_bits_, kMagicBits))) {
    add_small(units, terms.data(), terms.size(), scale);
  } else {
    add_wide(block, units, terms);
  }
}

// Some term is large, infinite or not a number.
void FixedSum::add_wide(Block& block, int64_t* units, std::span<const float> terms) const {
  const double scale = std::ldexp(1.0, block.exponent);
  const double fits = std::ldexp(1.0, fit_bits_);
  const double wide = std::ldexp(1.0, fit_bits_ + limb_shift_);
  for (size_t i = 0; i < terms.size(); ++i) {
    const double term = static_cast<double>(terms[i]) * scale;
    if (std::abs(term) < fits) {
      units[i] += static_cast<int64_t>(std::nearbyint(term));
    } else if (std::abs(term) < wide) {
      if (block.wide.empty()) block.wide.assign(kFixedBlock, 0);
      block.wide[i] += static_cast<int64_t>(std::ldexp(term, -limb_shift_));
    } else {
      block.overrun = true;
    }
  }
}

void FixedSum::add(const FixedSum& other) {
  CHECK(units_.size() == other.units_.size() && fit_bits_ == other.fit_bits_,
        "sums of the same shape");
  for (size_t i = 0; i < units_.size(); ++i) units_[i] += other.units_[i];
  for (size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    const Block& more = other.blocks_[b];
    CHECK(block.exponent == more.exponent, "sums of the same exponents");
    block.overrun = block.overrun || more.overrun;
    if (more.wide.empty()) continue;
    if (block.wide.empty()) block.wide.assign(kFixedBlock, 0);
    for (size_t i = 0; i < kFixedBlock; ++i) block.wide[i] += more.wide[i];
  }
}

void FixedSum::read(std::span<float> into) const {
  CHECK(into.size() == units_.size(), "room for each number");
  for (size_t i = 0; i < into.size(); ++i) {
    const Block& block = blocks_[i / kFixedBlock];
    Wide sum = units_[i];
    if (!block.wide.empty()) {
      sum += static_cast<Wide>(block.wide[i % kFixedBlock]) * (Wide{1} << limb_shift_);
    }
    into[i] =
        block.overrun ? std::numeric_limits<float>::quiet_NaN() : to_float(sum, block.exponent);
  }
}

bool FixedSum::overrun() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const Block& it) { return it.overrun; });
}

size_t FixedSum::wide_blocks() const {
  return static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(),
                                           [](const Block& it) { return !it.wide.empty(); }));
}

}  // namespace tenuto
