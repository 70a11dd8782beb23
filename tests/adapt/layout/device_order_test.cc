// Orders of devices compared with their definitions, and tables of units with sums over all pairs,
// on random clusters.
#include "adapt/layout/device_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/random.h"

namespace tenuto {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Rates between all devices, in bytes per nanosecond; those from a device to itself mean nothing.
using Rates = std::vector<std::vector<double>>;

size_t at(int32_t index) { return static_cast<size_t>(index); }

LayoutProblem problem_of(const Cluster& cluster) {
  Model model;
  model.layers.resize(1);
  return {model, cluster, {}};
}

// Each worker has a place of its own.
LayoutProblem problem_of(const Rates& rates) {
  Cluster cluster;
  cluster.workers.resize(rates.size());
  for (size_t one = 0; one < rates.size(); ++one) {
    cluster.place.push_back(static_cast<int32_t>(one));
    auto& row = cluster.between.emplace_back();
    for (const double rate : rates[one]) {
      row.push_back({Duration{}, rate == kUnlimited ? 0 : 1e9 * rate});
    }
  }
  return problem_of(cluster);
}

Rates equal_rates(size_t count, double rate) {
  return Rates(count, std::vector<double>(count, rate));
}

// Nodes inside which rates are `inside`; `node` of each device.
Rates rates_of_nodes(const std::vector<int32_t>& node, double inside, double between) {
  Rates rates = equal_rates(node.size(), between);
  for (size_t one = 0; one < node.size(); ++one) {
    for (size_t other = 0; other < node.size(); ++other) {
      if (node[one] == node[other]) rates[one][other] = inside;
    }
  }
  return rates;
}

// Rates drawn by `draw`, the same in both directions.
Rates random_rates(size_t count, const std::function<double()>& draw) {
  Rates rates = equal_rates(count, 1);
  for (size_t one = 0; one < count; ++one) {
    for (size_t other = 0; other < one; ++other) rates[one][other] = rates[other][one] = draw();
  }
  return rates;
}

DeviceOrder shuffled(size_t count, Random& random) {
  DeviceOrder order(count);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[at(static_cast<int32_t>(random.below(static_cast<int64_t>(i))))]);
  }
  return order;
}

// Connects the devices first, ..., end - 1 of an order by a random tree of switches. Switches
// further down are at least as fast.
void connect(Rates& rates, const DeviceOrder& order, size_t first, size_t end, double rate,
             Random& random) {
  if (end - first < 2) return;
  for (size_t part = first; part < end;) {
    const int64_t most = static_cast<int64_t>(end - part) - (part == first ? 1 : 0);
    const size_t next = part + 1 + static_cast<size_t>(random.below(most));
    for (size_t i = part; i < next; ++i) {
      for (size_t j = next; j < end; ++j) {
        const size_t one = at(order[i]), other = at(order[j]);
        rates[one][other] = rates[other][one] = rate;
      }
    }
    connect(rates, order, part, next, rate * static_cast<double>(int64_t{1} << random.below(3)),
            random);
    part = next;
  }
}

// 6 to 16 devices with shuffled numbers below a tree of switches; some have a slow connection of
// their own.
Rates random_tree(Random& random) {
  const auto count = static_cast<size_t>(6 + random.below(11));
  Rates rates = equal_rates(count, 1);
  connect(rates, shuffled(count, random), 0, count, 1.25, random);
  for (size_t one = 0; one < count; ++one) {
    if (random.below(4) > 0) continue;
    const double own = static_cast<double>(1 + random.below(6));
    for (size_t other = 0; other < count; ++other) {
      rates[one][other] = std::min(rates[one][other], own);
      rates[other][one] = rates[one][other];
    }
  }
  return rates;
}

