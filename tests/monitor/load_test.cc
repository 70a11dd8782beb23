// Why a worker is slow, from given figures of the kernel.
#include "monitor/load.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "monitor/monitor.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

// One step of worker 1, which runs eight ops: how long each lasts, what the kernel tells, and how
// long messages from and to worker 0 take.
struct Given {
  Duration op = milliseconds(10);
  Duration cpu = milliseconds(80), run_delay = milliseconds(2);
  double pressure = 0.05;
  Duration way = milliseconds(1);
  Figure run_delay_is = Figure::Known, pressure_is = Figure::Known;
};

// Two workers, of which worker 1 is the one of Given.
struct Pair {
  MonitorState state = make_monitor(uniform_cluster(2, {}));
  int64_t next = 0;
  int32_t every = 1;  // the kernel is asked once in so many steps, in the last of them
  std::vector<std::string> told;
  std::vector<Verdict> verdicts;

  static LinkSample link(int32_t from, int32_t to, Duration way) {
    return {.from = {from},
            .to = {to},
            .messages = 8,
            .least = way,
            .median = way,
            .upper = way,
            .smallest = {64},
            .largest = {64},
            .of_smallest = way,
            .of_largest = way};
  }

  void steps(const Given& given, int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<StepSample> samples(2);
      for (int32_t worker = 0; worker < 2; ++worker) {
        StepSample& of = samples[static_cast<size_t>(worker)];
        of.worker = {worker};
        of.step = next;
        of.links = {link(1 - worker, worker, given.way)};
        of.ops = {{{worker}, {worker}, OpKind::Forward, 8, worker == 1 ? given.op : Given().op}};
      }
      if (next % every == every - 1) {
        samples[1].processor = ProcessorSample{.steps = every,
                                               .step = 8 * given.op + milliseconds(20),
                                               .cpu = given.cpu,
                                               .run_delay = given.run_delay,
                                               .pressure = given.pressure,
                                               .run_delay_is = given.run_delay_is,
                                               .pressure_is = given.pressure_is};
      }
      Detection found = detect(std::move(state), samples, next++);
      state = std::move(found.state);
      for (Verdict& verdict : found.verdicts) {
        told.push_back(verdict.sentence);
        verdicts.push_back(std::move(verdict));
      }
    }
  }
};

const std::string kSlow =
    "worker 1 is slow since step 20: its ops last 2 times as long as they should, planned with "
    "speed 0.5, sure 0.99";

// Twenty healthy steps, then ops of 20 ms: 80 ms more in each step.
TEST(Load, SentencesNameTheCause) {
  struct Case {
    Given slow;
    std::string says;
    Given healthy = {};
  };
  const auto ms = [](int64_t count) { return milliseconds(count); };
  const std::vector<Case> cases = {
      {{ms(20), ms(80), ms(82), 0.8},
       "; other processes take the processors of its host: it waited for one in 46 % of its steps' "
       "time (pressure 80 %)"},
      {{ms(20), ms(160), ms(2), 0.05},
       "; its device is slow; waiting for the processors of its host explains less than half of "
       "it: "
       "it waited for one in 1 % of its steps' time (pressure 5 %)"},
      // A host with fewer processors than workers: it has always waited for one.
      {{ms(20), ms(160), ms(42), 0.9},
       "; its device is slow; waiting for the processors of its host explains less than half of "
       "it: "
       "it waited for one in 23 % of its steps' time (pressure 90 %)",
       {ms(10), ms(80), ms(40), 0.9}},
      {{ms(20), ms(80), ms(0), 0.8, ms(1), Figure::NotThere},
       "; other processes take the processors of its host: pressure on them is 80 %",
       {ms(10), ms(80), ms(0), 0.05, ms(1), Figure::NotThere}},
      {{ms(20), ms(80), ms(82), 0, ms(1), Figure::Known, Figure::NotThere},
       "; other processes take the processors of its host: it waited for one in 46 % of its steps' "
       "time",
       {ms(10), ms(80), ms(2), 0, ms(1), Figure::Known, Figure::NotThere}},
      {{ms(20), ms(80), ms(0), 0, ms(1), Figure::Forbidden, Figure::NotThere},
       "",
       {ms(10), ms(80), ms(0), 0, ms(1), Figure::Forbidden, Figure::NotThere}},
      {{ms(20), ms(80), ms(82), 0.8, ms(30)},
       "; most of what each of its steps loses is on its link: messages arrive 232 ms later, ops "
       "last 80 ms longer"},
  };
  for (const Case& it : cases) {
    SCOPED_TRACE(it.says);
    Pair pair;
    pair.steps(it.healthy, 20);
    pair.steps(it.slow, 20);
    std::vector<std::string> workers;
    for (const Verdict& verdict : pair.verdicts) {
      if (verdict.kind == VerdictKind::SlowWorker) workers.push_back(verdict.sentence);
    }
    EXPECT_EQ(workers, (std::vector<std::string>{kSlow + it.says}));
  }
}

