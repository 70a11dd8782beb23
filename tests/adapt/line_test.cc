// Plays and replays lines, and compares them with the price of the same plan and with a plain
// simulation.
#include "adapt/line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "adapt/cases.h"
#include "adapt/dispatch.h"
#include "adapt/quota.h"
#include "adapt/random_line.h"
#include "adapt/reorder.h"
#include "base/text.h"
#include "ir/check.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Line draw_line(Random& random) {
  const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
  return random_line(random, {2 + below(5), 1 + below(12), random.below(2) == 0});
}

// Quotas (warm-up forwards) that do not rise from stage to stage: by one of three rules, or random.
Quotas draw_quotas(Random& random, const Line& line) {
  switch (random.below(4)) {
    case 0:
      return ring_quotas_within(line, static_cast<int32_t>(random.below(2)));
    case 1:
      return even_quotas(line);
    case 2:
      return neighbour_quotas(line);
    default:
      break;
  }
  Quotas quotas;
  int32_t before = line.micros;
  for (size_t s = 0; s < line.legs.size(); ++s) {
    before = static_cast<int32_t>(random.below(before + 1));
    quotas.push_back(before);
  }
  return quotas;
}

Policy draw_ready(Random& random, const Line& line) {
  Policy policy{draw_quotas(random, line), {}};
  if (random.below(2) == 0) {
    for (const int32_t quota : policy.warm_up) {
      policy.most.push_back(std::max(1, quota + static_cast<int32_t>(random.below(3))));
    }
  }
  return policy;
}

Policy draw_any(Random& random, const Line& line) {
  Policy policy = draw_ready(random, line);
  policy.strict = random.below(2) == 0;
  policy.look_ahead = static_cast<int32_t>(random.below(3));
  policy.weights_before_forwards = random.below(2) == 0;
  return policy;
}

// A random order of one stage within its memory limit.
Sequence draw_sequence(Random& random, const Leg& leg, int32_t micros) {
  Sequence sequence;
  int32_t count[3] = {0, 0, 0};
  while (sequence.size() < 3 * at(micros)) {
    const auto kind = static_cast<OpKind>(random.below(3));
    const auto k = static_cast<size_t>(kind);
    if (count[k] == (k == 0 ? micros : count[k - 1])) continue;
    sequence.push_back(kind);
    if (kind == OpKind::Forward && !fits_memory(leg, sequence)) {
      sequence.pop_back();
      continue;
    }
    ++count[k];
  }
  return sequence;
}

// Expects every op once, each backward after its forward, each weight gradient after its input
// gradient, all within the memory limit.
void expect_right(const Line& line, const std::vector<Sequence>& sequences) {
  ASSERT_EQ(sequences.size(), line.legs.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    int32_t count[3] = {0, 0, 0};
    for (const OpKind kind : sequences[s]) {
      ++count[static_cast<size_t>(kind)];
      ASSERT_TRUE(count[0] >= count[1] && count[1] >= count[2]);
    }
    for (const int32_t of : count) ASSERT_EQ(of, line.micros);
    ASSERT_TRUE(fits_memory(line.legs[s], sequences[s])) << "stage " << s;
  }
}

std::string text(const Policy& policy) {
  std::string all = "warm-up";
  for (const int32_t quota : policy.warm_up) all += cat(" ", quota);
  if (!policy.most.empty()) all += ", most";
  for (const int32_t most : policy.most) all += cat(" ", most);
  return all;
}

TEST(Line, AReadyPlanIsPricedAsItIsPlayed) {
  int played_plans = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Case it = case_of(draw_line(random));
    const Line line = line_of(it);
    const Policy policy = draw_ready(random, line);
    const auto played = play(line, policy);
    if (!played) continue;
    const Plan plan = ready_plan(it, policy, played->sequences);
    const Status right = check(plan);
    ASSERT_TRUE(right.ok()) << "seed " << seed << ": " << right.error().message;
    const auto timeline = price(plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(timeline.ok()) << "seed " << seed << ": " << timeline.error().message;
    EXPECT_EQ(timeline.value().makespan.count(), played->makespan.count())
        << "seed " << seed << ", " << text(policy);
    ++played_plans;
  }
  EXPECT_GT(played_plans, 300);
}

