// Which changes detection finds and which variations it ignores, over many series of each kind.
#include "monitor/series.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "base/text.h"

namespace tenuto {
namespace {

constexpr int kSeries = 200;

// The results over the series of one kind.
struct Tally {
  int changes = 0, in_time = 0, late = 0, missed = 0, false_alarms = 0;
  std::map<int64_t, int> after;  // steps from the change to the verdict
};

// The step of the first verdict of `kind` at or after `changed`, and its place; -1 = none.
int64_t find(const std::vector<Verdict>& verdicts, VerdictKind kind, int64_t changed, size_t& at) {
  for (at = 0; at < verdicts.size(); ++at) {
    if (verdicts[at].kind == kind && verdicts[at].found_step >= changed) {
      return verdicts[at].found_step;
    }
  }
  return -1;
}

void judge(std::vector<Verdict> verdicts, const Series& series, Tally& tally) {
  const auto expect = [&](VerdictKind kind, int64_t changed) {
    if (changed < 0) return;
    ++tally.changes;
    size_t at = 0;
    const int64_t found = find(verdicts, kind, changed, at);
    if (found < 0) {
      ++tally.missed;
      return;
    }
    ++tally.after[found - changed + 1];
    ++(found < changed + 3 ? tally.in_time : tally.late);
    EXPECT_LE(std::abs(verdicts[at].since_step - changed), 2) << verdicts[at].sentence;
    EXPECT_GE(verdicts[at].sure, 0.99);
    verdicts.erase(verdicts.begin() + static_cast<std::ptrdiff_t>(at));
  };
  expect(VerdictKind::SlowLink, series.changed());
  expect(VerdictKind::LinkHealed, series.healed());
  tally.false_alarms += static_cast<int>(verdicts.size());
  for (const Verdict& verdict : verdicts) std::printf("    %s\n", verdict.sentence.c_str());
}

Tally run(Trouble trouble) {
  Tally tally;
  for (uint64_t seed = 0; seed < kSeries; ++seed) {
    Series series(trouble, seed);
    MonitorState state = make_monitor(uniform_cluster(8, {}));
    std::vector<Verdict> verdicts;
    for (int64_t step = 0; step < Series::kSteps; ++step) {
      Detection detection = detect(std::move(state), series.next(), step);
      state = std::move(detection.state);
      for (Verdict& verdict : detection.verdicts) {
        EXPECT_EQ(verdict.from.value, seed % 2 == 0 ? 0 : 6);
        EXPECT_EQ(verdict.to.value, verdict.from.value + 1);
        verdicts.push_back(std::move(verdict));
      }
    }
    judge(std::move(verdicts), series, tally);
  }
  std::string after;
  for (const auto& [steps, count] : tally.after) after += cat(" ", steps, ":", count);
  std::printf("%8d %8d %8d %8d %8d   steps until found:%s\n", tally.changes, tally.in_time,
              tally.late, tally.missed, tally.false_alarms, after.c_str());
  return tally;
}

// The number of false alarms that is allowed: none, except if all messages of a step jitter
// together, or if a change comes on top of jitter and spikes. Then three steps in a row can look
// like a change by chance.
int allowed(Trouble trouble) {
  return trouble == Trouble::StepJitter || trouble == Trouble::StepNoisy ? kSeries / 50 : 0;
}

class Finds : public testing::TestWithParam<std::pair<const char*, Trouble>> {};

TEST_P(Finds, Within3Steps) {
  std::printf("%-12s %8s %8s %8s %8s %8s\n", GetParam().first, "changes", "within 3", "later",
              "missed", "false");
  const Tally tally = run(GetParam().second);
  EXPECT_GE(tally.changes, kSeries);
  EXPECT_GE(tally.in_time * 100, tally.changes * 99);
  EXPECT_EQ(tally.missed, 0);
  EXPECT_LE(tally.false_alarms, allowed(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(Series, Finds,
                         testing::Values(std::pair("forth", Trouble::StepForth),
                                         std::pair("back", Trouble::StepBack),
                                         std::pair("both", Trouble::StepBoth),
                                         std::pair("noisy", Trouble::StepNoisy),
                                         std::pair("heal", Trouble::Heal)),
                         [](const auto& one) { return one.param.first; });

class Ignores : public testing::TestWithParam<std::pair<const char*, Trouble>> {};

TEST_P(Ignores, WhatIsNoChange) {
  std::printf("%-12s %8s %8s %8s %8s %8s\n", GetParam().first, "changes", "within 3", "later",
              "missed", "false");
  EXPECT_LE(run(GetParam().second).false_alarms, allowed(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(Series, Ignores,
                         testing::Values(std::pair("steady", Trouble::Steady),
                                         std::pair("jitter", Trouble::Jitter),
                                         std::pair("step_jitter", Trouble::StepJitter),
                                         std::pair("spikes", Trouble::Spikes),
                                         std::pair("drift", Trouble::Drift)),
                         [](const auto& one) { return one.param.first; });

}  // namespace
}  // namespace tenuto
