#include "base/fixed_sum.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace tenuto {
namespace {

constexpr double kHighUnits = 0x1p24, kLowInHigh = 0x1p50;
constexpr int kLowInHighBits = 50;
constexpr float kLimit = 0x1p23f, kLowUnit = 0x1p-74f;
// Adding this to a number below 2^51 leaves the nearest integer, ties to even, in the low bits.
constexpr double kWhole = 0x1.8p52;

__extension__ using Wide = __int128;

}  // namespace

// Every step but the last rounding is exact: products by a power of two, and remainders of a
// rounding. There is no call and no conversion to integers, so that the compiler can vectorize it.
void add_to(std::span<FixedSum> sums, std::span<const float> terms, int64_t& refused) {
  CHECK(sums.size() == terms.size(), "a sum for each term");
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool fits = std::fabs(terms[i]) < kLimit;  // also false for NaN
    const double units = (fits ? static_cast<double>(terms[i]) : 0.0) * kHighUnits;
    const double high = units + kWhole;
    const double low = (units - (high - kWhole)) * kLowInHigh + kWhole;
    sums[i].high += std::bit_cast<int64_t>(high) - std::bit_cast<int64_t>(kWhole);
    sums[i].low += std::bit_cast<int64_t>(low) - std::bit_cast<int64_t>(kWhole);
    refused += fits ? 0 : 1;
  }
}

void read(std::span<const FixedSum> sums, std::span<float> into) {
  CHECK(sums.size() == into.size(), "a result for each sum");
  for (size_t i = 0; i < sums.size(); ++i) {
    const Wide whole = static_cast<Wide>(sums[i].high) * (Wide{1} << kLowInHighBits) + sums[i].low;
    into[i] = static_cast<float>(whole) * kLowUnit;
  }
}

}  // namespace tenuto
