// The store of a range: the bits of a trial's optimizer, however the model is cut and whoever has
// the state.
#include "parameter_server/mass_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/random.h"
#include "base/text.h"
#include "mass_store_steps.h"

namespace tenuto::servers {
namespace {

// The same for the step that the store is compared with.
TrialStep step_of(const MassStoreSettings& of, size_t size) {
  return {{of.optimizer, of.rate, of.momentum, of.clip, of.adam}, size};
}

// A head of nine words, the mass of the gradients before in the seventh, the checksum in the last.
constexpr size_t kHead = 72, kBefore = 48, kSum = 64;

std::vector<std::byte> with_mass_before(std::vector<std::byte> state, int64_t mass) {
  std::memcpy(state.data() + kBefore, &mass, sizeof(mass));
  const std::span<const std::byte> all(state);
  const uint64_t sum = crc32c(all.subspan(kHead), crc32c(all.first(kSum)));
  std::memcpy(state.data() + kSum, &sum, sizeof(sum));
  return state;
}

TEST(MassStore, HasTheBitsOfATrialsStep) {
  for (const TrialOptimizer optimizer : kAll) {
    for (const size_t size : {1, 5, 4096, 5001}) {
      Random random(size);
      std::vector<float> model = random_vector(random, size);
      const ElementRange range = range_of(0, static_cast<int64_t>(size));
      const auto store = store_of(settings_of(optimizer), range, model);
      TrialStep trial = step_of(settings_of(optimizer), size);
      EXPECT_EQ(numbers_in(store->parameters()), model);
      for (int i = 0; i < 6; ++i) {
        const Step step = random_step(random, size);
        std::vector<float> sum(size, 0.0f);
        for (const std::vector<float>& gradient : step.gradients) {
          for (size_t k = 0; k < size; ++k) sum[k] += gradient[k];
        }
        trial.take(model, sum, mass_of(step.update.update), kFull);
        step.apply_to(*store, range);
        ASSERT_EQ(numbers_in(store->parameters()), model) << to_text(optimizer) << ", " << size;
      }
    }
  }
}

// 10^8 + 1 is 10^8 in fp32, so the sum is 0 in this order, and 1 in another one.
TEST(MassStore, AddsInTheOrderOfTheWorks) {
  const std::vector<float> large = {1e8f}, one = {1}, minus = {-1e8f};
  const auto moved = [&](const std::vector<std::vector<float>>& gradients) {
    MassStoreSettings settings = settings_of(TrialOptimizer::Sgd);
    settings.rate = 8;
    const auto store = store_of(settings, range_of(0, 1), {0});
    Step step;
    for (const std::vector<float>& gradient : gradients) step.add(gradient, 1);
    step.apply_to(*store, range_of(0, 1));
    return store->elements()[0];
  };
  EXPECT_EQ(moved({large, one, minus}), 0);
  EXPECT_EQ(moved({large, minus, one}), -1);
}

// Whoever is filled in the middle goes on with the same bits, and has the same state in the end.
TEST(MassStore, AStateGoesOnWithTheSameBits) {
  constexpr size_t kSize = 4200;
  constexpr ElementRange kRange{{2}, 0, kSize};
  for (const TrialOptimizer optimizer : kAll) {
    Random random(7);
    const MassStoreSettings settings = settings_of(optimizer);
    const auto shard = store_of(settings, kRange, random_vector(random, kSize));
    std::unique_ptr<MassStore> standby;
    for (int i = 0; i < 8; ++i) {
      if (i % 3 == 0) {
        standby = store_of(settings, kRange, random_vector(random, kSize));
        const Status loaded = standby->load(shard->save());
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        EXPECT_EQ(numbers_in(standby->parameters()), numbers_in(shard->parameters()));
      }
      const Step step = random_step(random, kSize);
      step.apply_to(*shard, kRange);
      step.apply_to(*standby, kRange);
      ASSERT_EQ(*standby->save(), *shard->save()) << to_text(optimizer) << ", update " << i;
    }
  }
}

// Ranges that are cut anywhere have the bits of the whole model together.
TEST(MassStore, RangesTogetherAreTheWhole) {
  constexpr int64_t kSize = 9000;
  for (const TrialOptimizer optimizer : kAll) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Random random(seed);
      const std::vector<float> model = random_vector(random, kSize);
      const int64_t cut = 1 + random.below(kSize - 1);
      const ElementRange all = range_of(0, kSize);
      const ElementRange left = range_of(0, cut), right = range_of(cut, kSize);
      const MassStoreSettings settings = settings_of(optimizer);
      const auto whole = store_of(settings, all, model);
      const auto one = store_of(settings, left, model), other = store_of(settings, right, model);
      for (int i = 0; i < 4; ++i) {
        const Step step = random_step(random, kSize);
        step.apply_to(*whole, all);
        step.apply_to(*one, left);
        step.apply_to(*other, right);
      }
      std::vector<float> joined = numbers_in(one->parameters());
      const std::vector<float> rest = numbers_in(other->parameters());
      joined.insert(joined.end(), rest.begin(), rest.end());
      ASSERT_EQ(joined, numbers_in(whole->parameters())) << to_text(optimizer) << ", cut " << cut;
    }
  }
}

