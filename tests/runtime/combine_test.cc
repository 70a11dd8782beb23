// Combining two tensors, compared with slow and plain definitions.
#include "runtime/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

// The value of an fp16 number, by the definition of the format.
double value_of_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, digits = bits & 1023;
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == 31) {
    return digits != 0 ? std::numeric_limits<double>::quiet_NaN()
                       : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(digits, -24);
  return sign * std::ldexp(1024 + digits, exponent - 25);
}

// The nearest 16-bit float with `digits` binary digits behind the point and exponents from `least`
// up; ties go to even, and beyond `largest` the result is infinite.
double nearest_of(double number, int digits, int least, double largest) {
  if (number == 0 || !std::isfinite(number)) return number;
  int exponent = 0;
  std::frexp(number, &exponent);
  const int unit = std::max(exponent - 1, least) - digits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(number, -unit)), unit);
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, number) : rounded;
}
double nearest_half(double number) { return nearest_of(number, 10, -14, 65504); }
double nearest_bfloat(double number) { return nearest_of(number, 7, -126, 0x1.fep127); }

TEST(Halves, AllAreReadAsDefinedAndComeBack) {
  for (uint32_t bits = 0; bits < 1U << 16; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double wanted = value_of_half(half);
    const float read = float_of_half(half);
    const float other = float_of_bfloat(half);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(read));
      EXPECT_EQ(half_of_float(read), 0x7e00);
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(read), std::bit_cast<uint32_t>(static_cast<float>(wanted)));
      ASSERT_EQ(half_of_float(read), half);
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(other), bits << 16);
    ASSERT_EQ(bfloat_of_float(other), std::isnan(other) ? 0x7fc0 : half);
  }
}

TEST(Halves, FloatsAreRoundedToTheNearest) {
  const auto expect_nearest = [](float number) {
    if (std::isnan(number)) return;
    const float half = float_of_half(half_of_float(number));
    const float bfloat = float_of_bfloat(bfloat_of_float(number));
    ASSERT_EQ(half, nearest_half(number)) << std::hexfloat << number;
    ASSERT_EQ(bfloat, nearest_bfloat(number)) << std::hexfloat << number;
    ASSERT_EQ(std::signbit(half), std::signbit(number));
    ASSERT_EQ(std::signbit(bfloat), std::signbit(number));
  };
  Random random(1);
  for (int i = 0; i < 200'000; ++i) {
    expect_nearest(std::bit_cast<float>(static_cast<uint32_t>(random.next())));
    // Halfway between two neighbouring halves.
    const auto half = static_cast<uint16_t>(random.next());
    const float here = float_of_half(half), there = float_of_half(half ^ 1);
    if (std::isfinite(here) && std::isfinite(there)) expect_nearest((here + there) / 2);
  }
}

// Random elements, with many NaNs, infinities and zeros of both signs.
std::vector<std::byte> drawn(Element element, size_t count, Random& random) {
  std::vector<std::byte> bytes(count * size_of(element));
  const auto put = [&](size_t i, auto number) {
    std::memcpy(bytes.data() + i * sizeof(number), &number, sizeof(number));
  };
  constexpr double kSpecial[]{0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1.0, -1.0};
  for (size_t i = 0; i < count; ++i) {
    const double special = kSpecial[random.below(8)];
    const bool plain = random.below(2) == 0;
    const uint64_t bits = random.next();
    switch (element) {
      case Element::Float32:
        put(i, plain ? static_cast<float>(random.uniform() - 0.5) : static_cast<float>(special));
        break;
      case Element::Float64:
        put(i, plain ? random.uniform() - 0.5 : special);
        break;
      case Element::BFloat16:
        put(i, plain ? static_cast<uint16_t>(bits) : bfloat_of_float(static_cast<float>(special)));
        break;
      case Element::Float16:
        put(i, plain ? static_cast<uint16_t>(bits) : half_of_float(static_cast<float>(special)));
        break;
      case Element::Int32:
        put(i, static_cast<uint32_t>(bits));
        break;
      case Element::Int64:
        put(i, bits);
        break;
      case Element::UInt8:
        put(i, static_cast<uint8_t>(bits));
        break;
    }
  }
  return bytes;
}

// Number i as a double; integers with their sign.
double number_at(Element element, const std::vector<std::byte>& bytes, size_t i) {
  const auto read = [&](auto number) {
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    return number;
  };
  switch (element) {
    case Element::Float32:
      return read(float{});
    case Element::Float64:
      return read(double{});
    case Element::BFloat16:
      return float_of_bfloat(read(uint16_t{}));
    default:
      return float_of_half(read(uint16_t{}));
  }
}

int64_t whole_at(Element element, const std::vector<std::byte>& bytes, size_t i) {
  int64_t number = 0;
  std::memcpy(&number, bytes.data() + i * size_of(element), size_of(element));
  if (element == Element::Int32) return static_cast<int32_t>(number);
  return number;
}

bool is_whole(Element element) {
  return element == Element::Int32 || element == Element::Int64 || element == Element::UInt8;
}

