// Prices by hand, and what must hold for every price.
#include "sim/price.h"

#include <algorithm>
#include <map>

#include "base/random.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "ir/walk.h"
#include "sim/cases.h"
#include "sim/reduction_price.h"

namespace tenuto {
namespace {

// Published and derived figures: S 4, N 12, t 10; a delay of c on link 0-1 in both directions. 1F1B
// has no slack, so every micro-batch pays c.
TEST(Price, SlowLink) {
  const auto with_delay = [](const char* order, double delay) {
    Cluster cluster = uniform_cluster(4, {});
    cluster.exceptions[{{0}, {1}}] = cluster.exceptions[{{1}, {0}}] = {from_milliseconds(delay), 0};
    return to_milliseconds(
        price_of(plan_of(shape_of(4, 1, 12, order)), equal_model(4, 10, 10, 10), cluster).makespan);
  };
  EXPECT_EQ(with_delay("1f1b", 0), 450);
  EXPECT_EQ(with_delay("zb-h1", 0), 390);
  EXPECT_EQ(with_delay("gpipe", 20), 450 + 2 * 20 + 20);  // there and back, clip decision
}

// One step from empty ends when the last stage has the clip decision and has stepped. In a run the
// first stage is a message ahead: it begins the next step while the decision is under way.
TEST(Price, AStepOfARunDoesNotWaitForTheLastDecision) {
  const double delay = 30;
  for (const char* order : {"1f1b", "zb-h1", "gpipe"}) {
    for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
      Shape shape = shape_of(3, 1, 6, order);
      shape.dispatch = dispatch;
      const Plan plan = plan_of(shape);
      const Model model = equal_model(3, 10, 10, 10);
      Cluster cluster = uniform_cluster(3, {from_milliseconds(1), 0});
      cluster.exceptions[{{1}, {2}}] =
          cluster.exceptions[{{2}, {1}}] = {from_milliseconds(delay), 0};
      const double alone = to_milliseconds(price_of(plan, model, cluster).makespan);
      const double among = to_milliseconds(whole_step_time(plan, model, cluster).value());
      EXPECT_EQ(alone - among, delay + 1) << order;
    }
  }
}

// Pipelines whose links differ wait for each other in the sums only, so a step differs from the one
// before it; few steps are enough for the price of many.
TEST(Price, AFewStepsOfARunAreEnough) {
  Random random(109);
  for (int i = 0; i < 60; ++i) {
    const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
    const int32_t stages = 2 + below(3), pipelines = 1 + below(3);
    Shape shape = shape_of(stages, pipelines, 4 + below(5), below(2) == 0 ? "1f1b" : "zb-h1");
    shape.dispatch = below(2) == 0 ? Dispatch::Listed : Dispatch::Ready;
    const Plan plan = plan_of(shape);
    Model model = equal_model(stages, 10, 10, 10);
    model.step = from_milliseconds(below(4));
    for (Layer& layer : model.layers) layer.parameters = {100'000 * below(100)};
    Cluster cluster = uniform_cluster(stages * pipelines, {from_milliseconds(0.5), 1e9});
    for (int32_t troubles = 1 + below(3); troubles > 0; --troubles) {
      const int32_t worker = below(stages * pipelines - 1);
      cluster.workers[static_cast<size_t>(worker)].speed = 0.4 + 0.1 * below(7);
      const Link slow{from_milliseconds(below(40)), 1e9};
      cluster.exceptions[{{worker}, {worker + 1}}] = slow;
      cluster.exceptions[{{worker + 1}, {worker}}] = slow;
    }
    PriceOptions many = options_of_run(plan);
    many.steps = 24;
    const Timeline run = price_of(plan, model, cluster, many);
    const Duration step = whole_step_time(plan, model, cluster).value();
    EXPECT_LE(std::abs((run.period - step).count()), 1) << i;
    EXPECT_LE(step, run.makespan) << i;
  }
}

// Norms and clip decisions stay to the end of their step. Their buffers must not be missing in
// later steps, however many a link carries in all.
TEST(Price, NormsOfManyStepsFindBuffers) {
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    Shape shape = shape_of(3, 1, 4, "1f1b");
    shape.dispatch = dispatch;
    const Plan plan = plan_of(shape);
    const Model model = equal_model(3, 10, 10, 10);
    PriceOptions many = options_of_run(plan);
    many.steps = 3 * kReceivesAhead;
    const Timeline run = price_of(plan, model, uniform_cluster(3, {}), many);
    EXPECT_EQ(run.period, whole_step_time(plan, model, uniform_cluster(3, {})).value());
    // A worker with many stages sends a norm for each.
    Shape wide = shape_of(2, 1, 4, "interleaved");
    wide.chunks = 20;
    wide.dispatch = dispatch;
    const Plan looped = plan_of(wide);
    const Model fine = equal_model(40, 10, 10, 10);
    const auto step = whole_step_time(looped, fine, uniform_cluster(2, {}));
    ASSERT_TRUE(step.ok()) << step.error().message;
    EXPECT_LE(step.value(), price_of(looped, fine, uniform_cluster(2, {})).makespan);
  }
}

TEST(Price, UpdateIsAPart) {
  const Plan plan = plan_of(shape_of(2, 2, 2, "1f1b"));
  Model model = equal_model(2, 10, 10, 10);
  model.step = from_milliseconds(5);
  for (Layer& layer : model.layers) layer.parameters = {1000};
  const Cluster cluster = uniform_cluster(4, {from_milliseconds(1), 1e6});
  PriceOptions without;
  without.update = false;
  const Timeline part = price_of(plan, model, cluster, without);
  const Timeline whole = price_of(plan, model, cluster);
  // Stage 1 has its first input at 11, then two times forward 10 and backward 20 without a pause;
  // its last gradient is at stage 0 at 72, where the backward lasts 20.
  EXPECT_EQ(to_milliseconds(part.makespan), 92);
  // Two rounds of 500 bytes: 1.5 each. The norm of stage 1 is there before; the clip decision has
  // 16 bytes: 1.016. Step 5.
  EXPECT_EQ(to_milliseconds(whole.makespan), 92 + 3 + 1.016 + 5);
}

TEST(Price, MessagesShareALink) {
  // Three activations of 10 ms each leave within 3 ms: the last arrives 30 ms after the first left.
  Shape shape = shape_of(2, 1, 3, "gpipe");
  Model model = equal_model(2, 1, 1, 1, {10000});
  const Plan plan = plan_of(shape);
  PriceOptions options;
  options.spans = true;
  const Timeline timeline =
      price_of(plan, model, uniform_cluster(2, {from_milliseconds(2), 1e6}), options);
  std::vector<double> arrivals;
  for (const Span& span : timeline.spans) {
    if (span.op.kind == OpKind::Recv && span.op.moved == ValueKind::Activation) {
      arrivals.push_back(to_milliseconds(span.finish));
      EXPECT_EQ(to_milliseconds(span.finish - span.start), 12);
    }
  }
  EXPECT_EQ(arrivals, (std::vector<double>{13, 23, 33}));
}

TEST(Price, Ring) {
  Collective ring{{{0}, {1}, {2}}, 3, {}};
  for (int32_t turn = 0; turn < 4; ++turn) {
    Round round;
    for (int32_t i = 0; i < 3; ++i) {
      round.moves.push_back({{i}, {(i + 1) % 3}, {((i - turn) % 3 + 3) % 3}, turn < 2});
    }
    ring.rounds.push_back(round);
  }
  const Cluster cluster = uniform_cluster(3, {Duration(10), 1e9});  // 1 ns a byte
  const auto at = [](int64_t ns) { return Duration(ns); };
  // 300 bytes: 4 rounds of 100 + 10.
  EXPECT_EQ(reduction_finish(ring, {at(0), at(0), at(0)}, {300}, cluster),
            (std::vector<Duration>{at(440), at(440), at(440)}));
  // Member 1 comes late. Only then it adds the chunk that member 0 has sent, and the other moves of
  // this chunk follow one after the other.
  const auto late = reduction_finish(ring, {at(0), at(1000), at(0)}, {300}, cluster);
  for (const Duration finish : late) EXPECT_GE(finish, at(1000 + 110 + 110));
  EXPECT_EQ(reduction_finish({{{5}}, 1, {}}, {at(7)}, {100}, cluster),
            (std::vector<Duration>{at(7)}));
}

TEST(Price, DeadAndInfinitelySlowWorkersAreRefused) {
  const Plan plan = plan_of(shape_of(2, 1, 2, "1f1b"));
  Cluster cluster = uniform_cluster(2, {});
  cluster.workers[1].alive = false;
  auto timeline = price(plan, equal_model(2, 1, 1, 1), cluster);
  ASSERT_FALSE(timeline.ok());
  EXPECT_EQ(timeline.error().message, "worker 1 is not alive and the plan gives it ops");
  cluster.workers[1] = {0.0, {}, true};
  timeline = price(plan, equal_model(2, 1, 1, 1), cluster);
  ASSERT_FALSE(timeline.ok());
  EXPECT_EQ(timeline.error().message, "worker 1 has speed 0: expected more than 0");
}

// Pricing a list that check() would refuse returns an error that says where each worker is stuck.
TEST(Price, ADeadlockIsReported) {
  Plan plan = plan_of(shape_of(2, 1, 2, "1f1b"));
  auto& list = plan.schedule.lists[1];
  const auto place = [&](OpKind kind) {
    return std::find_if(list.begin(), list.end(), [&](const Op& op) { return op.kind == kind; });
  };
  std::iter_swap(place(OpKind::Forward), place(OpKind::BackwardInput));
  PriceOptions listed, clocked, blocking;
  listed.update = clocked.update = blocking.update = false;
  clocked.staggered = true;
  blocking.sending = Sending::Blocking;
  for (const PriceOptions& options : {listed, clocked, blocking}) {
    const auto timeline = price(plan, equal_model(2, 1, 1, 1), uniform_cluster(2, {}), options);
    ASSERT_FALSE(timeline.ok());
    EXPECT_EQ(timeline.error().code, Code::Infeasible);
    EXPECT_NE(timeline.error().message.find("worker 1 at B1.0"), std::string::npos)
        << timeline.error().message;
  }
}

// A backward that lasts a forward longer, and inputs kept in the place of stashes: all of one stash
// is there only while a pass runs. The first stage keeps nothing, its input is data.
TEST(Price, StagesThatRecompute) {
  constexpr int64_t kMicros = 4, kActivation = 10'000, kStash = 100'000;
  Model model = equal_model(2, 10, 20, 30);
  for (Layer& layer : model.layers) layer.activation = {kActivation}, layer.stash = {kStash};
  for (const bool split : {false, true}) {
    Shape shape = shape_of(2, 1, kMicros, "gpipe");
    shape.split_backward = split;
    PriceOptions options;
    options.bytes = true;
    options.update = false;  // norms take bytes, too
    const Timeline plain = price_of(plan_of(shape), model, uniform_cluster(2, {}), options);
    EXPECT_EQ(to_milliseconds(plain.makespan), split ? 10 * 5 + 50 * 4 + 20 : 10 * 5 + 50 * 5);
    Plan plan = plan_of(shape);
    plan.stages[1].recompute = true;
    const Timeline last = price_of(plan, model, uniform_cluster(2, {}), options);
    EXPECT_EQ(to_milliseconds(last.makespan - plain.makespan), 10 * kMicros) << split;
    EXPECT_EQ(last.peak_bytes[0], plain.peak_bytes[0]);
    const int64_t less = kMicros * (kStash - kActivation) - kStash;
    if (!split) {
      EXPECT_EQ(plain.peak_bytes[1].count - last.peak_bytes[1].count, less);
    }
    plan.stages[0].recompute = true;
    const Timeline both = price_of(plan, model, uniform_cluster(2, {}), options);
    EXPECT_GT(both.makespan, last.makespan);
    if (!split) {
      EXPECT_EQ(plain.peak_bytes[0].count - both.peak_bytes[0].count, (kMicros - 1) * kStash);
    }
    EXPECT_LE(both.lower_bound, both.makespan);
  }
}

TEST(Price, HeldOutPass) {
  Shape shape = shape_of(3, 2, 2, "1f1b");
  shape.evaluation_micros = 5;
  PriceOptions options;
  options.evaluation = true;
  const Timeline timeline =
      price_of(plan_of(shape), equal_model(3, 10, 10, 10), uniform_cluster(6, {}), options);
  EXPECT_EQ(to_milliseconds(timeline.makespan), 50);  // pipeline 0 has 3 of the 5
  EXPECT_EQ(timeline.lower_bound, timeline.makespan);
}

// A random model, cluster and shape.
struct Chance {
  Shape shape;
  Model model;
  Cluster cluster;
};

Chance draw(Random& random, const std::string& order, bool links) {
  const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
  Chance chance;
  chance.shape = shape_of(1 + below(6), 1 + below(3), 1 + below(9), order);
  chance.shape.split_backward = below(2) == 0;
  for (int32_t s = 0; s < chance.shape.stages; ++s) {
    Layer layer;
    layer.forward = Duration(1 + below(1000));
    layer.backward_input = Duration(1 + below(1000));
    layer.backward_weight = Duration(1 + below(1000));
    layer.activation = {below(500)};
    layer.parameters = {below(5000)};
    chance.model.layers.push_back(layer);
  }
  chance.model.step = Duration(below(100));
  const int32_t workers = chance.shape.stages * chance.shape.pipelines;
  chance.cluster = uniform_cluster(workers, {Duration(links ? below(800) : 0), 1e9});
  for (Worker& worker : chance.cluster.workers) worker.speed = 1.0 / (1 + below(3));
  for (int32_t k = below(4); links && k > 0; --k) {
    chance.cluster.exceptions[{{below(workers)}, {below(workers)}}] = {Duration(below(3000)), 1e8};
  }
  return chance;
}

// Checks the spans, with effect_of: ops of one compute lane follow one another, each value is there
// before it is read, and the work is what the model says.
void expect_sound(const Plan& plan, const Chance& chance, const Timeline& timeline) {
  std::map<std::pair<WorkerId, Value>, Duration> made;
  for (const Span& span : timeline.spans) {
    for (const Value& value : effect_of(span.op, plan.schedule.stage_count).write) {
      made[{span.worker, value}] = span.finish;
    }
  }
  std::map<WorkerId, Duration> free_at;
  std::vector<StageCost> costs;
  for (const Stage& stage : plan.stages) costs.push_back(stage_cost(chance.model, stage));
  for (const Span& span : timeline.spans) {
    EXPECT_LE(span.finish, timeline.makespan);
    for (const Value& value : effect_of(span.op, plan.schedule.stage_count).read) {
      if (means_every(value)) continue;
      ASSERT_TRUE(made.count({span.worker, value})) << to_text(value);
      EXPECT_GE(span.start, (made[{span.worker, value}])) << to_text(span.op);
    }
    if (lane_of(span.op) != LaneKind::Compute) continue;
    EXPECT_GE(span.start, free_at[span.worker]) << to_text(span.op);
    free_at[span.worker] = span.finish;
    const double speed = chance.cluster.workers[static_cast<size_t>(span.worker.value)].speed;
    EXPECT_EQ(span.finish - span.start, at_speed(op_time(span.op, plan, costs), speed));
  }
}

TEST(Price, PropertiesOfRandomCases) {
  Random random(23);
  for (int i = 0; i < 400; ++i) {
    const Chance chance = draw(random, order_cards()[static_cast<size_t>(i) % 3].name, i % 4 != 0);
    for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
      Shape shape = chance.shape;
      shape.dispatch = dispatch;
      Plan plan = plan_of(shape);
      for (size_t s = 0; s < plan.stages.size(); ++s) {
        plan.stages[s].recompute = i % 3 == 0 && (static_cast<size_t>(i) + s) % 2 == 0;
      }
      PriceOptions options;
      options.spans = true;
      const Timeline timeline = price_of(plan, chance.model, chance.cluster, options);
      EXPECT_LE(timeline.lower_bound, timeline.makespan);
      EXPECT_GT(timeline.lower_bound.count(), 0);
      EXPECT_GE(timeline.bubble_fraction, 0.0);
      EXPECT_LT(timeline.bubble_fraction, 1.0);
      expect_sound(plan, chance, timeline);
      for (size_t w = 0; w < plan.limits.size(); ++w) {
        EXPECT_LE(timeline.peak_micros[w], plan.limits[w].micros);
      }
      const Timeline again = price_of(plan, chance.model, chance.cluster, {});
      EXPECT_EQ(again.makespan, timeline.makespan);
      PriceOptions part;
      part.update = false;
      const Timeline inner = price_of(plan, chance.model, chance.cluster, part);
      EXPECT_LE(inner.makespan, timeline.makespan);
      EXPECT_LE(inner.lower_bound, inner.makespan);
    }
  }
}