// Elements at which 0 to `size` is cut into ranges, both ends included.
std::vector<int64_t> random_cuts(Random& random, int64_t size) {
  std::vector<int64_t> cuts = {0, size};
  for (int64_t left = random.below(6); left > 0; --left) {
    cuts.push_back(1 + random.below(size - 1));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

std::vector<ElementRange> ranges_between(const std::vector<int64_t>& cuts) {
  std::vector<ElementRange> ranges;
  for (size_t i = 1; i < cuts.size(); ++i) ranges.push_back(range_of(cuts[i - 1], cuts[i]));
  return ranges;
}

// However a model was cut, its states give those of any other ranges, and these go on from them.
TEST(MassStore, StatesOfOtherRangesAreJoined) {
  constexpr int64_t kSize = 3000;
  for (const TrialOptimizer optimizer : kAll) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Random random(seed);
      const MassStoreSettings settings = settings_of(optimizer);
      const std::vector<float> model = random_vector(random, kSize);
      std::vector<Step> steps;
      for (int i = 0; i < 3; ++i) steps.push_back(random_step(random, kSize));
      const auto stepped = [&](const ElementRange& range) {
        auto store = store_of(settings, range, model);
        for (const Step& step : steps) step.apply_to(*store, range);
        return store;
      };
      std::vector<Payload> states;
      for (const ElementRange& range : ranges_between(random_cuts(random, kSize))) {
        states.push_back(stepped(range)->save());
      }
      std::reverse(states.begin(), states.end());  // their order does not matter
      const auto whole = join_states(states, range_of(0, kSize));
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      ASSERT_EQ(*whole.value(), *stepped(range_of(0, kSize))->save()) << to_text(optimizer);
      for (const ElementRange& range : ranges_between(random_cuts(random, kSize))) {
        const auto cut = join_states(std::vector<Payload>{whole.value()}, range);
        ASSERT_TRUE(cut.ok()) << cut.error().message;
        const auto same = stepped(range);
        ASSERT_EQ(*cut.value(), *same->save()) << to_text(optimizer);
        const auto parameters = parameters_in(cut.value(), range);
        ASSERT_TRUE(parameters.ok()) << parameters.error().message;
        EXPECT_EQ(parameters.value(), numbers_in(same->parameters()));
        EXPECT_TRUE(store_of(settings, range, model)->load(cut.value()).ok());
      }
    }
  }
}

TEST(MassStore, StatesThatDoNotFitTogetherAreRefused) {
  const std::vector<float> model(20, 1.0f);
  const MassStoreSettings settings = settings_of(TrialOptimizer::Momentum);
  const auto state = [&](int64_t begin, int64_t end) {
    return store_of(settings, range_of(begin, end), model)->save();
  };
  const auto refusal = [](const std::vector<Payload>& states) {
    const auto joined = join_states(states, range_of(2, 18));
    if (joined.ok()) return std::string();
    EXPECT_EQ(joined.error().code, Code::Corrupt);
    return joined.error().message;
  };
  const std::string of = "states for elements 2 to 18 of stage 0: ";
  EXPECT_EQ(refusal({state(0, 5), state(5, 20)}), "");
  EXPECT_EQ(refusal({}), of + "elements 2 to 18 are in none");
  EXPECT_EQ(refusal({state(0, 5), state(7, 20)}), of + "elements 5 to 7 are in none");
  EXPECT_EQ(refusal({state(0, 5), state(5, 15)}), of + "elements 15 to 18 are in none");
  EXPECT_EQ(refusal({state(0, 6), state(5, 20)}), of + "elements 5 to 6 are in two");
  EXPECT_EQ(refusal({state(0, 20), state(18, 20)}),
            of + "found one of elements 18 to 20 of stage 0");
  const std::string others =
      of + "expected one optimizer, full mass and mass before in all, found others";
  MassStoreSettings other = settings;
  other.full.micros += 1;
  EXPECT_EQ(refusal({state(0, 5), store_of(other, range_of(5, 20), model)->save()}), others);
  other = settings_of(TrialOptimizer::Nesterov);
  EXPECT_EQ(refusal({state(0, 5), store_of(other, range_of(5, 20), model)->save()}), others);
  const auto later =
      std::make_shared<std::vector<std::byte>>(with_mass_before(*state(5, 20), kMostMassBefore));
  EXPECT_EQ(refusal({state(0, 5), later}), others);
  EXPECT_FALSE(parameters_in(state(0, 5), range_of(0, 6)).ok());
}