double wanted_float(Element element, Operation operation, double left, double right) {
  if (operation == Operation::Min || operation == Operation::Max) {
    if (std::isnan(left) || std::isnan(right)) return NAN;
    const bool first = left < right || (left == right && std::signbit(left));
    return first == (operation == Operation::Min) ? left : right;
  }
  if (element == Element::Float64) return left + right;
  const float sum = static_cast<float>(left) + static_cast<float>(right);
  if (element == Element::Float16) return nearest_half(sum);
  return element == Element::BFloat16 ? nearest_bfloat(sum) : sum;
}

// The sum of two integers, wrapped around as the element type does.
int64_t wrapped(Element element, uint64_t sum) {
  if (element == Element::UInt8) return static_cast<uint8_t>(sum);
  return element == Element::Int32 ? static_cast<int32_t>(static_cast<uint32_t>(sum))
                                   : static_cast<int64_t>(sum);
}

void expect_combined(Element element, Operation operation, uint64_t seed) {
  Random random(seed);
  const auto count = static_cast<size_t>(1 + random.below(70));
  const auto left = drawn(element, count, random), right = drawn(element, count, random);
  std::vector<std::byte> apart(left.size()), swapped(left.size()), in_place = left;
  combine(element, operation, apart, left, right);
  combine(element, operation, swapped, right, left);
  combine(element, operation, in_place, in_place, right);
  std::vector<std::byte> shifted(right.size() + 1), anywhere(left.size());
  std::copy(right.begin(), right.end(), shifted.begin() + 1);
  combine(element, operation, anywhere, left, std::span(shifted).subspan(1));
  SCOPED_TRACE(testing::Message() << name_of(element) << " " << name_of(operation) << ", seed "
                                  << seed);
  ASSERT_EQ(anywhere, apart) << "where it begins is in the bits";
  // If both operands are NaNs with different bits, an fp32 or fp64 sum may be either one.
  const bool symmetric = operation == Operation::Min || operation == Operation::Max ||
                         size_of(element) < 4 || is_whole(element);
  if (symmetric) {
    ASSERT_EQ(apart, swapped) << "the operands' order is in the bits";
    ASSERT_EQ(apart, in_place);
  }
  for (size_t i = 0; i < count; ++i) {
    if (is_whole(element)) {
      const int64_t one = whole_at(element, left, i), other = whole_at(element, right, i);
      int64_t wanted = operation == Operation::Min ? std::min(one, other) : std::max(one, other);
      if (operation == Operation::Sum || operation == Operation::Average) {
        wanted = wrapped(element, static_cast<uint64_t>(one) + static_cast<uint64_t>(other));
      }
      ASSERT_EQ(whole_at(element, apart, i), wanted) << one << " and " << other;
      continue;
    }
    const double one = number_at(element, left, i), other = number_at(element, right, i);
    const double wanted = wanted_float(element, operation, one, other);
    const double found = number_at(element, apart, i);
    const double other_way = number_at(element, in_place, i);
    ASSERT_EQ(std::isnan(found), std::isnan(wanted)) << one << " and " << other;
    ASSERT_EQ(std::isnan(other_way), std::isnan(wanted)) << one << " and " << other;
    if (std::isnan(wanted)) continue;
    ASSERT_EQ(found, wanted) << one << " and " << other;
    ASSERT_EQ(other_way, wanted) << one << " and " << other;
    ASSERT_EQ(std::signbit(found), std::signbit(wanted)) << one << " and " << other;
  }
}

TEST(Combine, EveryElementAndOperationIsAsDefined) {
  for (const Element element : kElements) {
    for (const Operation operation : kOperations) {
      for (uint64_t seed = 1; seed <= 100; ++seed) expect_combined(element, operation, seed);
    }
  }
}

TEST(Combine, AveragesAreDividedOnce) {
  Random random(3);
  for (const Element element : kElements) {
    for (const int64_t count : {1, 2, 3, 7, 16, 1024}) {
      const auto before = drawn(element, 50, random);
      auto after = before;
      divide(element, after, count);
      for (size_t i = 0; i < 50; ++i) {
        if (is_whole(element)) {
          EXPECT_EQ(whole_at(element, after, i), whole_at(element, before, i) / count);
          continue;
        }
        const double number = number_at(element, before, i);
        double wanted = element == Element::Float64
                            ? number / static_cast<double>(count)
                            : static_cast<float>(number) / static_cast<float>(count);
        if (element == Element::Float16) wanted = nearest_half(wanted);
        if (element == Element::BFloat16) wanted = nearest_bfloat(wanted);
        const double found = number_at(element, after, i);
        EXPECT_TRUE(found == wanted || (std::isnan(found) && std::isnan(wanted)))
            << name_of(element) << " " << number << " / " << count << ": " << found;
      }
    }
  }
}

TEST(Combine, IntegersAverageTowardZero) {
  std::vector<int32_t> numbers{7, -7, 1, -1, 0};
  divide(Element::Int32, std::as_writable_bytes(std::span(numbers)), 2);
  EXPECT_EQ(numbers, (std::vector<int32_t>{3, -3, 0, 0, 0}));
}

}  // namespace
}  // namespace tenuto
