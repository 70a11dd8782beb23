// Gradient codes, the score of Zeno++, and what trials do with them.
#include "sync/trial_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "base/text.h"
#include "ir/golden.h"
#include "sync/gradient_code.h"
#include "sync/gradient_score.h"
#include "sync/simulator.h"
#include "sync/trial_step.h"

namespace tenuto {
namespace {

// Replicas in random order.
std::vector<ReplicaId> shuffled(Random& random, int32_t replicas) {
  std::vector<ReplicaId> all;
  for (int32_t i = 0; i < replicas; ++i) all.push_back({i});
  for (size_t i = all.size(); i > 1; --i) {
    std::swap(all[i - 1], all[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  return all;
}

// How often each part is in the weighted sum of these replicas' offers.
std::vector<double> parts_in(const GradientCode& code, int32_t spare,
                             const std::vector<ReplicaId>& replicas,
                             const std::vector<double>& factors, int32_t all) {
  std::vector<double> sum(static_cast<size_t>(all), 0.0);
  for (size_t i = 0; i < replicas.size(); ++i) {
    for (int32_t index = 0; index <= spare; ++index) {
      sum[static_cast<size_t>(code.part(replicas[i], index))] +=
          factors[i] * code.weights(replicas[i])[static_cast<size_t>(index)];
    }
  }
  return sum;
}

// Whoever is missing, each part is in the sum once.
TEST(GradientCode, AnyReplicasButTheSpareOnesAreEnough) {
  Random random(1);
  for (int32_t replicas = 1; replicas <= 10; ++replicas) {
    for (int32_t spare = 0; spare < replicas; ++spare) {
      SCOPED_TRACE(cat(replicas, " replicas, ", spare, " spare"));
      const GradientCode code(replicas, spare, random.next());
      for (int round = 0; round < 10; ++round) {
        std::vector<ReplicaId> here = shuffled(random, replicas);
        here.resize(static_cast<size_t>(replicas - spare));
        const std::vector<double> factors = code.decode(here);
        ASSERT_EQ(factors.size(), here.size());
        double most = 1;
        for (const double factor : factors) most = std::max(most, std::abs(factor));
        for (const double part : parts_in(code, spare, here, factors, replicas)) {
          EXPECT_NEAR(part, 1, 1e-6 * most);
        }
      }
    }
  }
}

TEST(GradientCode, PartsAndWeights) {
  const GradientCode code(5, 2, 3);
  EXPECT_EQ(code.part({1}, 0), 1);
  EXPECT_EQ(code.part({4}, 2), 1);  // in a circle
  for (int32_t i = 0; i < 5; ++i) {
    double most = 0;
    ASSERT_EQ(code.weights({i}).size(), 3u);
    for (const double weight : code.weights({i})) most = std::max(most, std::abs(weight));
    EXPECT_EQ(most, 1);
  }
  // Nothing is spared: the offers are the parts. All but one are spared: any offer is the sum.
  EXPECT_EQ(GradientCode(3, 0, 1).decode(std::vector<ReplicaId>{{2}, {0}, {1}}),
            (std::vector<double>{1, 1, 1}));
  const GradientCode alone(3, 2, 1);
  for (int32_t i = 0; i < 3; ++i) {
    const std::vector<double> factors = alone.decode(std::vector<ReplicaId>{{i}});
    for (const double weight : alone.weights({i})) EXPECT_NEAR(factors[0] * weight, 1, 1e-9);
  }
  // The offers of more replicas than are needed are not used.
  EXPECT_EQ(code.decode(std::vector<ReplicaId>{{0}, {1}, {2}, {3}, {4}})[3], 0);
}

// By hand: the reference (3, 4) has length 5, so that a gradient in its direction scores
// 0.1 x 25 - 0.001 x 25 = 2.475, the opposite one -2.525, and one across it -0.025.
TEST(GradientScore, ByHand) {
  ScoreSetting setting;
  GradientScore score(setting);
  score.renew({3, 4});
  std::vector<float> along = {6, 8}, against = {-6, -8}, across = {4, -3}, none = {0, 0};
  EXPECT_TRUE(score.accept(along));
  EXPECT_EQ(along, (std::vector<float>{3, 4}));
  EXPECT_FALSE(score.accept(against));
  EXPECT_FALSE(score.accept(across));
  EXPECT_FALSE(score.accept(none));
  EXPECT_EQ(none, (std::vector<float>{0, 0}));
  std::vector<float> broken = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(score.accept(broken));
  EXPECT_EQ(broken[0], 1);
  // The loss may rise by 0.1 x 0.3 = 0.03, which is enough for the one across, and no other.
  setting.epsilon = 0.3;
  GradientScore lenient(setting);
  lenient.renew({3, 4});
  EXPECT_TRUE(lenient.accept(across));
  EXPECT_FALSE(lenient.accept(against));
}

MethodSetting setting_of(MethodKind kind, int32_t count, int32_t replicas) {
  MethodSetting setting;
  setting.kind = kind;
  setting.count = count;
  setting.replicas = replicas;
  setting.batch = 16;
  setting.seed = 5;
  return setting;
}

Offer offer_of(int32_t replica, int64_t iteration, int64_t version, int64_t micros = 16) {
  return {{replica}, {iteration}, {version}, {micros}};
}

// Replicas whose iterations have other numbers mean the same samples, those of the version.
TEST(CodedMethod, AnyOffersOfAVersionAddUpToAllParts) {
  const TrialModel model(2, 4);
  const auto method = make_method(setting_of(MethodKind::Coded, 2, 4), model);
  const std::vector<float> at = model.initial();
  std::vector<double> expected(at.size(), 0.0);
  for (int32_t part = 0; part < 4; ++part) {
    const std::vector<float> sum = model.gradient(at, part, 7, 16).sum;
    for (size_t i = 0; i < sum.size(); ++i) expected[i] += double{sum[i]};
  }
  double length = 0;
  for (const double value : expected) length += value * value;
  for (int32_t first = 0; first < 4; ++first) {
    for (int32_t second = first + 1; second < 4; ++second) {
      SCOPED_TRACE(cat("replicas ", first, " and ", second));
      Update update;
      update.version = {7};
      update.members = {offer_of(first, 7, 7), offer_of(second, 9, 7)};
      const OfferFactors factors = method->factors(update);
      EXPECT_EQ(factors.mass, Mass{64});
      ASSERT_EQ(factors.factors.size(), 2u);
      std::vector<double> rest = expected;
      for (size_t member = 0; member < 2; ++member) {
        const std::vector<float> sum = method->gradient(at, update.members[member]).sum;
        for (size_t i = 0; i < sum.size(); ++i) {
          rest[i] -= double{factors.factors[member]} * double{sum[i]};
        }
      }
      double wrong = 0;
      for (const double value : rest) wrong += value * value;
      EXPECT_LT(std::sqrt(wrong), 0.01 * std::sqrt(length));
    }
  }
}

// What each of three replicas does when one is spared and replica 2 is slow: all compute twice as
// long, and an offer of an old version is of no use.
TEST(CodedMethod, Golden) {
  const TrialModel model(0, 3);
  const auto method = make_method(setting_of(MethodKind::Coded, 2, 3), model);
  const IterationTimes times = method->times([](int32_t replica, int64_t, Duration) {
    return IterationTime{from_milliseconds(replica == 2 ? 220 : 80), from_milliseconds(40)};
  });
  SyncSimulator* running = nullptr;
  std::string text;
  const auto note = [&](const std::string& what) {
    text += cat(to_milliseconds(running->now()), " ms: ", what, "\n");
  };
  SyncHooks hooks;
  hooks.begun = [&](const Release& release, const IterationTime& time) {
    note(cat("replica ", release.offer.replica, " begins iteration ", release.offer.iteration.value,
             " on version ", release.offer.version.value, ", ", to_milliseconds(time.compute),
             " ms and ", to_milliseconds(time.transfer), " ms"));
  };
  hooks.refuses = [&](const Offer& offer) {
    const bool refused = !method->accept(offer, running->rule().version(), {}, {});
    if (refused)
      note(cat("iteration ", offer.iteration.value, " of replica ", offer.replica, " is refused"));
    return refused;
  };
  hooks.applied = [&](const Update& update) { note(to_text(update)); };
  const SyncMode mode = sync_mode_from_text("x:2").value();
  auto made = SyncSimulator::make({{mode, 3, 16, {}, {}}, times, {}}, hooks);
  ASSERT_TRUE(made.ok()) << made.error().message;
  SyncSimulator simulator = std::move(made).value();
  running = &simulator;
  while (simulator.next_at() && *simulator.next_at() <= from_milliseconds(600)) simulator.step();
  expect_golden("sync/golden/gradient_coding.txt", text);
}

// A gradient that points back is refused, also after another reference; others get its length.
TEST(ScoredMethod, RefusesWhatPointsBack) {
  const TrialModel model(3, 4);
  const auto method = make_method(setting_of(MethodKind::Scored, 0, 4), model);
  const std::vector<float> at = model.initial();
  double length = 0;
  int taken = 0;
  for (int round = 0; round < 9; ++round) {
    const Offer offer = offer_of(round % 4, round, 0, 256);
    std::vector<float> gradient = method->gradient(at, offer).sum;
    std::vector<float> back = gradient, longer = gradient;
    for (float& value : back) value = -value;
    for (float& value : longer) value *= 10;
    EXPECT_TRUE(method->accept(offer, {}, at, gradient));
    EXPECT_FALSE(method->accept(offer, {}, at, back));
    taken += method->accept(offer, {}, at, longer);
    // Three arrivals a round: the reference changes at the 1st, the 11th and the 21st.
    if (round == 0) length = std::sqrt(squared_norm(gradient));
    if (round < 3) {
      EXPECT_NEAR(std::sqrt(squared_norm(longer)), length, 1e-3 * length);
    }
  }
  EXPECT_EQ(taken, 9);
}

// Old gradients are not refused for their age.
TEST(ScoredMethod, DoesNotAskForTheVersion) {
  const TrialModel model(3, 4);
  const auto method = make_method(setting_of(MethodKind::Scored, 0, 4), model);
  const std::vector<float> at = model.initial();
  const Offer offer = offer_of(1, 0, 0, 256);
  std::vector<float> gradient = method->gradient(at, offer).sum;
  EXPECT_TRUE(method->accept(offer, {1000}, at, gradient));
}

TEST(PlainMethod, TakesAndAddsAllOffers) {
  const TrialModel model(4, 3);
  const auto method = make_method(setting_of(MethodKind::Plain, 0, 3), model);
  const std::vector<float> at = model.initial();
  const Offer offer = offer_of(2, 5, 1, 8);
  std::vector<float> gradient = method->gradient(at, offer).sum;
  EXPECT_EQ(gradient, model.gradient(at, 2, 5, 8).sum);
  EXPECT_TRUE(method->accept(offer, {9}, at, gradient));
  EXPECT_EQ(gradient, model.gradient(at, 2, 5, 8).sum);
  Update update;
  update.members = {offer_of(0, 5, 1, 16), offer};
  const OfferFactors factors = method->factors(update);
  EXPECT_EQ(factors.factors, (std::vector<float>{1, 1}));
  EXPECT_EQ(factors.mass, Mass{24});
}

// The server's samples are its own: other ones in each draw, and in no shard.
TEST(TrialModel, TheServerHasItsOwnSamples) {
  const TrialModel model(1, 4);
  const std::vector<float> at = model.initial();
  EXPECT_EQ(model.server_gradient(at, 3, 16).sum, model.server_gradient(at, 3, 16).sum);
  EXPECT_NE(model.server_gradient(at, 3, 16).sum, model.server_gradient(at, 4, 16).sum);
  EXPECT_NE(model.server_gradient(at, 3, 16).sum, model.gradient(at, 0, 3, 16).sum);
}

}  // namespace
}  // namespace tenuto
