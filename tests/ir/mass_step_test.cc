// Updates by mass: the plain optimizer at full mass, and the same way however the mass is divided.
#include "ir/mass_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

std::vector<float> random_vector(Random& random, size_t size) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) values.push_back(static_cast<float>(random.uniform() - 0.5));
  return values;
}

constexpr size_t kSize = 33;

// SGD with momentum, and with Nesterov's method, as torch::optim has them, written out; bit for bit
// over 200 full updates.
TEST(MassStep, FullMassIsPlainMomentum) {
  for (const double momentum : {0.0, 0.5, 0.9, 0.99}) {
    Random random(1);
    std::vector<float> plain = random_vector(random, kSize), velocity(kSize, 0.0f);
    std::vector<float> parameters = plain, moment(kSize, 0.0f);
    std::vector<float> plain_ahead = plain, ahead = plain, other_moment = moment;
    const auto beta = static_cast<float>(momentum);
    for (int64_t step = 0; step < 200; ++step) {
      const std::vector<float> gradient = random_vector(random, kSize);
      for (size_t i = 0; i < kSize; ++i) {
        velocity[i] = beta * velocity[i] + gradient[i];
        plain[i] -= 0.1f * velocity[i];
        plain_ahead[i] -= 0.1f * (gradient[i] + beta * velocity[i]);
      }
      const MomentumFactors factors = momentum_factors(0.1, momentum, {{96}, {96}, {step * 96}});
      take_momentum_step(parameters, moment, gradient, factors);
      take_nesterov_step(ahead, other_moment, gradient, factors);
      ASSERT_EQ(parameters, plain) << "momentum " << momentum << ", step " << step;
      ASSERT_EQ(ahead, plain_ahead) << "momentum " << momentum << ", step " << step;
    }
  }
}

// AdamW, written out in the order of torch::optim's; bit for bit.
TEST(MassStep, FullMassIsPlainAdam) {
  Random random(2);
  const AdamSettings settings{0.01, 0.9, 0.95, 1e-8, 0.1};
  std::vector<float> plain = random_vector(random, kSize), m(kSize, 0.0f), v(kSize, 0.0f);
  std::vector<float> parameters = plain, first = m, second = v;
  for (int64_t step = 1; step <= 200; ++step) {
    const std::vector<float> gradient = random_vector(random, kSize);
    const double bias1 = 1 - std::pow(0.9, static_cast<double>(step));
    const double bias2 = 1 - std::pow(0.95, static_cast<double>(step));
    const auto rate = static_cast<float>(0.01 / bias1);
    const auto root = static_cast<float>(std::sqrt(bias2));
    for (size_t i = 0; i < kSize; ++i) {
      m[i] = 0.9f * m[i] + static_cast<float>(1 - 0.9) * gradient[i];
      v[i] = 0.95f * v[i] + static_cast<float>(1 - 0.95) * (gradient[i] * gradient[i]);
      plain[i] = static_cast<float>(1 - 0.01 * 0.1) * plain[i] -
                 rate * m[i] / (std::sqrt(v[i]) / root + 1e-8f);
    }
    take_adam_step(parameters, first, second, gradient, settings,
                   adam_factors(settings, {{24}, {24}, {(step - 1) * 24}}));
    ASSERT_EQ(parameters, plain) << "step " << step;
  }
}

// SGD with momentum and weight decay as torch::optim has it, written out; bit for bit over 200 full
// updates.
TEST(MassStep, FullMassIsPlainWeightDecay) {
  Random random(3);
  std::vector<float> plain = random_vector(random, kSize), velocity(kSize, 0.0f);
  std::vector<float> parameters = plain, moment(kSize, 0.0f);
  for (int64_t step = 0; step < 200; ++step) {
    std::vector<float> gradient = random_vector(random, kSize);
    for (size_t i = 0; i < kSize; ++i) {
      const float decayed = gradient[i] + 0.1f * plain[i];
      velocity[i] = 0.9f * velocity[i] + decayed;
      plain[i] -= 0.05f * velocity[i];
    }
    add_weight_decay(gradient, parameters, 0.1);
    take_momentum_step(parameters, moment, gradient,
                       momentum_factors(0.05, 0.9, {{24}, {24}, {step * 24}}));
    ASSERT_EQ(parameters, plain) << "step " << step;
  }
}