// A slower link or worker never makes a listed plan faster.
TEST(Price, SlowerIsNotFaster) {
  Random random(29);
  for (int i = 0; i < 200; ++i) {
    Chance chance = draw(random, order_cards()[static_cast<size_t>(i) % 3].name, true);
    const Plan plan = plan_of(chance.shape);
    const Duration before = price_of(plan, chance.model, chance.cluster).makespan;
    chance.cluster.between[0][0].latency += Duration(random.below(1000));
    for (auto& [ends, link] : chance.cluster.exceptions) link.latency += Duration(1000);
    Worker& slow = chance.cluster.workers[static_cast<size_t>(
        random.below(static_cast<int64_t>(chance.cluster.workers.size())))];
    slow.speed /= 2;
    EXPECT_GE(price_of(plan, chance.model, chance.cluster).makespan, before);
  }
}

// With slow links, ready dispatch is faster than the fixed lists on average.
TEST(Price, ReadyAgainstListed) {
  Random random(31);
  double listed = 0, ready = 0;
  for (int i = 0; i < 200; ++i) {
    Chance chance = draw(random, "zb-h1", true);
    chance.shape.split_backward = true;
    listed +=
        to_milliseconds(price_of(plan_of(chance.shape), chance.model, chance.cluster).makespan);
    chance.shape.dispatch = Dispatch::Ready;
    ready +=
        to_milliseconds(price_of(plan_of(chance.shape), chance.model, chance.cluster).makespan);
  }
  EXPECT_LT(ready, listed);
}

}  // namespace
}  // namespace tenuto
