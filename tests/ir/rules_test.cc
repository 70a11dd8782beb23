// Searches every order of events on small networks under our rule of taking ops, slots and buffers,
// and under other ones: some never deadlock, the forbidden ones must deadlock in some networks.
#include "ir/rules.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace tenuto {
namespace {

// Returns how many random networks can deadlock under a rule, and how many networks there were.
std::pair<int, int> count_standing(const Rule& rule) {
  int standing = 0, networks = 0;
  for (const auto& [stages, micros, seeds] :
       {std::tuple(2, 3, 80), {3, 3, 80}, {2, 4, 40}, {3, 4, 8}}) {
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(seeds); ++seed, ++networks) {
      Random random(mix(91, seed, static_cast<uint64_t>(10 * stages + micros)));
      standing += can_stand_still(draw_network(random, stages, micros), rule);
    }
  }
  std::printf("%-62s %3d of %d networks can stand still\n", rule.name, standing, networks);
  return {standing, networks};
}

// The last of them is ours: lists in one order, receives posted by name in list order.
TEST(Rules, TheseRulesNeverDeadlock) {
  for (const Rule& rule :
       {Rule{"free", Taking::Free}, Rule{"free, one buffer", Taking::Free, false, 1},
        Rule{"sums in order, last slot reserved", Taking::Sums, true},
        Rule{"sums in order, last slot and buffer reserved, one", Taking::Sums, true, 1, true},
        Rule{"sums in order, last slot and buffer reserved, two", Taking::Sums, true, 2, true},
        Rule{"one order, one buffer reserved, messages in line", Taking::Global, false, 1, true,
             true},
        Rule{"one order", Taking::Global},
        Rule{"one order, one buffer by name", Taking::Global, false, 1, true}}) {
    EXPECT_EQ(count_standing(rule).first, 0) << rule.name;
  }
}

// Each of these rules differs in one point from a rule above.
TEST(Rules, TheseRulesCanDeadlock) {
  for (const Rule& rule :
       {Rule{"an order of each worker's own", Taking::Own},
        Rule{"sums in order, the others free, no slot reserved", Taking::Sums},
        Rule{"last slot reserved, one buffer for whoever comes first", Taking::Sums, true, 1},
        Rule{"last slot and buffer reserved, messages in line", Taking::Sums, true, 1, true, true},
        Rule{"one order, one buffer for whoever comes first", Taking::Global, false, 1}}) {
    const auto [standing, networks] = count_standing(rule);
    EXPECT_GT(standing, networks / 20) << rule.name;
  }
}

}  // namespace
}  // namespace tenuto
