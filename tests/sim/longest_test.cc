// Figures from their whole ranges: a price equals that of a reference with 128-bit times, or it is
// refused because the step is too long to be counted. It never overflows.
#include "sim/longest.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/longest_time.h"
#include "base/random.h"
#include "base/text.h"
#include "sim/bound.h"
#include "sim/cases.h"

namespace tenuto {
namespace {

__extension__ using Wide = __int128;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Computes when the last op of a listed plan with offloaded messages ends, in nanoseconds: goes
// through the lists until nothing changes. A link carries one message at a time.
class Reference {
 public:
  Reference(const Plan& plan, const Model& model, const Cluster& cluster)
      : plan_(plan), model_(model), cluster_(cluster), sizes_(sizes_of(model, plan.stages)) {
    const auto& lists = plan.schedule.lists;
    next_.assign(lists.size(), 0);
    free_at_.assign(lists.size(), 0);
    const size_t cells = plan.stages.size() * at(plan.schedule.micro_count);
    for (auto& of : here_) of.assign(cells, kNever);
  }

  Wide makespan() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < next_.size(); ++w) moved = go(w) || moved;
    }
    return *std::max_element(free_at_.begin(), free_at_.end());
  }

 private:
  static constexpr Wide kNever = -1;

  size_t cell(int32_t stage, MicroId micro) const {
    return at(stage) * at(plan_.schedule.micro_count) + at(micro.value);
  }

  bool go(size_t worker) {
    const auto& list = plan_.schedule.lists[worker];
    bool moved = false;
    for (; next_[worker] < list.size(); ++next_[worker], moved = true) {
      const Op& op = list[next_[worker]];
      const int32_t s = op.stage.value;
      if (op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput) {
        const bool forward = op.kind == OpKind::Forward;
        const bool first = forward ? s == 0 : at(s) + 1 == plan_.stages.size();
        const Wide input = first ? 0 : here_[forward ? 0 : 1][cell(s, op.micro)];
        if (input == kNever) return moved;
        compute(worker, op, input);
        send(worker, op, forward ? s + 1 : s - 1);
      } else if (op.kind == OpKind::BackwardWeight) {
        compute(worker, op, 0);
      }
    }
    return moved;
  }

  void compute(size_t worker, const Op& op, Wide input) {
    const StageCost cost = stage_cost(model_, plan_.stages[at(op.stage.value)]);
    const bool split = plan_.split_backward;
    Wide time = cost.forward.count();
    if (op.kind == OpKind::BackwardInput) {
      time = cost.backward_input.count() + (split ? 0 : Wide{cost.backward_weight.count()});
    }
    if (op.kind == OpKind::BackwardWeight) time = split ? Wide{cost.backward_weight.count()} : 0;
    free_at_[worker] = std::max(free_at_[worker], input) + time;
  }

  void send(size_t worker, const Op& op, int32_t to) {
    if (to < 0 || at(to) == plan_.stages.size()) return;
    const bool forward = op.kind == OpKind::Forward;
    const WorkerId self{static_cast<int32_t>(worker)}, peer = plan_.stages[at(to)].holders[0];
    const Link link = cluster_.link(self, peer);
    const auto kind = forward ? ValueKind::Activation : ValueKind::Gradient;
    const auto bytes =
        static_cast<double>(sizes_.of[at(op.stage.value)][static_cast<size_t>(kind)].count);
    const double busy =
        link.bytes_per_second > 0 ? std::ceil(bytes / link.bytes_per_second * 1e9) : 0;
    Wide& wire = wire_free_at_[{worker, forward}];
    wire = std::max(wire, free_at_[worker]) + static_cast<Wide>(std::min(busy, 1e30));
    here_[forward ? 0 : 1][cell(to, op.micro)] = wire + link.latency.count();
  }

  const Plan& plan_;
  const Model& model_;
  const Cluster& cluster_;
  const Sizes sizes_;
  std::vector<size_t> next_;
  std::vector<Wide> free_at_;
  std::vector<Wide> here_[2];  // activations and gradients, by stage that needs them
  std::map<std::pair<size_t, bool>, Wide> wire_free_at_;
};

// From `least` to `most`, log-uniform; sometimes 0, sometimes `most`.
double drawn(Random& random, double least, double most) {
  const auto kind = random.below(10);
  if (kind == 0) return 0;
  if (kind == 1) return most;
  return std::exp(std::log(least) + random.uniform() * (std::log(most) - std::log(least)));
}

