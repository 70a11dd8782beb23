#include "engine/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/random.h"

namespace tenuto {
namespace {

constexpr uint64_t kDropoutKey = 0x64726f70;

// The constants of the mask's hash: two rounds of multiply and xor-shift (the "lowbias32" mixer,
// found by exhaustive search for low bias, Wellons 2018). One half of the key is added before the
// first round, the other half between the two rounds.
constexpr uint32_t kFirstFactor = 0x7feb352d;
constexpr uint32_t kSecondFactor = 0x846ca68b;
constexpr uint32_t kSpread = 0x9e3779b9;

[[gnu::always_inline]] inline uint32_t hash(uint32_t index, uint32_t first_key,
                                            uint32_t second_key) {
  uint32_t x = index * kSpread + first_key;
  x = (x ^ (x >> 16)) * kFirstFactor;
  x = (x ^ (x >> 15)) * kSecondFactor;
  x = (x ^ (x >> 16)) + second_key;
  x = (x ^ (x >> 16)) * kFirstFactor;
  x = (x ^ (x >> 15)) * kSecondFactor;
  return x ^ (x >> 16);
}

// Elements whose hash is below this are dropped.
uint32_t threshold_of(double probability) {
  return static_cast<uint32_t>(std::min(probability * 0x1.0p32, 0x1.0p32 - 1));
}

[[gnu::always_inline]] inline void fill(float* mask, uint32_t count, float scale,
                                        uint32_t threshold, uint64_t key) {
  const auto first = static_cast<uint32_t>(key);
  const auto second = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < count; ++i) {
    mask[i] = hash(i, first, second) >= threshold ? scale : 0.0F;
  }
}

#if defined(__x86_64__)
// The same loop compiled for AVX2: the oldest x86-64 has no vector instruction for the loop's
// 32-bit products.
[[gnu::target("avx2")]] void fill_wide(float* mask, uint32_t count, float scale, uint32_t threshold,
                                       uint64_t key) {
  fill(mask, count, scale, threshold, key);
}
#endif

void fill_mask(float* mask, uint32_t count, float scale, uint32_t threshold, uint64_t key) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return fill_wide(mask, count, scale, threshold, key);
#endif
  fill(mask, count, scale, threshold, key);
}

}  // namespace

uint64_t dropout_key(int64_t seed, Iteration iteration, int32_t micro) {
  return mix(static_cast<uint64_t>(seed), kDropoutKey, static_cast<uint64_t>(iteration.value),
             static_cast<uint64_t>(micro));
}

at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, uint64_t key, at::Device place) {
  if (!place.is_cpu()) return dropout_mask_by_tensors(sizes, probability, key, place);
  at::Tensor mask = at::empty(sizes, at::kFloat);
  CHECK(mask.numel() < int64_t{std::numeric_limits<int32_t>::max()}, "a mask of fewer than 2^31");
  fill_mask(mask.mutable_data_ptr<float>(), static_cast<uint32_t>(mask.numel()),
            static_cast<float>(1 / (1 - probability)), threshold_of(probability), key);
  return mask;
}

at::Tensor dropout_mask_by_tensors(at::IntArrayRef sizes, double probability, uint64_t key,
                                   at::Device place) {
  constexpr int64_t kWord = 0xffffffff;
  int64_t count = 1;
  for (const int64_t extent : sizes) count *= extent;
  // 64-bit integers, cut to 32 bits after each multiplication: devices have no unsigned product.
  const auto round = [](at::Tensor& x, int shift, uint32_t factor) {
    x.bitwise_xor_(x.bitwise_right_shift(shift));
    x.mul_(static_cast<int64_t>(factor)).bitwise_and_(kWord);
  };
  at::Tensor x = at::arange(count, at::TensorOptions().dtype(at::kLong).device(place));
  x.mul_(int64_t{kSpread}).add_(static_cast<int64_t>(key & kWord)).bitwise_and_(kWord);
  round(x, 16, kFirstFactor);
  round(x, 15, kSecondFactor);
  x.bitwise_xor_(x.bitwise_right_shift(16));
  x.add_(static_cast<int64_t>(key >> 32)).bitwise_and_(kWord);
  round(x, 16, kFirstFactor);
  round(x, 15, kSecondFactor);
  x.bitwise_xor_(x.bitwise_right_shift(16));
  const auto scale = static_cast<float>(1 / (1 - probability));
  return x.ge(static_cast<int64_t>(threshold_of(probability)))
      .to(at::kFloat)
      .mul_(scale)
      .view(sizes);
}

}  // namespace tenuto