TEST(Line, AListedPlanIsPricedAsItIsReplayed) {
  int standing = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Case it = case_of(draw_line(random));
    const Line line = line_of(it);
    std::vector<Sequence> sequences;
    if (random.below(4) == 0) {
      for (const Leg& leg : line.legs) {
        sequences.push_back(draw_sequence(random, leg, line.micros));
      }
    } else {
      auto played = play(line, draw_any(random, line));
      if (!played) continue;
      sequences = std::move(played->sequences);
    }
    const auto time = Replay(line).run(sequences);
    const auto followed = follow(line, sequences);
    ASSERT_EQ(time.has_value(), followed.has_value()) << "seed " << seed;
    const auto timeline = price(listed_plan(it, sequences), it.model, it.cluster, it.options);
    ASSERT_EQ(time.has_value(), timeline.ok()) << "seed " << seed;
    if (!time) {
      ++standing;
      continue;
    }
    EXPECT_EQ(*time, *followed) << "seed " << seed;
    EXPECT_EQ(*time, timeline.value().makespan) << "seed " << seed;
  }
  EXPECT_GT(standing, 5);
}

TEST(Line, PlaysLikeAPlainSimulation) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const Line line = draw_line(random);
    const Policy policy = draw_ready(random, line);
    const auto played = play(line, policy);
    const auto plain = dispatch(line, {policy.warm_up, policy.most});
    ASSERT_EQ(played.has_value(), plain.has_value()) << "seed " << seed << ", " << text(policy);
    if (!played) continue;
    EXPECT_EQ(played->makespan, plain->makespan) << "seed " << seed << ", " << text(policy);
    EXPECT_EQ(played->sequences, plain->sequences) << "seed " << seed << ", " << text(policy);
  }
}

TEST(Line, PlayedSequencesAreValidAndReplayNoSlower) {
  int played_lines = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Line line = draw_line(random);
    const Policy policy = draw_any(random, line);
    const auto played = play(line, policy);
    if (!played) continue;
    ++played_lines;
    expect_right(line, played->sequences);
    const auto time = Replay(line).run(played->sequences);
    ASSERT_TRUE(time.has_value()) << "seed " << seed;
    // A stage that waits for a message in transit may lose time, so the replay may be faster.
    EXPECT_LE(*time, played->makespan) << "seed " << seed;
    if (policy.is_ready()) {
      EXPECT_EQ(*time, played->makespan) << "seed " << seed;
    }
  }
  EXPECT_GT(played_lines, 1500);
}

TEST(Line, PlaysWithoutQuotasDoNotDeadlock) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Line line = draw_line(random);
    for (Leg& leg : line.legs)
      leg.memory.most = leg.memory.most == 0 ? 0 : 1000 + random.below(1500);
    const auto played = play(line, {Quotas(line.legs.size(), 0), {}});
    ASSERT_TRUE(played.has_value()) << "seed " << seed;
    expect_right(line, played->sequences);
  }
}

TEST(Line, MemoryForLessThanOneMicroBatchIsRefused) {
  Line line = equal_line(3, 4, from_milliseconds(1));
  limit_memory(line, 2);
  line.legs[1].memory.most = 1;
  EXPECT_FALSE(play(line, {Quotas(3, 0), {}}).has_value());
}

// A reordered step fits into the memory limits, takes the time of its replay, and is no slower than
// before.
TEST(Reorder, GivesAValidOrderThatIsNoSlower) {
  int faster = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Line line = draw_line(random);
    const auto played = play(line, {Quotas(line.legs.size(), 0), {}});
    ASSERT_TRUE(played.has_value());
    std::vector<Sequence> sequences = played->sequences;
    const auto time = Reorder(line).improve(sequences, {}, 60);
    ASSERT_TRUE(time.has_value());
    expect_right(line, sequences);
    EXPECT_EQ(*time, Replay(line).run(sequences)) << "seed " << seed;
    EXPECT_LE(*time, played->makespan) << "seed " << seed;
    faster += *time < played->makespan ? 1 : 0;
  }
  EXPECT_GT(faster, 100);
}

}  // namespace
}  // namespace tenuto