TEST(Longest, PricesAreTrueOrRefused) {
  Random random(11);
  int counted = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto stages = static_cast<int32_t>(1 + random.below(4));
    const auto micros = static_cast<int32_t>(drawn(random, 1, 30) + 1);
    const char* orders[] = {"gpipe", "1f1b", "zb-h1"};
    const Plan plan = plan_of(shape_of(stages, 1, micros, orders[random.below(3)]));
    const Bytes message{static_cast<int64_t>(drawn(random, 64, 1e12))};
    // Includes values beyond what a key or a flag accepts.
    const Model model = equal_model(stages, drawn(random, 1e-6, 1e14), drawn(random, 1e-6, 1e14),
                                    drawn(random, 1e-6, 1e14), message);
    const Cluster cluster = uniform_cluster(
        stages, {from_milliseconds(drawn(random, 1e-6, 1e14)), drawn(random, 1e-290, 1e15)});
    PriceOptions options;
    options.update = false;
    const Wide truth = Reference(plan, model, cluster).makespan();
    const auto found = price(plan, model, cluster, options);
    if (truth >= kLongestTime.count()) {
      ASSERT_FALSE(found.ok()) << i;
      EXPECT_EQ(found.error().code, Code::Invalid);
      EXPECT_NE(found.error().message.find("longer than 73 years"), std::string::npos)
          << found.error().message;
      ++refused;
      continue;
    }
    ASSERT_TRUE(found.ok()) << i << ": " << found.error().message;
    ++counted;
    EXPECT_TRUE(found.value().makespan.count() == truth) << i;
    EXPECT_LE(found.value().lower_bound, found.value().makespan) << i;
    EXPECT_GE(found.value().lower_bound.count(), 0) << i;
    EXPECT_GE(found.value().bubble_fraction, -1e-9) << i;
    EXPECT_LE(found.value().bubble_fraction, 1) << i;
  }
  EXPECT_GT(counted, 500);
  EXPECT_GT(refused, 500);
}

// With the value that the error suggests the step fits.
TEST(Longest, TheSuggestedValueFits) {
  const Plan plan = plan_of(shape_of(4, 1, 3000, "1f1b"));
  const Cluster cluster = uniform_cluster(4, {});
  const auto priced = [&](double milliseconds) {
    return price(plan, equal_model(4, milliseconds, 1, 1), cluster);
  };
  const auto refused = priced(1e11);
  ASSERT_FALSE(refused.ok());
  const std::string text = refused.error().message;
  EXPECT_EQ(text.find("a step of this plan would last longer than 73 years"), 0u) << text;
  EXPECT_NE(text.find("forward_ms of stage 0 is 1e+11"), std::string::npos) << text;
  const double fits = std::stod(text.substr(text.find("with ") + 5));
  EXPECT_GT(fits, 1e6);
  EXPECT_TRUE(priced(fits).ok()) << fits;
}

// Two op times make the step too long. The error suggests a value for the larger one that fits
// beside the other; if the other one alone is too long, it suggests a divisor for both.
TEST(Longest, TheSuggestedValueFitsBesideOtherTimes) {
  const Plan plan = plan_of(shape_of(4, 1, 3000, "1f1b"));
  const Cluster cluster = uniform_cluster(4, {});
  const auto priced = [&](double forward, double backward) {
    return price(plan, equal_model(4, forward, backward, 1), cluster);
  };
  const auto after = [](const Result<Timeline>& refused, const char* words) {
    const std::string& text = refused.error().message;
    const size_t at = text.find(words);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::stod(text.substr(at + std::string(words).size()));
  };
  const auto one = priced(8e8, 1.5e8);
  ASSERT_FALSE(one.ok());
  const double fits = after(one, "; with ");
  EXPECT_LT(fits, 1e8);
  EXPECT_TRUE(priced(fits, 1.5e8).ok()) << one.error().message;
  const auto both = priced(1e11, 9e10);
  ASSERT_FALSE(both.ok());
  const double divisor = after(both, "with all times ");
  EXPECT_TRUE(priced(1e11 / divisor, 9e10 / divisor).ok()) << both.error().message;
}

TEST(Longest, TimesSaturateAtTheLongest) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double huge : {1e300, 1e13}) {
    EXPECT_EQ(from_milliseconds(huge), kLongestTime);
    EXPECT_EQ(from_milliseconds(-huge), -kLongestTime);
    EXPECT_EQ(transfer_time({1'000'000'000'000}, 1 / huge), kLongestTime);
    EXPECT_EQ(at_speed(Duration(1'000'000'000'000'000), 1 / huge), kLongestTime);
  }
  EXPECT_EQ(from_milliseconds(infinite), kLongestTime);
  EXPECT_EQ(from_milliseconds(std::nan("")), Duration{});
  EXPECT_EQ(plus(kLongestTime, kLongestTime), kLongestTime);
  EXPECT_EQ(from_milliseconds(1e9).count(), 1'000'000'000'000'000);
}

// Overlapping steps, and the bytes that a worker holds.
TEST(Longest, ManyStepsAndBytes) {
  const Plan plan = plan_of(shape_of(2, 1, 8, "1f1b"));
  PriceOptions options;
  options.update = false;
  options.staggered = true;
  const auto late = price(plan, equal_model(2, 5e10, 5e10, 5e10), uniform_cluster(2, {}), options);
  ASSERT_FALSE(late.ok());
  options.staggered = false;
  options.bytes = true;
  const Bytes huge{std::numeric_limits<int64_t>::max() / 4};
  Model model = equal_model(2, 1, 1, 1);
  for (Layer& layer : model.layers) layer.stash = huge;
  const auto held =
      price(plan_of(shape_of(2, 1, 8, "gpipe")), model, uniform_cluster(2, {}), options);
  ASSERT_FALSE(held.ok());
  EXPECT_NE(held.error().message.find("4 EiB"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
