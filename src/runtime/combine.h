// Combines two tensors element by element.
//
// Idea:  each operation gives the same bits if its two operands are swapped. So two members that
//        send each other their parts, and combine what came with their own, end with the same bits.
//        This holds for signed zeros and for NaN: minima, maxima and all operations on 16-bit
//        numbers return a quiet NaN without sign or payload. The exception is the fp32 or fp64 sum
//        of two different NaN: the processor returns either of them. To fix this would cost sums
//        half their speed.
// Speed: plain loops over restricted pointers, which the compiler turns into vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/element.h"

namespace tenuto {

// target = here op came; `here` may be the target, `came` may not overlap it and needs no
// alignment. Average only adds: call `divide` in the end.
//
// Requires: equal sizes, of whole elements, target and here aligned for these
void combine(Element element, Operation operation, std::span<std::byte> target,
             std::span<const std::byte> here, std::span<const std::byte> came);

// Every number divided by `count`, which is above 0: rounded to nearest even, integers toward zero.
void divide(Element element, std::span<std::byte> target, int64_t count);

// fp16 and bf16 as fp32, which is exact.
float float_of_half(uint16_t bits);
float float_of_bfloat(uint16_t bits);
// fp32 as fp16 and as bf16, rounded to nearest even; a NaN becomes a quiet NaN without sign.
uint16_t half_of_float(float number);
uint16_t bfloat_of_float(float number);

}  // namespace tenuto