bool is_permutation(DeviceOrder order, int32_t count) {
  std::sort(order.begin(), order.end());
  if (order.size() != at(count)) return false;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

// The devices that are connected with `device` by rates of at least `least`.
std::set<int32_t> component(const Rates& rates, int32_t device, double least) {
  std::set<int32_t> found = {device};
  std::vector<int32_t> waiting = {device};
  while (!waiting.empty()) {
    const std::vector<double>& row = rates[at(waiting.back())];
    waiting.pop_back();
    for (size_t other = 0; other < row.size(); ++other) {
      const auto number = static_cast<int32_t>(other);
      if (row[other] >= least && found.insert(number).second) waiting.push_back(number);
    }
  }
  return found;
}

// True when, for each rate, the devices that are connected by at least this rate stand side by
// side.
bool keeps_components(const Rates& rates, const DeviceOrder& order) {
  std::set<double> levels;
  for (size_t one = 0; one < rates.size(); ++one) {
    for (size_t other = 0; other < one; ++other) levels.insert(rates[one][other]);
  }
  for (const double level : levels) {
    for (size_t i = 0; i < order.size();) {
      const std::set<int32_t> expected = component(rates, order[i], level);
      const size_t end = i + expected.size();
      if (end > order.size()) return false;
      for (; i < end; ++i) {
        if (!expected.contains(order[i])) return false;
      }
    }
  }
  return true;
}

// Single linkage by its definition: looks at all pairs before each of the joins, and builds all
// eight orders of two groups. In a tie the lowest devices.
DeviceOrder linkage_by_definition(const Rates& rates) {
  std::vector<DeviceOrder> groups;
  for (size_t device = 0; device < rates.size(); ++device) {
    groups.push_back({static_cast<int32_t>(device)});
  }
  const auto group_of = [&](size_t device) {
    return static_cast<size_t>(std::find_if(groups.begin(), groups.end(),
                                            [&](const DeviceOrder& group) {
                                              return std::count(group.begin(), group.end(),
                                                                static_cast<int32_t>(device));
                                            }) -
                               groups.begin());
  };
  while (groups.size() > 1) {
    double fastest = 0;
    size_t one = 0, other = 0;
    for (size_t i = 0; i < rates.size(); ++i) {
      for (size_t j = i + 1; j < rates.size(); ++j) {
        if (rates[i][j] <= fastest || group_of(i) == group_of(j)) continue;
        fastest = rates[i][j];
        one = group_of(i);
        other = group_of(j);
      }
    }
    std::vector<std::pair<double, DeviceOrder>> joined;  // by the negative rate at the seam
    for (int way = 0; way < 8; ++way) {
      DeviceOrder front = groups[one], behind = groups[other];
      if (way & 1) std::reverse(front.begin(), front.end());
      if (way & 2) std::reverse(behind.begin(), behind.end());
      if (way & 4) std::swap(front, behind);
      const double seam = rates[at(front.back())][at(behind.front())];
      front.insert(front.end(), behind.begin(), behind.end());
      joined.emplace_back(-seam, front);
    }
    groups[one] = std::min_element(joined.begin(), joined.end())->second;
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(other));
  }
  return groups.front();
}

// An unlimited rate counts as the sum of all others.
Rates with_limits(Rates rates) {
  double sum = 0;
  for (size_t one = 0; one < rates.size(); ++one) {
    for (size_t other = 0; other < one; ++other) {
      if (rates[one][other] != kUnlimited) sum += rates[one][other];
    }
  }
  for (std::vector<double>& row : rates) std::replace(row.begin(), row.end(), kUnlimited, sum);
  return rates;
}

// The rates between those of `devices` whose bit is set in `side`, and the others of them.
double cut_of(const Rates& rates, const DeviceOrder& devices, uint32_t side) {
  double cut = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < devices.size(); ++j) {
      if ((side >> i & 1) == 1 && (side >> j & 1) == 0) {
        cut += rates[at(devices[i])][at(devices[j])];
      }
    }
  }
  return cut;
}