// Whatever byte of a state is changed or missing, it is refused.
TEST(MassStore, DamagedStatesAreNotJoined) {
  Random random(17);
  const ElementRange range = range_of(0, 5);
  const auto store = store_of(settings_of(TrialOptimizer::AdamW), range, random_vector(random, 5));
  const std::vector<std::byte> state = *store->save();
  const auto joins = [&](const std::vector<std::byte>& bytes) {
    const Payload payload = std::make_shared<const std::vector<std::byte>>(bytes);
    return join_states(std::vector<Payload>{payload}, range).ok();
  };
  EXPECT_TRUE(joins(state));
  EXPECT_FALSE(join_states(std::vector<Payload>{nullptr}, range).ok());
  EXPECT_FALSE(joins(with_mass_before(state, -1)));
  EXPECT_FALSE(joins(with_mass_before(state, kMostMassBefore + 1)));
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_FALSE(joins({state.begin(), state.begin() + static_cast<ptrdiff_t>(i)})) << i;
    std::vector<std::byte> changed = state;
    changed[i] ^= static_cast<std::byte>(1 + random.below(255));
    EXPECT_FALSE(joins(changed)) << i;
  }
}

// The store of a whole model clips as a trial does.
TEST(MassStore, AWholeModelIsClipped) {
  constexpr size_t kSize = 5000;
  for (const TrialOptimizer optimizer : kAll) {
    Random random(9);
    std::vector<float> model = random_vector(random, kSize), free = model;
    MassStoreSettings settings = settings_of(optimizer);
    TrialStep unclipped = step_of(settings, kSize);
    settings.clip = 2;
    settings.whole_model = true;
    TrialStep trial = step_of(settings, kSize);
    const auto store = store_of(settings, range_of(0, kSize), model);
    for (int i = 0; i < 5; ++i) {
      Step step;
      const std::vector<float> gradient = random_vector(random, kSize);  // longer than 20
      const int64_t mass = 1 + random.below(3);
      step.add(gradient, mass);
      step.apply_to(*store, range_of(0, kSize));
      trial.take(model, gradient, {mass}, kFull);
      unclipped.take(free, gradient, {mass}, kFull);
      ASSERT_EQ(numbers_in(store->parameters()), model) << to_text(optimizer);
    }
    EXPECT_NE(model, free) << to_text(optimizer);
  }
}

TEST(MassStore, CorruptStatesAreRefused) {
  const ElementRange range = range_of(0, 5);
  for (const TrialOptimizer optimizer : kAll) {
    Random random(13);
    const auto shard = store_of(settings_of(optimizer), range, random_vector(random, 5));
    random_step(random, 5).apply_to(*shard, range);
    const std::vector<std::byte> state = *shard->save();
    const auto standby = store_of(settings_of(optimizer), range, random_vector(random, 5));
    const std::vector<std::byte> before = *standby->save();
    const auto refuses = [&](const std::vector<std::byte>& bytes, const std::string& what) {
      const Status loaded = standby->load(std::make_shared<std::vector<std::byte>>(bytes));
      ASSERT_FALSE(loaded.ok()) << what;
      EXPECT_EQ(loaded.error().code, Code::Corrupt) << what;
      EXPECT_EQ(*standby->save(), before) << what;
    };
    EXPECT_FALSE(standby->load(nullptr).ok());
    for (size_t i = 0; i < state.size(); ++i) {
      refuses({state.begin(), state.begin() + static_cast<ptrdiff_t>(i)}, cat("cut at ", i));
      std::vector<std::byte> changed = state;
      changed[i] ^= static_cast<std::byte>(1 + random.below(255));
      refuses(changed, cat("byte ", i, " changed"));
    }
    std::vector<std::byte> longer = state;
    longer.push_back({});
    refuses(longer, "one byte more");
    refuses(with_mass_before(state, kMostMassBefore + 1), "too much mass");
    refuses(with_mass_before(state, -1), "mass below 0");
    const auto most = with_mass_before(state, kMostMassBefore);
    EXPECT_TRUE(standby->load(std::make_shared<std::vector<std::byte>>(most)).ok());
    EXPECT_TRUE(standby->load(std::make_shared<std::vector<std::byte>>(state)).ok());
    EXPECT_EQ(*standby->save(), state);
  }
}