// Without a gradient, parameters shrink at the same speed whatever the mass of the updates.
TEST(MassStep, WeightDecayGoesByMass) {
  constexpr int64_t kFull = 8, kSteps = 900;
  for (const int64_t mass : {int64_t{1}, int64_t{3}, int64_t{8}}) {
    std::vector<float> parameter(1, 1.0f);
    for (int64_t done = 0; done < kFull * kSteps; done += mass) {  // a multiple of every mass
      std::vector<float> gradient(1, 0.0f);
      add_weight_decay(gradient, parameter, 0.1);
      take_plain_step(parameter, gradient, 0.01 * share_of_full({{mass}, {kFull}, {done}}));
    }
    EXPECT_NEAR(parameter[0], std::exp(-0.01 * 0.1 * kSteps), 1e-3) << mass;
  }
}

// However the mass of some full updates is divided, the factors add up to the same.
TEST(MassStep, FactorsDependOnTheMassAlone) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const int64_t full = 1 + random.below(64), all = full * (1 + random.below(5));
    double kept = 1, rate = 0, moment = 0, first = 0;
    for (int64_t done = 0; done < all;) {
      const int64_t mass = 1 + random.below(std::min(full, all - done));
      const UpdateMass of{{mass}, {full}, {done}};
      const MomentumFactors factors = momentum_factors(0.2, 0.9, of);
      const AdamFactors adam = adam_factors({}, of);
      kept *= factors.keep;
      rate += factors.rate;
      moment = factors.keep * moment + factors.take;
      first = adam.keep_first * first + adam.take_first;
      done += mass;
      // The correction makes a constant gradient's first moment the gradient itself.
      EXPECT_NEAR(first / adam.first_correction, 1, 1e-12) << seed;
    }
    const double steps = static_cast<double>(all) / static_cast<double>(full);
    EXPECT_NEAR(kept, std::pow(0.9, steps), 1e-12) << seed;
    EXPECT_NEAR(rate, 0.2 * steps, 1e-12) << seed;
    EXPECT_NEAR(moment, (1 - std::pow(0.9, steps)) / 0.1, 1e-10) << seed;
  }
}

// At a constant gradient, any masses, each method moves at the same speed in the end.
TEST(MassStep, ConstantGradientMovesByMass) {
  for (const int64_t mass : {int64_t{1}, int64_t{3}, int64_t{8}}) {
    std::vector<float> plain(1), nesterov(1), adam(1), a(1), b(1), c(1), d(1);
    const std::vector<float> gradient(1, 0.5f);
    constexpr int64_t kFull = 8, kSteps = 300;
    const auto run = [&](int64_t from, int64_t to) {
      for (int64_t done = from; done + mass <= to; done += mass) {
        const UpdateMass of{{mass}, {kFull}, {done}};
        const MomentumFactors factors = momentum_factors(0.01, 0.9, of);
        take_momentum_step(plain, a, gradient, factors);
        take_nesterov_step(nesterov, b, gradient, factors);
        take_adam_step(adam, c, d, gradient, {0.01}, adam_factors({0.01}, of));
      }
    };
    run(0, 3 * kFull * kSteps);  // a multiple of every mass
    const float before[] = {plain[0], nesterov[0], adam[0]};
    run(3 * kFull * kSteps, 6 * kFull * kSteps);
    const double updates = 3.0 * kSteps;
    EXPECT_NEAR(before[0] - plain[0], 0.05 * updates, 0.05) << mass;
    EXPECT_NEAR(before[1] - nesterov[0], 0.05 * updates, 0.05) << mass;
    EXPECT_NEAR(before[2] - adam[0], 0.01 * updates, 0.01) << mass;
  }
}

TEST(MassStep, LongGradientsAreClipped) {
  EXPECT_EQ(clip_factor(2, 0, 0), 1);
  EXPECT_EQ(clip_factor(2, 2, 0), 1);
  EXPECT_EQ(clip_factor(4, 1, 0), 0.25);
  EXPECT_EQ(clip_factor(2, 0, 0.5), 1);
  EXPECT_EQ(clip_factor(2, 2.5, 0.5), 1);
  EXPECT_EQ(clip_factor(2, 1.5, 0.5), 0.6);
  EXPECT_EQ(clip_factor(0, 1, kClipMargin), 1);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1, kClipMargin), 1);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1, kClipMargin), 0);
}

// Clipped updates of one full mass move no further than a clipped synchronous one.
TEST(MassStep, ClippingBoundsTheWayByMass) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const double limit = 0.1 + random.uniform();
    double way = 0;
    for (int64_t done = 0; done < 40;) {
      const int64_t mass = 1 + random.below(40 - done);
      const double norm = 10 * random.uniform();
      way += momentum_factors(0.3, 0, {{mass}, {40}, {done}}).rate * norm *
             clip_factor(norm, limit, 0);
      done += mass;
    }
    EXPECT_LE(way, 0.3 * limit * (1 + 1e-12)) << seed;
  }
}

}  // namespace
}  // namespace tenuto
