#include "monitor/monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "monitor/series.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

// A job with synthetic steps: pipelines x stages, a delay per link, a factor per worker.
struct Job {
  int32_t pipelines = 1, stages = 4, messages = 8;
  double op_ms = 2, jitter = 0;
  std::map<std::pair<int32_t, int32_t>, double> one_way_ms;  // by the earlier worker; else 0.1
  std::map<int32_t, double> factor;                          // of ops
  std::map<int32_t, double> run_delay_ms;  // of a worker, per step; else the kernel tells nothing
  double waiting_ms = 0;  // added to messages into worker 2, except the first of each step
  Random random{5};

  double noise() { return jitter == 0 ? 1 : std::exp(jitter * normal(random)); }

  Duration delay(int32_t first, int32_t to, int32_t message) {
    const auto own = one_way_ms.find({first, first + 1});
    const double waiting = to == 2 && message > 0 ? waiting_ms : 0;
    return from_milliseconds((own == one_way_ms.end() ? 0.1 : own->second) * noise() + waiting);
  }

  void note_ops(int32_t worker, int64_t step, std::vector<Event>& events) {
    const auto slow = factor.find(worker);
    for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
      for (int32_t i = 0; i < messages; ++i) {
        Event event;
        event.worker = {worker};
        event.step = step;
        event.op.kind = kind;
        event.op.stage = {worker % stages};
        event.finish =
            from_milliseconds(op_ms * noise() * (slow == factor.end() ? 1 : slow->second));
        events.push_back(event);
      }
    }
  }

  std::vector<StepSample> step(int64_t number) {
    std::vector<Event> events;
    for (int32_t worker = 0; worker < pipelines * stages; ++worker) {
      note_ops(worker, number, events);
      if (worker % stages == stages - 1) continue;
      Traffic traffic;
      traffic.first = {worker};
      traffic.second = {worker + 1};
      traffic.offset = milliseconds(worker * 977 - 3000);
      for (int32_t i = 0; i < messages; ++i) {
        traffic.forth.push_back(delay(worker, worker + 1, i));
        traffic.back.push_back(delay(worker, worker, i));
      }
      traffic.note(number, events);
    }
    std::vector<StepSample> samples = make_samples(events);
    for (StepSample& sample : samples) {
      const auto delay = run_delay_ms.find(sample.worker.value);
      if (delay == run_delay_ms.end()) continue;
      sample.processor = ProcessorSample{.run_delay = from_milliseconds(delay->second),
                                         .run_delay_is = Figure::Known,
                                         .pressure_is = Figure::Known};
    }
    return samples;
  }

  int32_t workers() const { return pipelines * stages; }
};

// Learns step by step, and keeps the results.
struct Watch {
  explicit Watch(const Job& job) : state(make_monitor(uniform_cluster(job.workers(), {}))) {}
  void learn_step(const std::vector<StepSample>& samples, int64_t step) {
    Detection detection = detect(std::move(state), samples, step);
    state = std::move(detection.state);
    cluster = std::move(detection.cluster);
    if (detection.changed) changed.push_back(step);
    for (Verdict& verdict : detection.verdicts) {
      sentences.push_back(verdict.sentence);
      verdicts.push_back(std::move(verdict));
    }
  }
  void run(Job& job, int64_t first, int64_t end) {
    for (int64_t step = first; step < end; ++step) learn_step(job.step(step), step);
  }
  double latency_ms(int32_t from, int32_t to) const {
    return to_milliseconds(cluster.link({from}, {to}).latency);
  }

  MonitorState state;
  Cluster cluster;
  std::vector<int64_t> changed;
  std::vector<Verdict> verdicts;
  std::vector<std::string> sentences;
};

