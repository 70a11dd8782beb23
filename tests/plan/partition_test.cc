// The partition against brute force.
#include "plan/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tenuto {
namespace {

struct Score {
  double most = 0, squares = 0;
};

Score score(const std::vector<double>& cost, const std::vector<int32_t>& cuts) {
  Score result;
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    double sum = 0;
    for (int32_t i = cuts[s]; i < cuts[s + 1]; ++i) sum += cost[static_cast<size_t>(i)];
    result.most = std::max(result.most, sum);
    result.squares += sum * sum;
  }
  return result;
}

// Every way to cut.
void each_cut(std::vector<int32_t>& cuts, int32_t layers, int32_t left,
              const std::vector<double>& cost, Score& best) {
  if (left == 1) {
    cuts.push_back(layers);
    const Score found = score(cost, cuts);
    if (found.most < best.most || (found.most == best.most && found.squares < best.squares)) {
      best = found;
    }
    cuts.pop_back();
    return;
  }
  for (int32_t end = cuts.back() + 1; end <= layers - left + 1; ++end) {
    cuts.push_back(end);
    each_cut(cuts, layers, left - 1, cost, best);
    cuts.pop_back();
  }
}

TEST(Partition, AgainstBruteForce) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    const auto layers = static_cast<int32_t>(1 + random.below(9));
    const auto stages = static_cast<int32_t>(1 + random.below(layers));
    std::vector<double> cost;
    for (int32_t k = 0; k < layers; ++k) cost.push_back(static_cast<double>(random.below(6)));
    const auto cuts = partition(cost, stages);
    ASSERT_TRUE(cuts.ok());
    ASSERT_EQ(cuts.value().size(), static_cast<size_t>(stages) + 1);
    EXPECT_EQ(cuts.value().front(), 0);
    EXPECT_EQ(cuts.value().back(), layers);
    EXPECT_TRUE(std::adjacent_find(cuts.value().begin(), cuts.value().end(),
                                   std::greater_equal<>()) == cuts.value().end());
    std::vector<int32_t> start = {0};
    Score best{1e300, 1e300};
    each_cut(start, layers, stages, cost, best);
    EXPECT_EQ(score(cost, cuts.value()).most, best.most);
    EXPECT_EQ(score(cost, cuts.value()).squares, best.squares);
  }
}

TEST(Partition, EqualLayers) {
  EXPECT_EQ(partition(std::vector<double>(7, 1.0), 3).value(), (std::vector<int32_t>{0, 3, 5, 7}));
  EXPECT_EQ(partition(std::vector<double>(4, 1.0), 4).value(),
            (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(partition(std::vector<double>(3, 0.0), 1).value(), (std::vector<int32_t>{0, 3}));
}

TEST(Partition, MoreStagesThanLayers) {
  const auto cuts = partition({1, 1}, 3);
  ASSERT_FALSE(cuts.ok());
  EXPECT_EQ(cuts.error().message,
            "the model has 2 layers and 3 stages were asked for, each of which needs at least one "
            "layer: ask for 1 to 2 stages");
}

// The partition by trying every end of every run of layers; of equally good ones, the one with the
// longer first run.
std::vector<int32_t> slow_partition(const std::vector<double>& cost, size_t stages) {
  const size_t layers = cost.size();
  std::vector<double> prefix(layers + 1, 0.0);
  for (size_t i = 0; i < layers; ++i) prefix[i + 1] = prefix[i] + cost[i];
  std::vector<std::vector<size_t>> next;
  const auto fill = [&](const auto& join) {
    std::vector<std::vector<double>> best(layers + 1, std::vector<double>(stages + 1, INFINITY));
    next.assign(layers + 1, std::vector<size_t>(stages + 1, layers));
    best[layers][0] = 0;
    for (size_t left = 1; left <= stages; ++left) {
      for (size_t i = 0; i + left <= layers; ++i) {
        for (size_t end = layers - left + 1; end > i; --end) {
          const double total = join(prefix[end] - prefix[i], best[end][left - 1]);
          if (total >= best[i][left]) continue;
          best[i][left] = total;
          next[i][left] = end;
        }
      }
    }
    return best[0][stages];
  };
  const double most = fill([](double run, double rest) { return std::max(run, rest); });
  fill([most](double run, double rest) { return run <= most ? run * run + rest : INFINITY; });
  std::vector<int32_t> firsts;
  size_t at = 0;
  for (size_t left = stages; left > 0; at = next[at][left--]) {
    firsts.push_back(static_cast<int32_t>(at));
  }
  firsts.push_back(static_cast<int32_t>(at));
  return firsts;
}

TEST(Partition, EqualsTheSlowMethod) {
  Random random(9);
  for (int i = 0; i < 400; ++i) {
    const auto layers = static_cast<int32_t>(1 + random.below(40));
    const auto stages = static_cast<int32_t>(1 + random.below(layers));
    const int64_t kinds = 1 + random.below(5);
    std::vector<double> cost;
    for (int32_t k = 0; k < layers; ++k) cost.push_back(static_cast<double>(random.below(kinds)));
    EXPECT_EQ(partition(cost, stages).value(), slow_partition(cost, static_cast<size_t>(stages)))
        << i;
  }
}

// Sizes that would take hours if the time grew with the square of the layers.
TEST(Partition, ManyLayers) {
  for (const auto& [layers, stages] :
       {std::pair(100'002, 2), {100'002, 1000}, {100'002, 16'384}, {1'000'000, 1'000'000}}) {
    std::vector<double> cost(static_cast<size_t>(layers), 12.0);
    cost.front() = 1;
    const auto cuts = partition(cost, stages);
    ASSERT_TRUE(cuts.ok());
    ASSERT_EQ(cuts.value().size(), static_cast<size_t>(stages) + 1);
    EXPECT_EQ(cuts.value().front(), 0);
    EXPECT_EQ(cuts.value().back(), layers);
    const int32_t least = (layers + stages - 1) / stages;
    for (size_t s = 0; s + 1 < cuts.value().size(); ++s) {
      const int32_t run = cuts.value()[s + 1] - cuts.value()[s];
      ASSERT_GE(run, 1);
      ASSERT_LE(run, least + 1);
    }
  }
}

}  // namespace
}  // namespace tenuto