// True when some place in the order separates its devices by a minimum cut, the side with the
// lowest device first, and this is true for both sides too. Looks at all cuts.
bool is_split_by_minimum_cuts(const Rates& rates, const DeviceOrder& order) {
  if (order.size() < 2) return true;
  double least = kUnlimited;
  for (uint32_t side = 1; side + 1 < 1u << order.size(); ++side) {
    least = std::min(least, cut_of(rates, order, side));
  }
  const auto lowest = std::min_element(order.begin(), order.end());
  for (size_t first = static_cast<size_t>(lowest - order.begin()) + 1; first < order.size();
       ++first) {
    if (cut_of(rates, order, (1u << first) - 1) > least * (1 + 1e-9)) continue;
    const auto seam = order.begin() + static_cast<std::ptrdiff_t>(first);
    if (is_split_by_minimum_cuts(rates, {order.begin(), seam}) &&
        is_split_by_minimum_cuts(rates, {seam, order.end()})) {
      return true;
    }
  }
  return false;
}

TEST(NaturalOrder, CountsTheLiveDevices) {
  Cluster cluster = uniform_cluster(5, {});
  cluster.workers[1].alive = false;
  EXPECT_EQ(natural_order(problem_of(cluster)), (DeviceOrder{0, 1, 2, 3}));
}

// In a tie the lowest devices come first, so that equal devices keep their order.
TEST(DeviceOrders, KeepTheOrderOfEqualDevices) {
  for (const double rate : {1.0, 12.1, kUnlimited}) {
    for (const size_t count : {1u, 2u, 7u, 20u}) {
      const LayoutProblem problem = problem_of(equal_rates(count, rate));
      EXPECT_EQ(linkage_order(problem), natural_order(problem)) << count << " devices at " << rate;
      EXPECT_EQ(min_cut_order(problem), natural_order(problem)) << count << " devices at " << rate;
    }
  }
}

TEST(DeviceOrders, PutNodesTogether) {
  for (const double inside : {25.0, kUnlimited}) {
    const LayoutProblem problem =
        problem_of(rates_of_nodes({0, 1, 1, 0, 2, 1, 0, 2, 2}, inside, 1.25));
    const DeviceOrder expected = {0, 3, 6, 1, 2, 5, 4, 7, 8};
    EXPECT_EQ(linkage_order(problem), expected);
    EXPECT_EQ(min_cut_order(problem), expected);
  }
}

// The groups {0, 1} and {2, 3} are joined by the fast pair 0-3: both are turned round.
TEST(LinkageOrder, TurnsGroupsForAFastSeam) {
  Rates rates = rates_of_nodes({0, 0, 1, 1}, 10, 1);
  rates[0][3] = rates[3][0] = 2;
  EXPECT_EQ(linkage_order(problem_of(rates)), (DeviceOrder{1, 0, 3, 2}));
}

// An exception and the slower direction of a pair count.
TEST(LinkageOrder, UsesTheSlowerDirection) {
  Cluster cluster = uniform_cluster(4, {Duration{}, 1e9});
  for (const auto& [from, to] : {std::pair(0, 2), std::pair(2, 0), std::pair(0, 1)}) {
    cluster.exceptions[{WorkerId{from}, WorkerId{to}}] = {Duration{}, 5e9};
  }
  EXPECT_EQ(linkage_order(problem_of(cluster)), (DeviceOrder{0, 2, 1, 3}));
}

TEST(LinkageOrder, KeepsTheComponentsOfRandomTrees) {
  int split = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    const Rates rates = random_tree(random);
    const LayoutProblem problem = problem_of(rates);
    const DeviceOrder order = linkage_order(problem);
    EXPECT_TRUE(is_permutation(order, problem.device_count())) << "seed " << seed;
    EXPECT_TRUE(keeps_components(rates, order)) << "seed " << seed;
    if (!keeps_components(rates, natural_order(problem))) ++split;
  }
  EXPECT_GT(split, 500);  // the trees are not kept together by chance
}