TEST(Learn, ReportsASlowLinkAndItsHealing) {
  Job job;
  Watch watch(job);
  watch.run(job, 0, 40);
  EXPECT_TRUE(watch.sentences.empty());
  EXPECT_TRUE(watch.cluster.exceptions.empty());
  job.one_way_ms[{2, 3}] = 20.05;
  watch.run(job, 40, 120);
  EXPECT_EQ(watch.sentences,
            (std::vector<std::string>{"link 2-3 (worker 2 to worker 3) is slow since step 40: "
                                      "round trip 0.2 -> 40.1 ms, sure 0.99"}));
  EXPECT_EQ(watch.verdicts[0].found_step, 42);
  EXPECT_NEAR(watch.verdicts[0].factor, 40.1 / 0.2, 1e-3);
  EXPECT_EQ(watch.cluster.exceptions.size(), 2u);
  EXPECT_NEAR(watch.latency_ms(2, 3), 19.95, 1e-3);
  EXPECT_NEAR(watch.latency_ms(3, 2), 19.95, 1e-3);
  EXPECT_EQ(watch.cluster.link({2}, {3}).bytes_per_second, 0);
  // A healed link is reported at once, but used in plans only 20 steps later.
  job.one_way_ms.clear();
  watch.run(job, 120, 142);
  EXPECT_NEAR(watch.latency_ms(2, 3), 19.95, 1e-3);
  watch.run(job, 142, 200);
  EXPECT_TRUE(watch.cluster.exceptions.empty());
  EXPECT_EQ(watch.sentences.size(), 2u);
  EXPECT_EQ(watch.sentences.back(),
            "link 2-3 (worker 2 to worker 3) is healed since step 120: round trip 40.1 -> 0.2 ms, "
            "sure 0.99");
  EXPECT_EQ(watch.changed, (std::vector<int64_t>{42, 142}));
}

// The round trip grows by 1 ms. Of the 12 ms that a thread waited for a processor in a step, each
// of 8 messages may have waited 1.5 ms; of 4 ms, only 0.5 ms.
TEST(Learn, DoesNotTakeTheWaitForAProcessorForASlowLink) {
  const auto sentences_with = [](const std::map<int32_t, double>& run_delay_ms, double one_way_ms) {
    Job job;
    Watch watch(job);
    watch.run(job, 0, 40);
    job.one_way_ms[{2, 3}] = one_way_ms;
    job.run_delay_ms = run_delay_ms;
    watch.run(job, 40, 120);
    return std::ssize(watch.sentences);
  };
  EXPECT_EQ(sentences_with({}, 0.6), 1);
  EXPECT_EQ(sentences_with({{3, 12.0}}, 0.6), 0) << "the receiver's thread waited";
  EXPECT_EQ(sentences_with({{2, 12.0}}, 0.6), 0) << "the sender's thread waited";
  EXPECT_EQ(sentences_with({{1, 12.0}}, 0.6), 1) << "another worker's threads waited";
  EXPECT_EQ(sentences_with({{3, 4.0}}, 0.6), 1) << "no thread waited long enough";
  EXPECT_EQ(sentences_with({{3, 12.0}}, 20.1), 1) << "the link has added more than the wait";
}

TEST(Learn, ForgetsTheWaitOfAWorkerThatHasLeft) {
  Job job;
  Watch watch(job);
  job.run_delay_ms = {{3, 12.0}};
  watch.run(job, 0, 10);
  EXPECT_EQ(watch.state.run_delays.size(), 1u);
  EXPECT_TRUE(forget(watch.state, {3}).run_delays.empty());
}

TEST(Learn, PlansWithTheHigherEstimate) {
  Job job;
  Watch watch(job);
  watch.run(job, 0, 30);
  job.one_way_ms[{0, 1}] = 10.1;
  watch.run(job, 30, 50);
  EXPECT_NEAR(watch.latency_ms(0, 1), 10, 1e-3);
  job.one_way_ms[{0, 1}] = 40.1;
  watch.run(job, 50, 53);
  EXPECT_NEAR(watch.latency_ms(0, 1), 40, 1e-3) << "slower: at once";
  watch.run(job, 53, 80);
  job.one_way_ms[{0, 1}] = 5.1;
  watch.run(job, 80, 102);
  EXPECT_NEAR(watch.latency_ms(0, 1), 40, 1e-3) << "less slow: held";
  watch.run(job, 102, 103);
  EXPECT_NEAR(watch.latency_ms(0, 1), 5, 1e-3);
  ASSERT_EQ(watch.verdicts.size(), 3u);
  for (const Verdict& verdict : watch.verdicts) EXPECT_EQ(verdict.kind, VerdictKind::SlowLink);
  EXPECT_NEAR(to_milliseconds(watch.verdicts[2].before), 80.2, 1e-3);
  EXPECT_NEAR(to_milliseconds(watch.verdicts[2].after), 10.2, 1e-3);
}

