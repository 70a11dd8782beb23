#include "base/exact_sum.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace tenuto {

void ExactSum::add(double number) {
  CHECK(number >= 0 && number < 0x1p300, "a term of an exact sum must lie in [0, 2^300)");
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  auto digits = static_cast<uint64_t>(std::ldexp(fraction, 53));
  int place = exponent - 53 + kPoint;
  if (place < 0) {
    digits = place > -64 ? digits >> -place : 0;
    place = 0;
  }
  ExactSum term;
  const auto word = static_cast<size_t>(place / 64);
  const int shift = place % 64;
  term.words_[word] = digits << shift;
  if (shift > 0) term.words_[word + 1] = digits >> (64 - shift);
  add(term);
}

void ExactSum::add(const ExactSum& other) {
  uint64_t carry = 0;
  for (size_t i = 0; i < kWords; ++i) {
    const uint64_t before = words_[i];
    words_[i] += other.words_[i] + carry;
    carry = words_[i] < before || (carry != 0 && words_[i] == before) ? 1 : 0;
  }
  CHECK(carry == 0, "an exact sum has become too large");
}

double ExactSum::value() const {
  size_t top = kWords - 1;
  while (top > 0 && words_[top] == 0) --top;
  if (words_[top] == 0) return 0;
  const int empty = std::countl_zero(words_[top]);
  const uint64_t below = top > 0 ? words_[top - 1] : 0;
  uint64_t digits = words_[top] << empty;
  uint64_t rest = below;
  if (empty > 0) {
    digits |= below >> (64 - empty);
    rest = below << empty;
  }
  for (size_t i = 0; i + 1 < top; ++i) rest |= words_[i];
  if (rest != 0) digits |= 1;  // far below the last digit that a double keeps: breaks a tie
  return std::ldexp(static_cast<double>(digits), static_cast<int>(64 * top) - empty - kPoint);
}

}  // namespace tenuto
