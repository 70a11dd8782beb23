// What the numbers of a reduction are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenuto {

// Float: fp32, added in the order of the collective. Whole: int64, added in any.
enum class Element : uint8_t { Float, Whole };

// Bytes of one.
inline constexpr size_t size_of(Element element) {
  return element == Element::Float ? sizeof(float) : sizeof(int64_t);
}

}  // namespace tenuto
