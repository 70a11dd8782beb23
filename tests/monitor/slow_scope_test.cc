// What is slow as a whole when a link is: a port, a boundary, a worker, or the link alone.
#include "monitor/slow_scope.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "monitor/monitor.h"

namespace tenuto {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

using LinkName = std::pair<WorkerId, WorkerId>;

LinkSample messages(WorkerId from, WorkerId to, Duration way) {
  return {.from = from,
          .to = to,
          .messages = 8,
          .least = way,
          .median = way,
          .upper = way,
          .smallest = {64},
          .largest = {64},
          .of_smallest = way,
          .of_largest = way};
}

// Two pipelines of three workers, of which these links have become slow.
MonitorState judged(const std::set<LinkName>& slow) {
  MonitorState state = make_monitor(uniform_cluster(6, {kMillisecond, 0}));
  for (int64_t step = 0; step < 40; ++step) {
    StepSample sample{{0}, step, {}, {}};
    for (const int32_t first : {0, 1, 3, 4}) {
      const LinkName link{{first}, {first + 1}};
      const Duration way = step >= 20 && slow.contains(link) ? 40 * kMillisecond : kMillisecond;
      sample.links.push_back(messages(link.first, link.second, way));
      sample.links.push_back(messages(link.second, link.first, way));
    }
    state = detect(std::move(state), std::vector<StepSample>{sample}, step).state;
  }
  for (const auto& [link, watch] : state.links) EXPECT_EQ(watch.slow(), slow.contains(link));
  return state;
}

// The scope of link 0-1.
std::string scope(const std::set<LinkName>& slow, const std::vector<std::string>& hosts = {},
                  const std::vector<Port>& ports = {}) {
  return slow_scope({{0}, {1}}, judged(slow).links, link_groups(hosts, ports), Seats(3));
}

const LinkName kFirst{{0}, {1}}, kSecond{{1}, {2}}, kOther{{3}, {4}};

TEST(SlowScope, ALinkAloneABoundaryAWorker) {
  EXPECT_EQ(scope({kFirst}), "");
  EXPECT_EQ(scope({kFirst, kOther}), "the boundary 0-1 in every pipeline");
  EXPECT_EQ(scope({kFirst, kSecond}), "worker 1");
}

TEST(SlowScope, APortIsNamedBeforeABoundary) {
  EXPECT_EQ(scope({kFirst, kOther}, {"a", "b", "c", "a", "b", "c"}), "the port of host a");
  EXPECT_EQ(scope({kFirst, kOther}, {"a", "b", "b", "a", "b", "b"}),
            "the port of host a and the port of host b");
  EXPECT_EQ(scope({kFirst, kOther}, std::vector<std::string>(6, "a")),
            "the boundary 0-1 in every pipeline");
  EXPECT_EQ(scope({kFirst}, {"a", "b", "c", "a", "b", "c"}), "");
  Port card;
  card.name = "card";
  card.devices = {{0}, {3}};
  EXPECT_EQ(scope({kFirst, kOther}, {}, {card}), "the port card");
  EXPECT_EQ(scope({kFirst}, {}, {card}), "");
}

TEST(SlowScope, IsInTheSentence) {
  Verdict verdict;
  verdict.from = {0};
  verdict.to = {1};
  verdict.since_step = 40;
  verdict.before = kMillisecond;
  verdict.after = 40 * kMillisecond;
  verdict.sure = 0.99;
  verdict.scope = "the boundary 0-1 in every pipeline";
  EXPECT_EQ(sentence_of(verdict),
            "link 0-1 (worker 0 to worker 1) is slow since step 40: round trip 1 -> 40 ms, sure "
            "0.99; all links of the boundary 0-1 in every pipeline are slow");
}

}  // namespace
}  // namespace tenuto
