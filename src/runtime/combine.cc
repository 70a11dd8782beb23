#include "runtime/combine.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr uint16_t kHalfNone = 0x7e00, kBFloatNone = 0x7fc0;

// All bits set, or none. Choices are made by masks: a branch would keep the loops from becoming
// vector instructions.
inline uint32_t mask_of(bool chosen) { return uint32_t{0} - static_cast<uint32_t>(chosen); }

// A half's exponent is moved to where fp32 has it, by a product that is exact. A subnormal half has
// no leading one: its digits are put behind the leading one of 0.5, and 0.5 is then subtracted.
inline float widen_half(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  const uint32_t sign = word & 0x8000'0000U;
  const uint32_t twice = word + word;
  const float normal = std::bit_cast<float>((twice >> 4) + (0xe0U << 23)) * 0x1p-112F;
  const float subnormal = std::bit_cast<float>((twice >> 17) | (126U << 23)) - 0.5F;
  const uint32_t small = mask_of(twice < (1U << 27));
  return std::bit_cast<float>(sign | (std::bit_cast<uint32_t>(subnormal) & small) |
                              (std::bit_cast<uint32_t>(normal) & ~small));
}

// Adds a power of two whose last digit is where the half's last digit will be, so that the
// processor rounds to nearest even. The product with 2^112 makes numbers that are too large
// infinite.
inline uint16_t narrow_half(float number) {
  const uint32_t word = std::bit_cast<uint32_t>(number);
  const uint32_t twice = word + word;
  const uint32_t sign = word & 0x8000'0000U;
  const float size = std::bit_cast<float>(word & 0x7fff'ffffU);
  const uint32_t exponent = twice & 0xff00'0000U;
  const uint32_t small = mask_of(exponent < 0x7100'0000U);
  const uint32_t bias = (0x7100'0000U & small) | (exponent & ~small);
  const float rounded =
      (size * 0x1p+112F) * 0x1p-110F + std::bit_cast<float>((bias >> 1) + 0x0780'0000U);
  const uint32_t bits = std::bit_cast<uint32_t>(rounded);
  const uint32_t half = ((bits >> 13) & 0x7c00U) + (bits & 0x0fffU);
  const uint32_t none = mask_of(twice > 0xff00'0000U);
  return static_cast<uint16_t>((kHalfNone & none) | (((sign >> 16) | half) & ~none));
}

inline float widen_bfloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t narrow_bfloat(float number) {
  const uint32_t word = std::bit_cast<uint32_t>(number);
  const uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  const uint32_t none = mask_of((word & 0x7fff'ffffU) > 0x7f80'0000U);
  return static_cast<uint16_t>((kBFloatNone & none) | (rounded & ~none));
}

// How an element is stored, and as which type it is computed.
template <class Number>
struct Plain {
  using Stored = Number;
  static Number load(Number number) { return number; }
  static Number store(Number number) { return number; }
};

struct Half {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return widen_half(bits); }
  static uint16_t store(float number) { return narrow_half(number); }
};

struct BFloat {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return widen_bfloat(bits); }
  static uint16_t store(float number) { return narrow_bfloat(number); }
};

struct Add {
  template <class Number>
  static Number of(Number left, Number right) {
    if constexpr (std::is_floating_point_v<Number>) {
      return left + right;
    } else {
      using Bits = std::make_unsigned_t<Number>;
      return static_cast<Number>(
          static_cast<Bits>(static_cast<Bits>(left) + static_cast<Bits>(right)));
    }
  }
};

// The bits of two equal numbers are or-ed (min) or and-ed (max): they can differ only in the sign
// of a zero.
template <bool least>
struct Pick {
  template <class Number>
  static Number of(Number left, Number right) {
    if constexpr (std::is_floating_point_v<Number>) {
      using Bits = std::conditional_t<sizeof(Number) == 8, uint64_t, uint32_t>;
      const auto mask = [](bool chosen) { return Bits{0} - static_cast<Bits>(chosen); };
      const Bits one = std::bit_cast<Bits>(left), other = std::bit_cast<Bits>(right);
      const Bits before = mask(least ? left < right : right < left);
      const Bits equal = mask(left == right);
      const Bits known = mask(left == left) & mask(right == right);
      const Bits none = std::bit_cast<Bits>(std::numeric_limits<Number>::quiet_NaN());
      const Bits tied = least ? one | other : one & other;
      const Bits picked = (one & before) | (other & ~before);
      const Bits number = (tied & equal) | (picked & ~equal);
      return std::bit_cast<Number>((number & known) | (none & ~known));
    } else {
      return (least ? left < right : right < left) ? left : right;
    }
  }
};

// Element `i` of memory that need not be aligned.
template <class Stored>
Stored element_at(const std::byte* all, size_t i) {
  Stored element;
  std::memcpy(&element, all + i * sizeof(Stored), sizeof(Stored));
  return element;
}

template <class Kind, class Operator, class Stored>
void combine_here(Stored* __restrict target, const std::byte* __restrict came, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Stored other = element_at<Stored>(came, i);
    target[i] = Kind::store(Operator::of(Kind::load(target[i]), Kind::load(other)));
  }
}

template <class Kind, class Operator, class Stored>
void combine_there(Stored* __restrict target, const Stored* __restrict here,
                   const std::byte* __restrict came, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Stored other = element_at<Stored>(came, i);
    target[i] = Kind::store(Operator::of(Kind::load(here[i]), Kind::load(other)));
  }
}

template <class Kind, class Operator>
void combine_into(std::byte* target, const std::byte* here, const std::byte* came, size_t size) {
  using Stored = typename Kind::Stored;
  auto* const to = reinterpret_cast<Stored*>(target);
  if (target == here) {
    combine_here<Kind, Operator>(to, came, size / sizeof(Stored));
  } else {
    const auto* const left = reinterpret_cast<const Stored*>(here);
    combine_there<Kind, Operator>(to, left, came, size / sizeof(Stored));
  }
}

template <class Kind>
void combine_as(Operation operation, std::byte* target, const std::byte* here,
                const std::byte* came, size_t size) {
  switch (operation) {
    case Operation::Sum:
    case Operation::Average:
      return combine_into<Kind, Add>(target, here, came, size);
    case Operation::Min:
      return combine_into<Kind, Pick<true>>(target, here, came, size);
    case Operation::Max:
      return combine_into<Kind, Pick<false>>(target, here, came, size);
  }
}

template <class Kind>
void divide_as(std::byte* target, size_t size, int64_t count) {
  using Stored = typename Kind::Stored;
  using Number = decltype(Kind::load(Stored{}));
  auto* const numbers = reinterpret_cast<Stored*>(target);
  for (size_t i = 0; i < size / sizeof(Stored); ++i) {
    const Number number = Kind::load(numbers[i]);
    if constexpr (std::is_floating_point_v<Number>) {
      numbers[i] = Kind::store(number / static_cast<Number>(count));
    } else {  // as int64_t: Number may be too small for the count of members
      numbers[i] = static_cast<Stored>(static_cast<int64_t>(number) / count);
    }
  }
}

}  // namespace

void combine(Element element, Operation operation, std::span<std::byte> target,
             std::span<const std::byte> here, std::span<const std::byte> came) {
  CHECK(here.size() == target.size() && came.size() == target.size(),
        cat("equal sizes, found ", target.size(), ", ", here.size(), " and ", came.size()));
  std::byte* const to = target.data();
  switch (element) {
    case Element::Float32:
      return combine_as<Plain<float>>(operation, to, here.data(), came.data(), target.size());
    case Element::Float64:
      return combine_as<Plain<double>>(operation, to, here.data(), came.data(), target.size());
    case Element::BFloat16:
      return combine_as<BFloat>(operation, to, here.data(), came.data(), target.size());
    case Element::Float16:
      return combine_as<Half>(operation, to, here.data(), came.data(), target.size());
    case Element::Int32:
      return combine_as<Plain<int32_t>>(operation, to, here.data(), came.data(), target.size());
    case Element::Int64:
      return combine_as<Plain<int64_t>>(operation, to, here.data(), came.data(), target.size());
    case Element::UInt8:
      return combine_as<Plain<uint8_t>>(operation, to, here.data(), came.data(), target.size());
  }
}

void divide(Element element, std::span<std::byte> target, int64_t count) {
  CHECK(count > 0, "a count of members");
  switch (element) {
    case Element::Float32:
      return divide_as<Plain<float>>(target.data(), target.size(), count);
    case Element::Float64:
      return divide_as<Plain<double>>(target.data(), target.size(), count);
    case Element::BFloat16:
      return divide_as<BFloat>(target.data(), target.size(), count);
    case Element::Float16:
      return divide_as<Half>(target.data(), target.size(), count);
    case Element::Int32:
      return divide_as<Plain<int32_t>>(target.data(), target.size(), count);
    case Element::Int64:
      return divide_as<Plain<int64_t>>(target.data(), target.size(), count);
    case Element::UInt8:
      return divide_as<Plain<uint8_t>>(target.data(), target.size(), count);
  }
}

float float_of_half(uint16_t bits) { return widen_half(bits); }
uint16_t half_of_float(float number) { return narrow_half(number); }
float float_of_bfloat(uint16_t bits) { return widen_bfloat(bits); }
uint16_t bfloat_of_float(float number) { return narrow_bfloat(number); }

}  // namespace tenuto