TEST(Load, SentencesNameTheHostWhereItIsKnown) {
  Pair pair;
  pair.steps(Given(), 20);
  pair.steps({milliseconds(20), milliseconds(80), milliseconds(82), 0.8}, 10);
  ASSERT_EQ(pair.verdicts.size(), 1u);
  Verdict verdict = pair.verdicts[0];
  verdict.host = "node7 (10.0.0.5)";
  EXPECT_EQ(sentence_of(verdict),
            kSlow +
                "; other processes take the processors of its host node7 (10.0.0.5): it waited "
                "for one in 46 % of its steps' time (pressure 80 %)");
}

// It is compared with the profile; that it never waits for a processor is assumed.
TEST(Load, AWorkerThatWasNeverFast) {
  for (const bool delayed : {true, false}) {
    Pair pair;
    set_profiled(pair.state, {1}, OpKind::Forward, milliseconds(10));
    pair.steps({milliseconds(20), milliseconds(80), milliseconds(delayed ? 40 : 39)}, 10);
    ASSERT_EQ(pair.verdicts.size(), 1u);
    ASSERT_TRUE(pair.verdicts[0].cause);
    EXPECT_EQ(pair.verdicts[0].cause->cause,
              delayed ? StragglerCause::Cpu : StragglerCause::Device);
  }
}

// Without run delay, the worker's processor time before it became slow is not known either: then
// half of the time of its ops has to be no processor time.
TEST(Load, AWorkerThatWasNeverFastWithoutRunDelay) {
  for (const bool idle : {true, false}) {
    Pair pair;
    set_profiled(pair.state, {1}, OpKind::Forward, milliseconds(10));
    pair.steps({milliseconds(20), milliseconds(idle ? 80 : 81), Duration(0), 0.8, milliseconds(1),
                Figure::NotCounted},
               10);
    ASSERT_EQ(pair.verdicts.size(), 2u);
    EXPECT_EQ(pair.verdicts[0].kind, VerdictKind::Unmeasured);
    ASSERT_TRUE(pair.verdicts[1].cause);
    EXPECT_EQ(pair.verdicts[1].cause->cause, idle ? StragglerCause::Cpu : StragglerCause::Device);
  }
}

// Where steps are short, the kernel is not asked in each of them, and its figures are of several:
// only those count that began after the change. The verdict is given at once, its cause later.
TEST(Load, TheCauseFollowsWhereStepsAreShort) {
  for (const auto& [change, found] : {std::pair(20, 24), std::pair(21, 29), std::pair(24, 29)}) {
    SCOPED_TRACE(change);
    Pair pair;
    pair.every = 5;
    pair.steps({}, change);
    pair.steps({milliseconds(20), milliseconds(80), milliseconds(82), 0.8}, 30);
    ASSERT_EQ(pair.verdicts.size(), 2u);
    EXPECT_EQ(pair.verdicts[0].found_step, change + 2);
    EXPECT_FALSE(pair.verdicts[0].cause);
    EXPECT_EQ(pair.verdicts[1].found_step, found);
    ASSERT_TRUE(pair.verdicts[1].cause);
    EXPECT_EQ(pair.verdicts[1].cause->cause, StragglerCause::Cpu);
    EXPECT_EQ(pair.told[1].substr(0, pair.told[0].size() + 2), pair.told[0] + "; ");
  }
}

