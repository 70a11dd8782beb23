// The parts of a layer: the linear layer that splits its backward, and dropout's masks.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "engine/dropout.h"
#include "engine/stage_module.h"

namespace tenuto {
namespace {

Job small_job(const std::string& precision) {
  Job job;
  job.model.layers = 2;
  job.model.width = 48;
  job.model.heads = 3;
  job.model.sequence = 20;
  job.model.dropout = 0.2;
  job.device.precision = precision;
  return job;
}

// The gradients of three micro-batches. The weight gradients of a split backward are made right
// after each backward, or, if `late`, after all of them; always in micro-batch order.
at::Tensor gradients(const Job& job, bool split, bool late) {
  at::manual_seed(3);
  const auto module = model_kind(job.model).make(job, {}, {0, 4, {}});
  Weights weights(job, module->parameters(), at::kCPU);
  module->bind(weights);
  std::vector<DeferredWork> work(3);
  at::Tensor scratch;
  for (size_t micro = 0; micro < 3; ++micro) {
    const at::Tensor bytes = at::randint(256, {2, 20}, at::kLong);
    const at::Tensor targets = at::randint(256, {2, 20}, at::kLong);
    Pass pass{true, dropout_key(1, {0}, static_cast<int32_t>(micro)),
              split ? &work[micro] : nullptr};
    torch::autograd::backward({module->loss(module->forward({bytes}, pass), {targets})}, {});
    EXPECT_EQ(work[micro].size(), split ? 9U : 0U);  // 4 in each block and the head
    if (split && !late) drain(work[micro], scratch);
  }
  for (DeferredWork& one : work) drain(one, scratch);
  return weights.gradients().clone();
}

TEST(SplitBackward, EqualsTheFusedBackwardBitwise) {
  at::set_num_threads(1);
  for (const char* precision : {"fp32", "bf16"}) {
    const Job job = small_job(precision);
    const at::Tensor fused = gradients(job, false, false);
    EXPECT_GT(fused.abs().max().item<float>(), 0);
    EXPECT_TRUE(at::equal(fused, gradients(job, true, false))) << precision;
    EXPECT_TRUE(at::equal(fused, gradients(job, true, true))) << precision;
  }
}

TEST(SplitBackward, TiedHeadIsTheSameUpToTheOrderOfTwoTerms) {
  Job job = small_job("fp32");
  job.model.tied = true;
  const at::Tensor fused = gradients(job, false, false), split = gradients(job, true, true);
  // 3 micro-batches of 2 terms: two orders of 6 terms differ by at most 2 x 5 u times the sum of
  // their magnitudes. With this seed each magnitude is below three times the largest sum.
  const double largest = fused.abs().max().item<double>();
  const double bound = 2 * 5 * 0x1.0p-24 * 6 * 3 * largest;
  EXPECT_LE((fused - split).abs().max().item<double>(), bound);
}

TEST(LowPrecision, IsNearFullPrecisionAndKeepsFullGradients) {
  const at::Tensor full = gradients(small_job("fp32"), true, true);
  const at::Tensor low = gradients(small_job("bf16"), true, true);
  EXPECT_EQ(low.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::equal(full, low));
  // bf16 has 8 bits; the error of a sum of products is a few of its units.
  const double norm = full.norm().item<double>();
  EXPECT_LE((full - low).norm().item<double>(), 0.03 * norm);
}

TEST(Dropout, MaskIsAFunctionOfItsKey) {
  const at::Tensor one = dropout_mask({7, 33}, 0.3, 12345, at::kCPU);
  (void)dropout_mask({5}, 0.3, 99, at::kCPU);
  EXPECT_TRUE(at::equal(one, dropout_mask({7, 33}, 0.3, 12345, at::kCPU)));
  EXPECT_FALSE(at::equal(one, dropout_mask({7, 33}, 0.3, 12346, at::kCPU)));
  EXPECT_FALSE(at::equal(one, dropout_mask({7, 33}, 0.3, 12345 + (1ULL << 32), at::kCPU)));
  EXPECT_NE(dropout_key(1, {2}, 3), dropout_key(1, {3}, 2));
}

TEST(Dropout, EveryDeviceMakesTheSameMask) {
  for (const double probability : {0.01, 0.1, 0.5, 0.9}) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{77}, ~uint64_t{0}, uint64_t{1} << 63}) {
      EXPECT_TRUE(at::equal(dropout_mask({64, 1001}, probability, key, at::kCPU),
                            dropout_mask_by_tensors({64, 1001}, probability, key, at::kCPU)));
    }
  }
}

TEST(Dropout, DropsItsShareEverywhere) {
  constexpr int64_t kCount = 1 << 20;
  const double probability = 0.1;
  const double spread = std::sqrt(probability * (1 - probability) / kCount);
  for (uint64_t key = 1; key < 20; ++key) {
    const at::Tensor mask = dropout_mask({kCount}, probability, key * 0x123456789, at::kCPU);
    const at::Tensor dropped = (mask == 0).to(at::kDouble);
    EXPECT_NEAR(dropped.mean().item<double>(), probability, 5 * spread);
    EXPECT_FLOAT_EQ(mask.max().item<float>(), 1 / 0.9F);
    // Neighbours are independent: both dropped with probability squared.
    for (const int64_t apart : {1, 2, 32, 256, 4096}) {
      const at::Tensor both =
          dropped.narrow(0, 0, kCount - apart) * dropped.narrow(0, apart, kCount - apart);
      EXPECT_NEAR(both.mean().item<double>(), 0.01, 5 * std::sqrt(0.01 / kCount)) << apart;
    }
  }
}

}  // namespace
}  // namespace tenuto