TEST(Learn, AddsDelaysToTheHealthyLink) {
  Job job;
  Watch watch(job);
  watch.state.healthy.between = {{Link{milliseconds(2), 1e9}}};
  watch.state.healthy.exceptions[{{0}, {1}}] = {milliseconds(3), 0};
  watch.state.healthy.workers[1].speed = 0.5;
  job.factor[1] = 2;  // its healthy speed is 0.5
  watch.run(job, 0, 30);
  EXPECT_TRUE(watch.sentences.empty()) << watch.sentences[0];
  job.one_way_ms[{0, 1}] = 10.1;
  job.factor[1] = 4;
  watch.run(job, 30, 40);
  EXPECT_NEAR(watch.latency_ms(0, 1), 13, 1e-3);
  EXPECT_NEAR(watch.latency_ms(1, 0), 12, 1e-3);
  EXPECT_EQ(watch.cluster.link({1}, {0}).bytes_per_second, 1e9);
  EXPECT_NEAR(watch.latency_ms(1, 2), 2, 1e-9);
  EXPECT_EQ(watch.cluster.workers[1].speed, 0.25);
}

// A slow drift is reported when it reaches 20 %, and so is the drift back.
TEST(Learn, FollowsALongDrift) {
  Job job;
  job.jitter = 0.02;
  Watch watch(job);
  for (int64_t step = 0; step < 400; ++step) {
    const double share =
        std::clamp<double>(static_cast<double>(200 - std::abs(step - 200)), 0, 150);
    job.one_way_ms[{1, 2}] = 10 * (1 + share / 250);  // to 60 % more and back
    watch.learn_step(job.step(step), step);
  }
  ASSERT_GE(watch.verdicts.size(), 3u);
  EXPECT_EQ(watch.verdicts.front().kind, VerdictKind::SlowLink);
  EXPECT_EQ(watch.verdicts.back().kind, VerdictKind::LinkHealed);
  for (const Verdict& verdict : watch.verdicts) {
    EXPECT_EQ(verdict.from.value, 1) << verdict.sentence;
    EXPECT_LT(std::abs(std::log(verdict.factor)), std::log(1.35)) << verdict.sentence;
  }
}

TEST(Learn, DistinguishesASlowWorkerFromASlowLink) {
  Job job;
  job.jitter = 0.03;
  Watch watch(job);
  watch.run(job, 0, 30);
  job.factor[2] = 2.31;
  job.waiting_ms = 5;  // messages wait until the slow worker reads them
  watch.run(job, 30, 60);
  ASSERT_EQ(watch.sentences.size(), 1u);
  EXPECT_EQ(watch.sentences[0].substr(0, 31), "worker 2 is slow since step 30:");
  EXPECT_EQ(watch.verdicts[0].kind, VerdictKind::SlowWorker);
  EXPECT_EQ(watch.verdicts[0].found_step, 32);
  EXPECT_NEAR(watch.verdicts[0].factor, 2.31, 0.15);
  EXPECT_EQ(watch.cluster.workers[2].speed, 0.45);
  EXPECT_TRUE(watch.cluster.exceptions.empty());
  job.factor.clear();
  job.waiting_ms = 0;
  watch.run(job, 60, 90);
  ASSERT_EQ(watch.verdicts.size(), 2u);
  EXPECT_EQ(watch.verdicts[1].kind, VerdictKind::WorkerHealed);
  EXPECT_EQ(watch.verdicts[1].since_step, 60);
  EXPECT_EQ(watch.cluster.workers[2].speed, 1);
}

TEST(Learn, IgnoresShortAndSmallSlownessOfWorkers) {
  Job job;
  job.jitter = 0.05;
  Watch watch(job);
  watch.run(job, 0, 20);
  for (int64_t step = 20; step < 80; ++step) {
    job.factor.clear();
    if (step % 5 < 2) job.factor[1] = 3;  // two steps of five
    job.factor[3] = 1.15;                 // within the dead band
    watch.learn_step(job.step(step), step);
  }
  EXPECT_TRUE(watch.sentences.empty()) << watch.sentences[0];
}

// A worker that is slow from the first step on is found by comparison with its peers, or with
// profiled times.
TEST(Learn, FindsAWorkerThatWasNeverFast) {
  Job job;
  job.pipelines = 2;
  job.factor[5] = 1.6;
  Watch peers(job);
  peers.run(job, 0, 10);
  ASSERT_EQ(peers.sentences.size(), 1u);
  EXPECT_EQ(peers.sentences[0],
            "worker 5 is slow since step 0: its ops last 1.6 times as long as they should, planned "
            "with speed 0.65, sure 0.99");
  job.pipelines = 1;
  job.factor = {{1, 1.6}};
  Watch profiled(job);
  for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
    set_profiled(profiled.state, {1}, kind, milliseconds(2));
  }
  profiled.run(job, 0, 10);
  ASSERT_EQ(profiled.verdicts.size(), 1u);
  EXPECT_EQ(profiled.verdicts[0].from.value, 1);
  Watch unknown(job);
  unknown.run(job, 0, 10);
  EXPECT_TRUE(unknown.verdicts.empty()) << "nothing says how fast it should be";
}

