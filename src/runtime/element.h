// The element types of a collective, and the operations that combine two elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenuto {

// BFloat16 and Float16 are computed in fp32 and rounded to nearest even each time that a received
// element is combined.
enum class Element : uint8_t { Float32, Float64, BFloat16, Float16, Int32, Int64, UInt8 };

// All of them, for tables and tests.
inline constexpr std::array<Element, 7> kElements{
    Element::Float32, Element::Float64, Element::BFloat16, Element::Float16,
    Element::Int32,   Element::Int64,   Element::UInt8};

// Average: the sum, divided once at the end by the count of members. Integers wrap around, and
// their averages are rounded toward zero. Min and Max: if an operand is NaN so is the result, and
// -0 is below +0.
enum class Operation : uint8_t { Sum, Average, Min, Max };

// All of them.
inline constexpr std::array<Operation, 4> kOperations{Operation::Sum, Operation::Average,
                                                      Operation::Min, Operation::Max};

// Bytes of one element.
inline constexpr size_t size_of(Element element) {
  switch (element) {
    case Element::Float64:
    case Element::Int64:
      return 8;
    case Element::Float32:
    case Element::Int32:
      return 4;
    case Element::BFloat16:
    case Element::Float16:
      return 2;
    case Element::UInt8:
      break;
  }
  return 1;
}

// What it is called: fp32, fp64, bf16, fp16, int32, int64, uint8.
inline constexpr std::string_view name_of(Element element) {
  constexpr std::array<std::string_view, 7> kNames{"fp32",  "fp64",  "bf16", "fp16",
                                                   "int32", "int64", "uint8"};
  return kNames[static_cast<size_t>(element)];
}

// sum, average, min, max.
inline constexpr std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, 4> kNames{"sum", "average", "min", "max"};
  return kNames[static_cast<size_t>(operation)];
}

}  // namespace tenuto
