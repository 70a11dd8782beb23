// Prices against a second, slow and independent simulator; and the two ways of simulating a list
// against each other.
#include "sim/reference.h"

#include "base/random.h"
#include "ir/check.h"
#include "ir/text.h"
#include "sim/cases.h"
#include "sim/clockwork.h"
#include "sim/listed.h"

namespace tenuto {
namespace {

struct Chance {
  Plan plan;
  Model model;
  Cluster cluster;
  PriceOptions options;
};

// A random case of one order. Durations have many digits, so that no two events coincide by chance:
// the order at a shared wire is then well defined.
Chance draw(Random& random, const std::string& order, Dispatch dispatch) {
  const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
  Shape shape = shape_of(2 + below(3), 1 + below(2), 2 + below(7), order);
  shape.layers = 0;
  shape.dispatch = dispatch;
  while (!make_plan(shape).ok()) ++shape.micros;  // some orders need as many as twice the workers
  Chance it;
  it.plan = plan_of(shape);
  for (size_t s = 0; s < it.plan.stages.size(); ++s) {
    Layer layer;
    layer.forward = Duration(1000 + below(1'000'000));
    layer.backward_input = Duration(1000 + below(1'000'000));
    layer.backward_weight = Duration(1000 + below(1'000'000));
    layer.activation = {1000 + below(500'000)};
    it.model.layers.push_back(layer);
  }
  const auto workers = static_cast<int32_t>(it.plan.schedule.lists.size());
  it.cluster = uniform_cluster(workers, {Duration(below(800'000)), below(2) == 0 ? 0.0 : 1.03e9});
  for (Worker& worker : it.cluster.workers) worker.speed = 1.0 / (1 + below(3));
  for (int32_t k = below(4); k > 0; --k) {
    it.cluster.exceptions[{{below(workers)}, {below(workers)}}] = {Duration(below(3'000'000)),
                                                                   below(2) == 0 ? 0.0 : 1.7e8};
  }
  it.options.update = false;
  it.options.spans = true;
  it.cluster.half_duplex = below(3) == 0;
  it.options.per_op = Duration(below(2) * below(5000));
  // Memory limits that hold the warm-up forwards, so that no order deadlocks.
  for (Limit& limit : it.plan.limits) {
    if (below(2) == 0) continue;
    limit.memory = {1000 * std::max(limit.warm_up, 1) + below(2500), 1000, below(1001)};
  }
  return it;
}

void expect_same(const Chance& it) {
  const Timeline timeline = price_of(it.plan, it.model, it.cluster, it.options);
  const auto ends = reference_ends(it.plan, it.model, it.cluster, it.options);
  Duration last{};
  std::vector<std::vector<Duration>> mine;
  for (const auto& list : it.plan.schedule.lists) mine.emplace_back(list.size(), Duration{-1});
  for (const Span& span : timeline.spans) {
    const auto& list = it.plan.schedule.lists[static_cast<size_t>(span.worker.value)];
    const auto place = std::find(list.begin(), list.end(), span.op) - list.begin();
    mine[static_cast<size_t>(span.worker.value)][static_cast<size_t>(place)] = span.finish;
  }
  for (size_t w = 0; w < ends.size(); ++w) {
    for (size_t i = 0; i < ends[w].size(); ++i) {
      last = std::max(last, ends[w][i]);
      ASSERT_EQ(mine[w][i], ends[w][i])
          << it.plan.order << " worker " << w << " " << to_text(it.plan.schedule.lists[w][i]);
    }
  }
  EXPECT_EQ(timeline.makespan, last);
  EXPECT_LE(timeline.lower_bound, timeline.makespan);
}

class EveryOrder : public testing::TestWithParam<std::string> {};

TEST_P(EveryOrder, EqualsTheReference) {
  Random random(101);
  for (int i = 0; i < 12; ++i) {
    expect_same(draw(random, GetParam(), Dispatch::Listed));
    expect_same(draw(random, GetParam(), Dispatch::Ready));
  }
}

// Adds random ports, nested or not. Speeds become different, so that no two pipelines do the same
// things at the same moments: the order at a port is then well defined.
void add_ports(Random& random, Cluster& cluster) {
  const auto below = [&](int64_t bound) { return static_cast<int32_t>(random.below(bound)); };
  const auto workers = static_cast<int32_t>(cluster.workers.size());
  for (int32_t w = 0; w < workers; ++w) {
    cluster.workers[static_cast<size_t>(w)].speed *= 1 + 0.0137 * w;
  }
  for (int32_t count = 1 + below(4); count > 0; --count) {
    Port port;
    const int32_t first = below(workers), end = first + 1 + below(workers - first);
    for (int32_t w = first; w < end; ++w) port.devices.push_back({w});
    port.bytes_per_second = 1e8 + below(900'000'000);
    port.half_duplex = below(2) == 0;
    port.inside = below(3) == 0;
    cluster.ports.push_back(std::move(port));
  }
}

TEST_P(EveryOrder, EqualsTheReferenceOverPorts) {
  Random random(107);
  int32_t longer = 0;
  for (int i = 0; i < 24; ++i) {
    Chance it = draw(random, GetParam(), i % 2 == 0 ? Dispatch::Listed : Dispatch::Ready);
    add_ports(random, it.cluster);
    expect_same(it);
    Chance alone = it;  // as if each message had its ports for itself
    for (size_t from = 0; from < it.cluster.workers.size(); ++from) {
      for (size_t to = 0; to < it.cluster.workers.size(); ++to) {
        const std::pair ends(WorkerId{static_cast<int32_t>(from)},
                             WorkerId{static_cast<int32_t>(to)});
        alone.cluster.exceptions[ends] = it.cluster.link(ends.first, ends.second);
      }
    }
    alone.cluster.ports.clear();
    longer += price_of(alone.plan, alone.model, alone.cluster, alone.options).makespan <
              price_of(it.plan, it.model, it.cluster, it.options).makespan;
  }
  EXPECT_GE(longer, 3);  // ports matter in these cases
}

// The simulator of lists against the one with a clock: the same times and peaks.
TEST_P(EveryOrder, ListsWithAndWithoutAClock) {
  Random random(103);
  int compared = 0;
  for (int i = 0; i < 40; ++i) {
    Chance it = draw(random, GetParam(), Dispatch::Listed);
    it.cluster.half_duplex = false;
    it.options.update = i % 2 == 0;
    it.options.bytes = true;
    it.options.in_turn = i % 3 == 0;
    if (it.options.in_turn) it.options.steps = 3;
    const auto program = Program::make(it.plan.schedule, keep_of(it.plan, it.options));
    ASSERT_TRUE(program.ok());
    const Tariff tariff(program.value(), it.plan, it.model, it.cluster, it.options);
    if (!can_run_listed(program.value(), it.plan, tariff, it.options)) continue;
    ++compared;
    const Outcome lists =
        run_listed(program.value(), it.plan, it.plan.schedule, tariff, it.options);
    const Outcome clock =
        run_clockwork(program.value(), it.plan, it.plan.schedule, tariff, it.options);
    EXPECT_EQ(lists.finish, clock.finish);
    ASSERT_EQ(lists.start.size(), clock.start.size());
    for (size_t place = 0; place < lists.start.size(); ++place) {
      const int32_t op = static_cast<int32_t>(place) % program.value().size();
      if (program.value().lane(op) < 0) continue;
      EXPECT_EQ(lists.start[place], clock.start[place]) << to_text(program.value().op(op));
    }
    EXPECT_EQ(lists.peak_micros, clock.peak_micros);
    EXPECT_EQ(lists.peak_bytes, clock.peak_bytes);
    EXPECT_EQ(lists.busy, clock.busy);
    EXPECT_EQ(lists.ended, clock.ended);
  }
  EXPECT_GE(compared, 10);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const OrderCard& card : order_cards()) all.push_back(card.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Orders, EveryOrder, testing::ValuesIn(names()),
                         [](const testing::TestParamInfo<std::string>& order) {
                           std::string name = order.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tenuto
