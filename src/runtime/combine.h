// Two tensors made into one, number by number.
//
// Idea:  each operation gives the same bits whichever of its two operands is which. Members that
//        make the same result of the same two parts, one having this part and the other one that,
//        so end with the same bits, also where a zero has a sign and where a number is none: of a
//        minimum, a maximum and of 16 bits a quiet one without sign or payload comes out. Left out
//        is the sum of two fp32 or fp64 numbers that are both none, and unlike: it is one of the
//        two, as the processor pleases. To make them alike would cost sums half their speed.
// Speed: plain loops over restricted pointers, of which the compiler makes vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/element.h"

namespace tenuto {

// target = here op came; `here` may be the target, `came` may not overlap it and may begin
// anywhere. Average adds: the division is `divide`.
//
// Requires: equal sizes, of whole elements, target and here aligned for these
void combine(Element element, Operation operation, std::span<std::byte> target,
             std::span<const std::byte> here, std::span<const std::byte> came);

// Every number divided by `count`, which is above 0: rounded to nearest even, integers toward zero.
void divide(Element element, std::span<std::byte> target, int64_t count);

// fp16 and bf16 as fp32, which is exact.
float float_of_half(uint16_t bits);
float float_of_bfloat(uint16_t bits);
// fp32 as fp16 and as bf16, rounded to nearest even; what is no number becomes a quiet one without
// sign.
uint16_t half_of_float(float number);
uint16_t bfloat_of_float(float number);

}  // namespace tenuto