TEST(LinkageOrder, KeepsTheComponentsOfRandomMatrices) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(mix(1, seed));
    const auto count = static_cast<size_t>(1 + random.below(16));
    // Few levels give ties and large components; many levels give nested ones.
    const int64_t levels = seed % 2 == 0 ? 4 : 1000;
    const Rates rates =
        random_rates(count, [&] { return static_cast<double>(1 + random.below(levels)); });
    const DeviceOrder order = linkage_order(problem_of(rates));
    EXPECT_TRUE(is_permutation(order, static_cast<int32_t>(count))) << "seed " << seed;
    EXPECT_TRUE(keeps_components(rates, order)) << "seed " << seed;
  }
}

TEST(LinkageOrder, IsSingleLinkage) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(mix(2, seed));
    const Rates tree = random_tree(random);
    EXPECT_EQ(linkage_order(problem_of(tree)), linkage_by_definition(tree)) << "seed " << seed;
    const auto count = static_cast<size_t>(2 + random.below(10));
    const int64_t levels = 2 + random.below(6);
    const Rates rates = random_rates(count, [&] {
      const int64_t level = random.below(levels);
      return level == 0 ? kUnlimited : static_cast<double>(level);
    });
    EXPECT_EQ(linkage_order(problem_of(rates)), linkage_by_definition(rates)) << "seed " << seed;
  }
}

// Other numbers for the same devices change only from which end the order is read, when all rates
// differ.
TEST(LinkageOrder, DoesNotDependOnTheNumbersOfDevices) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(mix(3, seed));
    const auto count = static_cast<size_t>(2 + random.below(20));
    const Rates rates = random_rates(count, [&] { return 0.1 + random.uniform(); });
    const DeviceOrder number = shuffled(count, random);  // of each device, after the change
    Rates renamed = rates;
    for (size_t one = 0; one < count; ++one) {
      for (size_t other = 0; other < count; ++other) {
        renamed[at(number[one])][at(number[other])] = rates[one][other];
      }
    }
    DeviceOrder expected = linkage_order(problem_of(rates));
    for (int32_t& device : expected) device = number[at(device)];
    if (expected.front() > expected.back()) std::reverse(expected.begin(), expected.end());
    EXPECT_EQ(linkage_order(problem_of(renamed)), expected) << "seed " << seed;
  }
}

TEST(MinCutOrder, SplitsByMinimumCuts) {
  int natural = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(mix(4, seed));
    const auto count = static_cast<size_t>(1 + random.below(8));
    // Rates of one kind in most graphs; in others a few fast pairs, slow pairs or unlimited pairs.
    const Rates rates = random_rates(count, [&] {
      const int64_t kind = random.below(6);
      if (seed % 3 == 1 && kind == 0) return kUnlimited;
      if (seed % 3 == 2) return kind < 3 ? 20.0 : 1.0;
      return 0.1 + 10 * random.uniform();
    });
    const LayoutProblem problem = problem_of(rates);
    const DeviceOrder order = min_cut_order(problem);
    EXPECT_TRUE(is_permutation(order, problem.device_count())) << "seed " << seed;
    EXPECT_TRUE(is_split_by_minimum_cuts(with_limits(rates), order)) << "seed " << seed;
    if (is_split_by_minimum_cuts(with_limits(rates), natural_order(problem))) ++natural;
  }
  EXPECT_LT(natural, 200);  // the check refuses other orders
}

// Devices 0 and 1 are equally cheap to separate. The first visit goes from 0 over 2 to 1, and so
// separates 1.
TEST(MinCutOrder, TakesTheFirstOfEqualCuts) {
  Rates rates = equal_rates(3, 3);
  rates[0][1] = rates[1][0] = 1;
  EXPECT_EQ(min_cut_order(problem_of(rates)), (DeviceOrder{0, 2, 1}));
}

// In a tie between cuts that separate one device, the last one is separated, whatever the sums are
// rounded to. So a cluster whose cheapest cuts are single devices keeps its order.
TEST(MinCutOrder, IgnoresRoundingErrors) {
  std::vector<int32_t> node(64);
  for (size_t device = 0; device < node.size(); ++device)
    node[device] = static_cast<int32_t>(device / 8);
  const LayoutProblem problem = problem_of(rates_of_nodes(node, 150.1, 25.3));
  EXPECT_EQ(min_cut_order(problem), natural_order(problem));
}