// A delay too small to matter in a plan is not reported as a slow link: here 1 % of an op.
TEST(Learn, IgnoresDelaysFarBelowAnOp) {
  Job job;
  job.op_ms = 200;
  Watch watch(job);
  watch.run(job, 0, 30);
  job.one_way_ms[{0, 1}] = 1.1;
  watch.run(job, 30, 60);
  EXPECT_TRUE(watch.sentences.empty()) << watch.sentences[0];
  job.one_way_ms[{0, 1}] = 5;
  watch.run(job, 60, 70);
  EXPECT_EQ(watch.sentences.size(), 1u);
}

TEST(Learn, OrderOfSamplesDoesNotMatterAndItIsDeterministic) {
  Job job;
  job.pipelines = 2;
  job.jitter = 0.05;
  std::vector<std::vector<StepSample>> steps;
  for (int64_t step = 0; step < 90; ++step) {
    if (step == 30) job.one_way_ms[{1, 2}] = 3;
    if (step == 40) job.factor[6] = 1.7;
    if (step == 60) job.one_way_ms.clear();
    steps.push_back(job.step(step));
  }
  const auto told = [&](auto&& arrange) {
    Watch watch(job);
    std::string all;
    for (size_t step = 0; step < steps.size(); ++step) {
      std::vector<StepSample> samples = steps[step];
      arrange(samples);
      watch.learn_step(samples, static_cast<int64_t>(step));
      for (const auto& [name, link] : watch.cluster.exceptions) {
        all += cat(name.first, "-", name.second, " ", link.latency.count(), " ");
      }
      for (const Worker& worker : watch.cluster.workers) all += cat(worker.speed, " ");
    }
    for (const std::string& sentence : watch.sentences) all += sentence;
    EXPECT_EQ(watch.sentences.size(), 3u) << all;
    return all;
  };
  const std::string plain = told([](auto&) {});
  EXPECT_EQ(told([](auto&) {}), plain);
  Random random(1);
  const auto shuffle = [&](auto& list) {
    for (size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    }
  };
  EXPECT_EQ(told([&](auto& samples) {
              shuffle(samples);
              for (StepSample& sample : samples) {
                shuffle(sample.links);
                shuffle(sample.ops);
              }
            }),
            plain);
}

// Some reports are lost, and some come up to three steps late and in any order.
TEST(Learn, ToleratesMissingAndLateReports) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Job job;
    job.jitter = 0.05;
    Watch watch(job);
    Random random(seed);
    std::map<int64_t, std::vector<StepSample>> later;
    for (int64_t step = 0; step < 80; ++step) {
      if (step == 40) job.one_way_ms[{1, 2}] = 4;
      for (StepSample& sample : job.step(step)) {
        if (random.uniform() < 0.15) continue;
        later[step + (sample.worker.value == 1 ? random.below(4) : 0)].push_back(sample);
      }
      watch.learn_step(later[step], step);
    }
    ASSERT_EQ(watch.verdicts.size(), 1u) << seed;
    EXPECT_EQ(watch.verdicts[0].from.value, 1);
    EXPECT_GE(watch.verdicts[0].since_step, 40);
    EXPECT_LE(watch.verdicts[0].since_step, 46) << seed;
    EXPECT_LE(watch.verdicts[0].found_step, 60) << seed;
  }
}