TEST(MassStore, StatesOfAnotherRangeOrOptimizerAreRefused) {
  const std::vector<float> model(10, 1.0f);
  const ElementRange range = range_of(0, 5);
  const MassStoreSettings settings = settings_of(TrialOptimizer::Momentum);
  const auto store = store_of(settings, range, model);
  const auto sentence = [&](const MassStoreSettings& other, const ElementRange& of) {
    const Status loaded = store->load(store_of(other, of, model)->save());
    return loaded.ok() ? std::string() : loaded.error().message;
  };
  EXPECT_EQ(sentence(settings, range), "");
  const std::string refusal =
      "servers: a state for elements 0 to 5 of stage 0: expected one of this range, optimizer "
      "and full mass, found another one: send it again";
  EXPECT_EQ(sentence(settings, range_of(5, 10)), refusal);
  EXPECT_EQ(sentence(settings, {{1}, 0, 5}), refusal);
  EXPECT_EQ(sentence(settings_of(TrialOptimizer::Nesterov), range), refusal);
  const auto changed = [&](auto change) {
    MassStoreSettings other = settings;
    change(other);
    return sentence(other, range);
  };
  EXPECT_EQ(changed([](MassStoreSettings& of) { of.full.micros += 1; }), refusal);
  EXPECT_EQ(changed([](MassStoreSettings& of) { of.rate = 0.1; }), "") << "a run may change it";
  EXPECT_EQ(changed([](MassStoreSettings& of) { of.schedule.steps = 3; }), "");
  EXPECT_EQ(sentence(settings_of(TrialOptimizer::Sgd), range),
            "servers: a state for elements 0 to 5 of stage 0: expected 112 bytes, found 92: send "
            "it again");
}

TEST(MassStore, Refusals) {
  const auto sentence = [](auto change, size_t count = 3) {
    MassStoreSettings settings = settings_of(TrialOptimizer::AdamW);
    ElementRange range = range_of(4, 7);
    change(settings, range);
    const auto made = MassStore::make(settings, range, std::vector<float>(count));
    return made.ok() ? std::string() : made.error().message;
  };
  const auto untouched = [](MassStoreSettings&, ElementRange&) {};
  EXPECT_EQ(sentence(untouched), "");
  EXPECT_EQ(sentence(untouched, 2),
            "servers: expected a parameter for each of elements 4 to 7 of stage 0, found 2");
  EXPECT_EQ(sentence([](auto&, ElementRange& range) { range.end = 4; }, 0),
            "servers: expected a parameter for each of elements 4 to 4 of stage 0, found 0");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.rate = 0; }),
            "servers: expected a rate above 0 and a clip of 0 or more, found 0 and 0");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.momentum = 1; }),
            "servers: expected a momentum and betas from 0 to below 1, found 1, 0.9 and 0.95");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.adam.epsilon = 0; }),
            "servers: expected an epsilon above 0 and a weight decay of 0 or more, found 0 and "
            "0.1");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.full = {}; }),
            "servers: expected a full mass above 0, found 0");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.decayed = -1; }),
            "servers: expected a clip margin, a weight decay and a number of decayed elements of 0 "
            "or more, found 0, 0 and -1");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.schedule.minimum_rate = 2; }),
            "servers: expected a warm-up and a run of 0 steps or more and a minimum rate from 0 to "
            "1, found 0, 0 and 2");
  EXPECT_EQ(sentence([](MassStoreSettings& of, auto&) { of.clip = 1; }),
            "servers: clipping needs the norm over the whole model, and elements 4 to 7 of stage "
            "0 are a part of it: set clip to 0");
}

}  // namespace
}  // namespace tenuto::servers