TEST(DeviceOrders, AreDeterministic) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(mix(5, seed));
    const Rates rates = random_tree(random);
    EXPECT_EQ(linkage_order(problem_of(rates)), linkage_order(problem_of(rates)));
    EXPECT_EQ(min_cut_order(problem_of(rates)), min_cut_order(problem_of(rates)));
  }
}

TEST(Counts, AscendToTheMost) {
  EXPECT_EQ(all_counts(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(all_counts(4), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(doubling_counts(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(doubling_counts(8), (std::vector<int32_t>{1, 2, 4, 8}));
  EXPECT_EQ(doubling_counts(12), (std::vector<int32_t>{1, 2, 4, 8, 12}));
}

// A link with a rate of a few levels, or unlimited.
Link random_link(Random& random) {
  return {Duration{}, 1e9 * static_cast<double>(random.below(12))};
}

// A cluster with `live` live workers and some dead ones. Most links are of a class; directions
// differ.
Cluster random_cluster(int32_t live, Random& random) {
  Cluster cluster;
  const int64_t places = 1 + random.below(5);
  for (int32_t count = 0; count < live;) {
    Worker worker;
    worker.speed = 0.25 * static_cast<double>(1 + random.below(8));
    worker.memory = {random.below(6) * 1000};
    worker.alive = random.below(5) > 0;
    if (worker.alive) ++count;
    cluster.workers.push_back(worker);
    cluster.place.push_back(static_cast<int32_t>(random.below(places)));
  }
  for (int64_t row = 0; row < places; ++row) {
    auto& links = cluster.between.emplace_back();
    for (int64_t column = 0; column < places; ++column) links.push_back(random_link(random));
  }
  const auto workers = static_cast<int64_t>(cluster.workers.size());
  for (int64_t i = random.below(2 * workers); i > 0; --i) {
    const WorkerId from{static_cast<int32_t>(random.below(workers))};
    const WorkerId to{static_cast<int32_t>(random.below(workers))};
    if (from != to) cluster.exceptions[{from, to}] = random_link(random);
  }
  return cluster;
}

// What UnitOrder tells, from the cluster and by looking at all pairs.
class AllPairs {
 public:
  // `workers`: in the order of their devices.
  AllPairs(const Cluster& cluster, std::vector<WorkerId> workers)
      : cluster_(cluster), workers_(std::move(workers)) {}

  // Of the workers first, ..., end - 1 of the order.
  double slowest_inside(int32_t first, int32_t end) const {
    double slowest = kUnlimited;
    for (int32_t i = first; i < end; ++i) {
      for (int32_t j = i + 1; j < end; ++j) slowest = std::min(slowest, rate(i, j));
    }
    return slowest;
  }
  double slowest_between(int32_t first, int32_t seam, int32_t end) const {
    double slowest = kUnlimited;
    for (int32_t i = first; i < seam; ++i) {
      for (int32_t j = seam; j < end; ++j) slowest = std::min(slowest, rate(i, j));
    }
    return slowest;
  }
  double speed(int32_t first, int32_t end) const {
    double least = kUnlimited;
    for (int32_t i = first; i < end; ++i) least = std::min(least, worker(i).speed);
    return least;
  }
  double memory(int32_t first, int32_t end) const {
    double least = kUnlimited;
    for (int32_t i = first; i < end; ++i) {
      if (worker(i).memory.count == 0) continue;
      least = std::min(least, static_cast<double>(worker(i).memory.count));
    }
    return least;
  }
  std::vector<WorkerId> workers(int32_t first, int32_t end) const {
    return {workers_.begin() + first, workers_.begin() + end};
  }

 private:
  const Worker& worker(int32_t place) const {
    return cluster_.workers[at(workers_[at(place)].value)];
  }
  double rate(int32_t one, int32_t other) const {
    double slower = kUnlimited;
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      const double rate = cluster_.link(workers_[at(from)], workers_[at(to)]).bytes_per_second;
      if (rate > 0) slower = std::min(slower, rate / 1e9);
    }
    return slower;
  }

  const Cluster& cluster_;
  std::vector<WorkerId> workers_;
};

void expect_agreement(const UnitOrder& units, const AllPairs& pairs, uint64_t seed) {
  const std::vector<int32_t>& counts = units.counts();
  const int32_t unit = units.unit();
  for (size_t c = 0; c < counts.size(); ++c) {
    for (int32_t first = 0; first + counts[c] <= units.unit_count(); ++first) {
      const int32_t begin = first * unit, end = (first + counts[c]) * unit;
      ASSERT_EQ(units.slowest_inside(first, c), pairs.slowest_inside(begin, end)) << seed;
      ASSERT_EQ(units.speed(first, c), pairs.speed(begin, end)) << seed;
      ASSERT_EQ(units.memory(first, c), pairs.memory(begin, end)) << seed;
      ASSERT_EQ(units.workers(first, counts[c]), pairs.workers(begin, end)) << seed;
      const int32_t seam = first + counts[c];
      for (size_t b = 0; b < counts.size() && seam + counts[b] <= units.unit_count(); ++b) {
        ASSERT_EQ(units.slowest_between(seam, c, b),
                  pairs.slowest_between(begin, end, end + counts[b] * unit))
            << seed;
      }
    }
  }
}

// Each number up to `most` with one chance in `chance`, and at least one number.
std::vector<int32_t> random_counts(int32_t most, int64_t chance, Random& random) {
  const auto one = 1 + static_cast<int32_t>(random.below(most));
  std::vector<int32_t> counts;
  for (int32_t count = 1; count <= most; ++count) {
    if (count == one || random.below(chance) == 0) counts.push_back(count);
  }
  return counts;
}

TEST(UnitOrder, AgreesWithAllPairs) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Random random(mix(6, seed));
    const auto unit = static_cast<int32_t>(1 + random.below(4));
    const auto count = static_cast<int32_t>(1 + random.below(unit == 1 ? 24 : 9));
    const Cluster cluster = random_cluster(unit * count, random);
    const LayoutProblem problem = problem_of(cluster);
    const DeviceOrder order = shuffled(at(unit * count), random);
    std::vector<WorkerId> live, ordered;
    for (size_t w = 0; w < cluster.workers.size(); ++w) {
      if (cluster.workers[w].alive) live.push_back(WorkerId{static_cast<int32_t>(w)});
    }
    for (const int32_t device : order) ordered.push_back(live[at(device)]);
    const AllPairs pairs(cluster, ordered);
    for (const std::vector<int32_t>& counts :
         {all_counts(count), doubling_counts(count), random_counts(count, 3, random),
          random_counts(count, 12, random)}) {
      const UnitOrder units(problem, order, unit, counts);
      EXPECT_EQ(units.unit_count(), count);
      EXPECT_EQ(units.unit(), unit);
      EXPECT_EQ(units.counts(), counts);
      expect_agreement(units, pairs, seed);
      if (HasFatalFailure()) return;
    }
  }
}

// A device alone has no rate that limits it; a unit of several has.
TEST(UnitOrder, CountsThePairsWithinAUnit) {
  const LayoutProblem problem = problem_of(rates_of_nodes({0, 0, 1, 1}, 25, 1));
  const DeviceOrder order = natural_order(problem);
  EXPECT_EQ(UnitOrder(problem, order, 1, {1}).slowest_inside(0, 0), kUnlimited);
  const UnitOrder pairs(problem, order, 2, {1, 2});
  EXPECT_EQ(pairs.slowest_inside(0, 0), 25);
  EXPECT_EQ(pairs.slowest_inside(0, 1), 1);
  EXPECT_EQ(pairs.slowest_between(1, 0, 0), 1);
}

}  // namespace
}  // namespace tenuto