TEST(Load, CausesOfOneWorkerDiffer) {
  Pair pair;
  pair.steps({}, 20);
  pair.steps({milliseconds(20), milliseconds(80), milliseconds(82), 0.8}, 20);
  pair.steps({milliseconds(40), milliseconds(320), milliseconds(2)}, 20);
  pair.steps({}, 20);
  pair.steps({milliseconds(20), milliseconds(160), milliseconds(2)}, 20);
  ASSERT_EQ(pair.verdicts.size(), 4u);
  EXPECT_EQ(pair.verdicts[0].cause->cause, StragglerCause::Cpu);
  EXPECT_EQ(pair.verdicts[1].cause->cause, StragglerCause::Device);
  EXPECT_EQ(pair.verdicts[2].kind, VerdictKind::WorkerHealed);
  EXPECT_EQ(
      pair.told[2],
      "worker 1 is healed since step 60: its ops last 1 times as long as they should, planned "
      "with speed 1, sure 0.99");
  EXPECT_EQ(pair.verdicts[3].cause->cause, StragglerCause::Device);
  EXPECT_TRUE(pair.state.loads.at({1}).verdict());
  pair.state = forget(std::move(pair.state), {1});
  EXPECT_TRUE(pair.state.loads.empty());
}

// One sentence for a worker whose kernel does not tell all.
TEST(Load, SaysOnceWhatIsNotKnown) {
  struct Case {
    Figure run_delay, pressure;
    std::string says;
  };
  const std::string schedstat =
      "how long threads wait for a processor (/proc/self/task/*/schedstat ";
  for (const Case& it :
       {Case{Figure::NotThere, Figure::NotThere,
             cat(schedstat,
                 "is not there: the kernel was built without CONFIG_SCHED_INFO), nor the pressure "
                 "on "
                 "its processors (/proc/pressure/cpu is not there: the kernel was built without "
                 "CONFIG_PSI); it stays unknown there whether others take a slow worker's "
                 "processors")},
        Case{Figure::Forbidden, Figure::Known,
             cat(schedstat,
                 "may not be read by this user); there, pressure alone tells whether others take a "
                 "slow worker's processors")},
        Case{Figure::Known, Figure::NotCounted,
             "the pressure on its processors (/proc/pressure/cpu is there, but the kernel was told "
             "not to count); causes of slow workers are told without it"},
        Case{Figure::Unreadable, Figure::Known,
             cat(schedstat,
                 "cannot be read); there, pressure alone tells whether others take a slow worker's "
                 "processors")}}) {
    Pair pair;
    Given given;
    given.run_delay_is = it.run_delay;
    given.pressure_is = it.pressure;
    pair.steps(given, 30);
    EXPECT_EQ(pair.told, (std::vector<std::string>{
                             cat("worker 1: the kernel of its host does not tell ", it.says)}));
    Verdict verdict = pair.verdicts.at(0);
    verdict.host = "10.0.0.5";
    EXPECT_EQ(sentence_of(verdict),
              cat("worker 1: the kernel of its host 10.0.0.5 does not tell ", it.says));
  }
}

// Only the newest eight healthy steps, and the newest eight slow ones, say what is usual and what
// is not: what was long ago does not hide a cause.
TEST(Load, KeepsTheNewestSteps) {
  LoadWatch watch;
  const auto load = [](int64_t step, double took, int64_t run_delay) {
    StepLoad of{step, took, 80e6, 0, {.step = milliseconds(180)}};
    of.processor.run_delay = milliseconds(run_delay);
    of.processor.run_delay_is = of.processor.pressure_is = Figure::Known;
    return of;
  };
  for (int64_t step = 0; step < 100; ++step) watch.add(load(step, 80e6, step < 92 ? 60 : 0));
  for (int64_t step = 100; step < 200; ++step) watch.add(load(step, 160e6, step < 192 ? 0 : 60));
  watch.add(load(199, 160e6, 1000));  // not newer
  Verdict verdict;
  verdict.kind = VerdictKind::SlowWorker;
  verdict.since_step = 100;
  watch.judge(verdict);
  ASSERT_TRUE(verdict.cause);
  EXPECT_EQ(verdict.cause->cause, StragglerCause::Cpu);
  EXPECT_DOUBLE_EQ(*verdict.cause->waited, 60.0 / 180);
  EXPECT_EQ(verdict.cause->ops_longer, milliseconds(80));
  EXPECT_FALSE(watch.late_verdict()) << "the cause is known already";
}

}  // namespace
}  // namespace tenuto