TEST(Learn, IgnoresInvalidSamples) {
  Job job;
  Watch watch(job);
  StepSample odd;
  odd.worker = {99};
  LinkSample link;
  link.messages = 3;
  for (const auto& [from, to] :
       {std::pair(99, 0), std::pair(0, 99), std::pair(-1, 0), std::pair(0, -1), std::pair(2, 2)}) {
    link.from = {from};
    link.to = {to};
    odd.links.push_back(link);
  }
  odd.links.push_back({{0}, {1}, 0, {}, {}, {}, {}, {}, {}, {}});
  odd.ops.push_back({{99}, {0}, OpKind::Forward, 3, milliseconds(1)});
  odd.ops.push_back({{-1}, {0}, OpKind::Forward, 3, milliseconds(1)});
  odd.ops.push_back({{0}, {0}, OpKind::Forward, 0, milliseconds(1)});
  odd.ops.push_back({{0}, {0}, OpKind::Forward, 3, milliseconds(-1)});
  for (int64_t step = 0; step < 10; ++step) watch.learn_step({odd}, step);
  EXPECT_TRUE(watch.state.links.empty());
  EXPECT_TRUE(watch.state.workers.empty());
  watch.learn_step({}, 10);
  EXPECT_TRUE(watch.verdicts.empty());
}

TEST(Learn, ForgetsAWorker) {
  Job job;
  Watch watch(job);
  watch.run(job, 0, 30);
  job.one_way_ms[{1, 2}] = 4;
  job.factor[2] = 2;
  watch.run(job, 30, 40);
  EXPECT_EQ(watch.cluster.exceptions.size(), 2u);
  watch.state = forget(std::move(watch.state), {2});
  EXPECT_EQ(watch.state.links.size(), 1u);
  watch.learn_step({}, 40);
  EXPECT_TRUE(watch.cluster.exceptions.empty());
  EXPECT_EQ(watch.cluster.workers[2].speed, 1);
  EXPECT_EQ(watch.changed.back(), 40);
  const size_t told = watch.verdicts.size();
  watch.run(job, 41, 60);  // it is back: its link is new, its stage's times are known
  EXPECT_EQ(watch.state.links.size(), 3u);
  ASSERT_EQ(watch.verdicts.size(), told + 1);
  EXPECT_EQ(watch.verdicts.back().kind, VerdictKind::SlowWorker);
}

// Messages of two sizes over a link that loses rate one way, or that gains latency.
TEST(Learn, DistinguishesRateFromLatency) {
  const double full = 1e9, slowed = 5e7;
  for (const bool by_rate : {true, false}) {
    Job job;
    Watch watch(job);
    watch.state.healthy.between = {{Link{{}, full}}};
    const auto sample = [&](int32_t from, int32_t to, double rate, Duration latency) {
      LinkSample link;
      link.from = {from};
      link.to = {to};
      link.messages = 8;
      link.smallest = {100'000};
      link.largest = {1'000'000};
      link.of_smallest = latency + transfer_time(link.smallest, rate);
      link.of_largest = latency + transfer_time(link.largest, rate);
      link.least = link.of_smallest;
      link.median = link.upper = link.of_largest;
      StepSample step;
      step.worker = {to};
      step.links.push_back(link);
      return step;
    };
    for (int64_t step = 0; step < 60; ++step) {
      const bool slow = step >= 30;
      std::vector<StepSample> samples = {
          sample(0, 1, slow && by_rate ? slowed : full, milliseconds(slow && !by_rate ? 20 : 1)),
          sample(1, 0, full, milliseconds(1))};
      for (StepSample& each : samples) each.step = step;
      watch.learn_step(samples, step);
    }
    ASSERT_EQ(watch.verdicts.size(), 1u);
    EXPECT_EQ(watch.verdicts[0].found_step, 32);
    EXPECT_NEAR(watch.cluster.link({0}, {1}).bytes_per_second, by_rate ? slowed : full, 1e3);
    EXPECT_EQ(watch.cluster.link({1}, {0}).bytes_per_second, full);
    EXPECT_NEAR(watch.latency_ms(0, 1), by_rate ? 0 : 9.5, 1e-2);
    EXPECT_NEAR(watch.latency_ms(1, 0), by_rate ? 0 : 9.5, 1e-2);
  }
}

TEST(Learn, AThousandWorkers) {
  Job job;
  job.pipelines = 250;
  job.messages = 2;
  job.jitter = 0.02;
  Watch watch(job);
  watch.run(job, 0, 25);
  job.one_way_ms[{501, 502}] = 3;
  job.factor[998] = 1.5;
  watch.run(job, 25, 35);
  EXPECT_EQ(watch.state.links.size(), 750u);
  ASSERT_EQ(watch.verdicts.size(), 2u);
  EXPECT_EQ(watch.verdicts[0].sentence.substr(0, 12), "link 501-502");
  EXPECT_EQ(watch.verdicts[1].sentence.substr(0, 10), "worker 998");
}

}  // namespace
}  // namespace tenuto
