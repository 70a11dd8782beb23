// Injected faults: their effect in a step, and how they are read.
#include "world/fault.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/random.h"
#include "base/text.h"
#include "world/fault_trace.h"
#include "world/job.h"
#include "world/job_file.h"
#include "world/load.h"

namespace tenuto {
namespace {

Duration ms(double milliseconds) { return from_milliseconds(milliseconds); }

Fault slow_link(int32_t link, double latency_ms, int64_t at = 0, int64_t until = -1) {
  Fault fault;
  fault.link = link;
  fault.latency_ms = latency_ms;
  fault.at_step = at;
  fault.until_step = until;
  return fault;
}

TEST(Fault, ALinkIsSlowBothWaysInEveryPipelineWhileItLasts) {
  const Cluster base = uniform_cluster(8, {ms(1), 5e6});
  const std::vector<Fault> faults = {slow_link(2, 20, 3, 5)};
  EXPECT_TRUE(links_at(faults, 2, 4, base).empty());
  EXPECT_TRUE(links_at(faults, 5, 4, base).empty());
  for (const int64_t step : {3, 4}) {
    const LinkStates states = links_at(faults, step, 4, base);
    ASSERT_EQ(states.size(), 4u);
    for (const auto& [from, to] : {std::pair(2, 3), {3, 2}, {6, 7}, {7, 6}}) {
      const LinkState& state = states.at({{from}, {to}});
      EXPECT_EQ(state.link.latency, ms(21));
      EXPECT_EQ(state.link.bytes_per_second, 5e6);
      EXPECT_EQ(state.jitter, Duration(0));
    }
  }
}

TEST(Fault, FaultsOnOneLinkAddUpAndTheLowestRateCounts) {
  Fault one = slow_link(0, 2);
  one.megabytes_per_second = 3;
  one.jitter_ms = 1;
  Fault other;  // one direction only
  other.from = 1;
  other.to = 0;
  other.latency_ms = 5;
  other.jitter_ms = 2;
  other.megabytes_per_second = 7;
  const Cluster base = uniform_cluster(2, {});
  const LinkStates states = links_at({one, other}, 0, 2, base);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states.at({{0}, {1}}).link.latency, ms(2));
  EXPECT_EQ(states.at({{1}, {0}}).link.latency, ms(7));
  EXPECT_EQ(states.at({{1}, {0}}).jitter, ms(3));
  EXPECT_EQ(states.at({{1}, {0}}).link.bytes_per_second, 3e6);
  const Cluster priced = with_links(base, states);
  EXPECT_EQ(priced.link({1}, {0}).latency, ms(8.5));
  EXPECT_EQ(priced.link({0}, {1}).latency, ms(2.5));
}

// Both directions of one pair, and no other link.
TEST(Fault, APairIsOneLinkBothWays) {
  Fault fault;
  fault.pair = "0.1-3";
  fault.latency_ms = 4;
  const LinkStates states = links_at({fault}, 0, 2, uniform_cluster(4, {}));
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states.at({{1}, {3}}).link.latency, ms(4));
  EXPECT_EQ(states.at({{3}, {1}}).link.latency, ms(4));
  EXPECT_EQ(describe(fault), "4 ms more each way on the link between workers 0.1 and 3");
}

// All links through the port slow together, those between its devices only if they pass it, too.
TEST(Fault, APortSlowsAllLinksThroughIt) {
  Cluster base = uniform_cluster(4, {});
  Port card;
  card.name = "host 0";
  card.devices = {{0}, {1}};
  card.bytes_per_second = 8e6;
  base.ports = {card};
  Fault fault;
  fault.port = "host 0";
  fault.latency_ms = 4;
  fault.megabytes_per_second = 2;
  for (const bool inside : {false, true}) {
    base.ports[0].inside = inside;
    const LinkStates states = links_at({fault}, 0, 2, base);
    EXPECT_EQ(states.size(), inside ? 10u : 8u);
    EXPECT_EQ(states.contains({{0}, {1}}), inside);
    EXPECT_FALSE(states.contains({{2}, {3}}));
    EXPECT_EQ(states.at({{3}, {1}}).link.latency, ms(4));
    EXPECT_EQ(states.at({{1}, {3}}).link.bytes_per_second, 2e6);
    // In a price all messages through the port share its rate.
    EXPECT_EQ(with_faults(base, {fault}, 0, 2).ports[0].bytes_per_second, 2e6);
  }
  EXPECT_EQ(describe(fault), "4 ms more each way, at most 2 MB/s on all links of the port host 0");
  // The port of a worker: all its links.
  fault.port = "1.0";
  const LinkStates states = links_at({fault}, 0, 2, base);
  EXPECT_EQ(states.size(), 6u);
  EXPECT_EQ(describe(fault), "4 ms more each way, at most 2 MB/s on all links of worker 1.0");
  for (const auto& [ends, state] : states) {
    EXPECT_TRUE(ends.first.value == 2 || ends.second.value == 2);
  }
  EXPECT_EQ(with_faults(base, {fault}, 0, 2).ports[0].bytes_per_second, 8e6);
}

TEST(Fault, ChangeStepsAndDescriptions) {
  EXPECT_EQ(change_steps({slow_link(0, 1, 0, 9), slow_link(1, 1, 4), slow_link(2, 1, 4, 6)}),
            (std::vector<int64_t>{4, 6, 9}));
  Fault fault = slow_link(2, 20);
  fault.jitter_ms = 1.5;
  fault.megabytes_per_second = 3;
  EXPECT_EQ(describe(fault),
            "20 ms more each way, up to 1.5 ms of jitter, at most 3 MB/s on link 2");
  fault.link = -1;
  fault.from = 4;
  fault.to = 5;
  fault.jitter_ms = fault.megabytes_per_second = 0;
  EXPECT_EQ(describe(fault), "20 ms more from worker 4 to worker 5");
}

// Links change only at the steps that change_steps() names, whatever the faults.
TEST(Fault, StatesChangeAtChangeStepsOnly) {
  Random random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<Fault> faults;
    for (int64_t i = random.below(4); i >= 0; --i) {
      const int64_t at = random.below(10);
      faults.push_back(slow_link(static_cast<int32_t>(random.below(3)), 1 + random.uniform(), at,
                                 random.below(2) == 0 ? -1 : at + 1 + random.below(10)));
    }
    const std::vector<int64_t> changes = change_steps(faults);
    const Cluster base = uniform_cluster(8, {});
    for (int64_t step = 1; step < 25; ++step) {
      if (std::find(changes.begin(), changes.end(), step) != changes.end()) continue;
      const LinkStates before = links_at(faults, step - 1, 4, base);
      const LinkStates now = links_at(faults, step, 4, base);
      ASSERT_EQ(before.size(), now.size());
      for (const auto& [ends, state] : now) {
        EXPECT_EQ(before.at(ends).link.latency, state.link.latency);
      }
    }
  }
}

TEST(FaultTrace, ALineHoldsUntilTheNext) {
  const auto traced = read_fault_trace(
      "# step;links;delay_ms\n15; 2_3 ;30\n\n85;off\n120;0_1,5_6;40  # two\r\n190;6_7;2.5", "t");
  ASSERT_TRUE(traced.ok()) << traced.error().message;
  std::vector<Fault> faults;
  for (const TracedFault& each : traced.value()) faults.push_back(each.fault);
  EXPECT_EQ(faults, (std::vector<Fault>{slow_link(2, 30, 15, 85), slow_link(0, 40, 120, 190),
                                        slow_link(5, 40, 120, 190), slow_link(6, 2.5, 190)}));
  EXPECT_EQ(traced.value()[2].line, 5);
  EXPECT_EQ(traced.value()[2].column, 9);
}

TEST(FaultTrace, ABreakDoesNotEndAnEarlierLine) {
  const auto traced = read_fault_trace("15;2_3;30\n20;0_1,2_3;break\n85;off\n90;4_5;break", "t");
  ASSERT_TRUE(traced.ok()) << traced.error().message;
  std::vector<Fault> faults;
  for (const TracedFault& each : traced.value()) faults.push_back(each.fault);
  const auto broken = [](int32_t link, int64_t step) {
    Fault fault;
    fault.kind = "broken-connection";
    fault.link = link;
    fault.at_step = step;
    return fault;
  };
  EXPECT_EQ(faults, (std::vector<Fault>{slow_link(2, 30, 15, 85), broken(0, 20), broken(2, 20),
                                        broken(4, 90)}));
}

TEST(FaultTrace, RefusesWithLineAndColumn) {
  const auto said = [](const std::string& text) {
    const auto traced = read_fault_trace(text, "t");
    return traced.ok() ? std::string("accepted") : traced.error().message;
  };
  EXPECT_EQ(said("x;0_1;3"), "t:1:1: expected a step, a whole number in [0, 1e+12], found \"x\"");
  EXPECT_EQ(said("5;0_1;3\n5;off"), "t:2:1: expected a step after 5, found \"5\"");
  EXPECT_EQ(said("5"),
            "t:1:1: expected step;links;delay_ms, step;links;break or step;off, found \"5\"");
  EXPECT_EQ(said("5;0_1"),
            "t:1:1: expected step;links;delay_ms, step;links;break or step;off, found \"5;0_1\"");
  EXPECT_EQ(said("5;0_1,0_2;3"),
            "t:1:7: expected a link between two neighbouring stages, such as 2_3, found \"0_2\"");
  EXPECT_EQ(said("5;;3"),
            "t:1:3: expected a link between two neighbouring stages, such as 2_3, found \"\"");
  EXPECT_EQ(
      said("5;0_1;0"),
      "t:1:7: expected a delay in milliseconds, a number in (0, 1e+09], or break, found \"0\"");
  EXPECT_EQ(said("5;0_1;nan").substr(0, 6), "t:1:7:");
  EXPECT_EQ(said(""), "accepted");
}

constexpr char kJob[] = "[device]\nkind = 'paced'\n[parallel]\nstages = 4\npipelines = 2\n";

// The error of a job with these faults, or "accepted"; the job's first five lines are kJob.
std::string refusal(const std::string& faults, const std::vector<std::string>& flags = {}) {
  const File file(kJob + faults);
  const auto loaded = load_job(file.path(), flags);
  if (loaded.ok()) return "accepted";
  const std::string& message = loaded.error().message;
  return message.starts_with(file.path()) ? message.substr(file.path().size() + 1) : message;
}

TEST(FaultTable, IsReadAndWritten) {
  const File trace("15;2_3;30\n85;off\n90;0_1,1_2;5\n");
  const File file(cat(kJob, "[[fault]]\nkind = 'slow-link'\nlink = 1\nlatency_ms = 20\nat_step = ",
                      "40\nuntil_step = 120\n[[fault]]\nkind = 'slow-link-trace'\nfile = '",
                      trace.path(), "'\n[[fault]]\nkind = 'slow-link'\nfrom = 7\nto = 0\n",
                      "jitter_ms = 0.5\nmegabytes_per_second = 9\n"));
  const auto loaded = load_job(file.path(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  std::vector<Fault> expected = {slow_link(1, 20, 40, 120), slow_link(2, 30, 15, 85),
                                 slow_link(0, 5, 90), slow_link(1, 5, 90), Fault{}};
  expected[4].from = 7;
  expected[4].to = 0;
  expected[4].jitter_ms = 0.5;
  expected[4].megabytes_per_second = 9;
  EXPECT_EQ(loaded.value().job.faults, expected);
  // The printed job contains the faults of the trace, so its reader does not need the trace.
  const std::string text = to_toml(loaded.value().job, &loaded.value().origin);
  EXPECT_NE(text.find(cat("# ", trace.path(),
                          ":3\nkind = \"slow-link\"\nlink = 0\nlatency_ms = "
                          "5.0\nat_step = 90\n")),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(cat("# ", file.path(), ":6\n")), std::string::npos) << text;
  const auto again = job_from_toml(text, "text");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value().faults, expected);
  EXPECT_EQ(to_toml(again.value()), to_toml(loaded.value().job));
}

TEST(FaultTable, RefusesWithLineColumnAndNearestName) {
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-lnik'\n"),
            "7:8: fault[0].kind expects \"slow-link\", \"slow-link-trace\", \"broken-connection\", "
            "\"slow-worker\", \"dead-worker\", \"kill\", \"stop\", \"start\", "
            "\"partition\", \"clock-skew\", \"cpu-hog\", \"bandwidth-hog\", \"kill-coordinator\" "
            "or \"chaos\", found "
            "\"slow-lnik\", did you mean slow-link?");
  EXPECT_EQ(
      refusal("[[fault]]\nkind = 'slow-link'\nlatency = 3\n"),
      "8:1: [[fault]] has no key latency; it has kind, link, from, to, pair, port, latency_ms, "
      "megabytes_per_second, jitter_ms, at_step, until_step, file, worker, speed, at_op, for_ms, "
      "threads, skew_ms, seed, every, hogs");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_sm = 3\n"),
            "8:1: [[fault]] has no key latency_sm, did you mean latency_ms?");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlink = 1\nlatency_ms = 'x'\n"),
            "9:14: fault[0].latency_ms expects a number in [0, 1e+09], found \"x\"");
  EXPECT_EQ(refusal("[[fault]]\nlink = 1\nlatency_ms = 1\n"),
            "6:1: fault[0].kind is missing: expected \"slow-link\", \"slow-link-trace\", "
            "\"broken-connection\", \"slow-worker\", \"dead-worker\", \"kill\", \"stop\", "
            "\"start\", \"partition\", \"clock-skew\", \"cpu-hog\", \"bandwidth-hog\", "
            "\"kill-coordinator\" or \"chaos\"");
  EXPECT_EQ(refusal("[fault]\nlink = 1\n"),
            "6:2: fault is a list of tables: expected [[fault]], found a table");
  EXPECT_EQ(refusal("[[faults]]\nlink = 1\n"),
            "6:3: there is no section [faults], did you mean fault?");
}

TEST(FaultTable, RefusesContradictingKeys) {
  const std::string link = "[[fault]]\nkind = 'slow-link'\nlink = 1\n";
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\n"),
            "6:1: fault[0] expects either link, pair, port, or from and to");
  EXPECT_EQ(refusal(link + "from = 1\nto = 2\nlatency_ms = 1\n"),
            "6:1: fault[0] expects either link, pair, port, or from and to");
  EXPECT_EQ(refusal(link + "at_step = 1\n"),
            "6:1: fault[0] changes nothing: expected latency_ms, jitter_ms or "
            "megabytes_per_second above 0");
  EXPECT_EQ(refusal(link + "latency_ms = 1\nat_step = 5\nuntil_step = 5\n"),
            "11:14: fault[0].until_step 5: expected a step after at_step (5)");
  EXPECT_EQ(refusal(link + "latency_ms = 1\nfile = 'a'\n"),
            "10:8: fault[0].file belongs to kind = \"slow-link-trace\", found \"slow-link\": leave "
            "it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link-trace'\nfile = 'a'\nlink = 2\n"),
            "9:8: fault[0].link belongs to kind = \"slow-link\", found \"slow-link-trace\": leave "
            "it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link-trace'\n"),
            "6:1: fault[0].file is missing: expected the file of the trace");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link-trace'\nfile = '/nowhere/at/all'\n"),
            "8:8: fault[0].file: /nowhere/at/all: no such file; expected a trace of slow links");
}

TEST(FaultTable, RefusesUnknownLinksAndWorkers) {
  const std::string last = "[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\nlink = 2\n";
  EXPECT_EQ(refusal(last), "accepted");
  EXPECT_EQ(refusal(last, {"parallel.stages=3"}),
            "9:8: fault[0].link 2 would join stages 2 and 3: 3 stages have the links 0 to 1");
  EXPECT_EQ(refusal(last, {"parallel.stages=1"}),
            "9:8: fault[0].link 2 would join stages 2 and 3: 1 stage has no link");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\nfrom = 0\nto = 8\n"),
            "10:6: fault[0].to 8 is no worker of this job: expected 0 to 7");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\nfrom = 3\nto = 3\n"),
            "10:6: fault[0].to 3 is the worker that sends: expected another");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\npair = '0.1-1.1'\n"),
            "accepted");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\npair = '0.1-0.1'\n"),
            "9:8: fault[0].pair \"0.1-0.1\" does not name two workers of this job: expected, for "
            "example, \"0.0-0.1\"; each is PIPELINE.STAGE or a number from 0 to 7");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\nport = '7'\n"), "accepted");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'slow-link'\nlatency_ms = 1\nport = 'host 3'\n"),
            "9:8: fault[0].port \"host 3\" is neither a port of network.cluster nor a worker of "
            "this job: expected the name of a port, or PIPELINE.STAGE, or a number from 0 to 7");
  const File trace("1;0_1;3\n2;0_1,3_4;3\n");
  EXPECT_EQ(refusal(cat("[[fault]]\nkind = 'slow-link-trace'\nfile = '", trace.path(), "'\n")),
            cat(trace.path(),
                ":2:7: fault[2].link 3 would join stages 3 and 4: 4 stages have the "
                "links 0 to 2"));
}

// Loads a job with these tables, and checks that its printed text reads back.
Job job_with(const std::string& tables) {
  const File file(kJob + tables);
  const auto loaded = load_job(file.path(), {});
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  if (!loaded.ok()) return {};
  const auto again = job_from_toml(to_toml(loaded.value().job), "text");
  EXPECT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again.ok() && again.value().faults == loaded.value().job.faults);
  return loaded.value().job;
}

TEST(FaultTable, ABrokenConnectionHappensOnce) {
  const std::string text = "[[fault]]\nkind = 'broken-connection'\nlink = 1\n";
  const std::vector<Fault> faults = job_with(text + "at_step = 3\n").faults;
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(describe(faults[0]), "the connection of link 1 breaks");
  using Pairs = std::vector<std::pair<WorkerId, WorkerId>>;
  EXPECT_EQ(breaks_at(faults, 3, 4, 8), (Pairs{{{1}, {2}}, {{5}, {6}}}));
  EXPECT_EQ(breaks_at(faults, 4, 4, 8), Pairs());
  EXPECT_TRUE(change_steps(faults).empty());
  EXPECT_TRUE(links_at(faults, 3, 4, uniform_cluster(8, {})).empty());
  EXPECT_EQ(refusal(text + "until_step = 9\n"),
            "9:14: fault[0].until_step belongs to kind = \"slow-link\", found "
            "\"broken-connection\": leave it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'broken-connection'\n"),
            "6:1: fault[0] expects either link, or from and to");
}

TEST(FaultTable, WorkersAreSlowOrAbsent) {
  const std::string slow = "[[fault]]\nkind = 'slow-worker'\n",
                    dead = "[[fault]]\nkind = 'dead-worker'\n";
  const Job job = job_with(slow + "worker = '1.2'\nspeed = 0.5\nat_step = 3\nuntil_step = 9\n" +
                           slow + "worker = '6'\nspeed = 0.5\n" + dead + "worker = '0.1'\n");
  const auto& faults = job.faults;
  EXPECT_EQ(describe(faults[0]), "worker 1.2 at 0.5 of its speed");
  EXPECT_EQ(describe(faults[2]), "worker 0.1 is absent");
  const Cluster before = with_faults(uniform_cluster(8, {}), faults, 0, 4);
  const Cluster both = with_faults(uniform_cluster(8, {}), faults, 3, 4);
  EXPECT_EQ(before.workers[6].speed, 0.5);
  EXPECT_EQ(both.workers[6].speed, 0.25);
  EXPECT_EQ(both.workers[5].speed, 1);
  for (int32_t w = 0; w < 8; ++w) EXPECT_EQ(both.workers[static_cast<size_t>(w)].alive, w != 1);
  EXPECT_EQ(change_steps(faults), (std::vector<int64_t>{3, 9}));
  EXPECT_TRUE(links_at(faults, 3, 4, uniform_cluster(8, {})).empty());

  EXPECT_EQ(refusal(slow + "speed = 0.5\n"),
            "6:1: fault[0].worker is missing: expected \"PIPELINE.STAGE\" or a number");
  EXPECT_EQ(refusal(slow + "worker = '1'\n"),
            "6:1: fault[0].speed is missing: expected a number in (0, 1)");
  EXPECT_EQ(refusal(slow + "worker = '1'\nspeed = 0.5\nat_step = 4\nuntil_step = 2\n"),
            "11:14: fault[0].until_step 2: expected a step after at_step (4)");
  EXPECT_EQ(refusal(dead + "worker = '1'\nat_step = 4\n"),
            "6:1: fault[0].at_step 4: a worker can be absent from the start of a run (0) only; to "
            "lose one later, take kind = \"kill\"");
  EXPECT_EQ(
      refusal(dead + "worker = '1'\nspeed = 0.5\n"),
      "9:9: fault[0].speed belongs to kind = \"slow-worker\", found \"dead-worker\": leave it out");
  EXPECT_EQ(refusal(dead + "worker = '1'\nat_op = 4\n"),
            "9:9: fault[0].at_op belongs to kind = \"kill\", found \"dead-worker\": leave it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'kill'\nat_step = 4\n"),
            "6:1: fault[0].worker is missing: expected \"PIPELINE.STAGE\" or a number");
  EXPECT_EQ(
      refusal("[[fault]]\nkind = 'slow-link'\nlink = 1\nworker = '1'\nlatency_ms = 1\n"),
      "9:10: fault[0].worker belongs to kind = \"slow-worker\", found \"slow-link\": leave it out");
  for (const char* worker : {"8", "2.0", "0.4", "1.", ".1", "1.1.1", "-1", "x", "99999999999"}) {
    EXPECT_EQ(refusal(cat(dead, "worker = '", worker, "'\n")),
              cat("8:10: fault[0].worker \"", worker, "\" is no worker of this job: expected ",
                  "\"PIPELINE.STAGE\" of 2 pipelines with 4 stages, or 0 to 7"));
  }
}

TEST(FaultTable, WorkersStopAreCutOffOrHaveAWrongClock) {
  const std::string stop = "[[fault]]\nkind = 'stop'\n", cut = "[[fault]]\nkind = 'partition'\n",
                    skew = "[[fault]]\nkind = 'clock-skew'\n";
  const Job job = job_with(stop + "worker = '1.2'\nat_op = 3\nfor_ms = 250\n" + cut +
                           "worker = '0.1'\nfor_ms = 40\nat_step = 2\n" + cut +
                           "worker = '1'\nfor_ms = 90.5\nat_step = 2\n" + skew +
                           "worker = '5'\nskew_ms = -3.5\nuntil_step = 4\n" + skew +
                           "worker = '1.1'\nskew_ms = 10\n");
  const auto& faults = job.faults;
  EXPECT_EQ(describe(faults[0]), "worker 1.2 is stopped after 3 ops for 250 ms");
  EXPECT_EQ(describe(faults[1]), "worker 0.1 is cut off for 40 ms");
  EXPECT_EQ(describe(faults[3]), "the clock of worker 5 is 3.5 ms behind");
  EXPECT_EQ(describe(faults[4]), "the clock of worker 1.1 is 10 ms ahead");
  EXPECT_TRUE(partitions_at(faults, 1, 4).empty());
  EXPECT_EQ(partitions_at(faults, 2, 4), (std::map<WorkerId, Duration>{{{1}, ms(90.5)}}));
  EXPECT_EQ(skew_at(faults, 3, {5}, 4), ms(6.5));
  EXPECT_EQ(skew_at(faults, 4, {5}, 4), ms(10));
  EXPECT_EQ(skew_at(faults, 4, {4}, 4), ms(0));
  EXPECT_TRUE(can_cut_off(job));

  EXPECT_EQ(refusal(cut + "worker = '1'\n"),
            "6:1: fault[0].for_ms is missing: expected how long the worker is cut off");
  EXPECT_EQ(refusal(skew + "worker = '1'\n"),
            "6:1: fault[0].skew_ms is missing: expected how far the clock is ahead");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'kill'\nworker = '1'\nfor_ms = 3\n"),
            "9:10: fault[0].for_ms belongs to kind = \"stop\", found \"kill\": leave it out");
}

// A job whose devices are real.
const std::vector<std::string> kReal = {"device.kind=cpu", "data.paths=a", "model.layers=4"};

TEST(FaultTable, HogsTakeResourcesOfAHost) {
  const std::string cpu = "[[fault]]\nkind = 'cpu-hog'\n",
                    bandwidth = "[[fault]]\nkind = 'bandwidth-hog'\n";
  const File file(kJob + cpu + "worker = '1.2'\nthreads = 3\nat_step = 4\nuntil_step = 9\n" + cpu +
                  "worker = '0'\nthreads = 1\nat_step = 2\nfor_ms = 250\n" + bandwidth +
                  "worker = '7'\nmegabytes_per_second = 12.5\n" + bandwidth + "worker = '0.1'\n");
  const auto loaded = load_job(file.path(), kReal);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Job& job = loaded.value().job;
  const auto& faults = job.faults;
  ASSERT_EQ(faults.size(), 4u);
  EXPECT_EQ(describe(faults[0]), "a hog of 3 threads computes on the host of worker 1.2");
  EXPECT_EQ(describe(faults[1]), "a hog of 1 thread computes on the host of worker 0 for 250 ms");
  EXPECT_EQ(describe(faults[2]), "a hog on the host of worker 7 sends itself 12.5 MB/s");
  EXPECT_EQ(describe(faults[3]), "a hog on the host of worker 0.1 sends itself as much as it can");
  for (const Fault& fault : faults) EXPECT_TRUE(is_hog(fault) && is_of_worker(fault));
  EXPECT_TRUE(in_force(faults[0], 8) && !in_force(faults[0], 9));
  // One with a time begins once, and a run that is resumed later does not start it again.
  EXPECT_TRUE(in_force(faults[1], 2) && !in_force(faults[1], 3) && !lasts(faults[1]));
  // Nothing is imitated: links and speeds are those of the cluster.
  EXPECT_TRUE(change_steps(faults).empty());
  EXPECT_TRUE(links_at(faults, 4, 4, uniform_cluster(8, {})).empty());
  EXPECT_EQ(speed_at(faults, 4, {6}, 4), 1);
  EXPECT_FALSE(can_slow_links(job));
  EXPECT_FALSE(can_cut_off(job));
  const auto again = job_from_toml(to_toml(job), "text");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value().faults, faults);
}

TEST(FaultTable, RefusesHogsThatCannotBe) {
  const std::string cpu = "[[fault]]\nkind = 'cpu-hog'\nworker = '0.1'\n";
  EXPECT_EQ(refusal(cpu, kReal),
            "6:1: fault[0].threads is missing: expected how many threads compute");
  EXPECT_EQ(refusal(cpu + "threads = 0\n", kReal),
            "9:11: fault[0].threads expects a whole number in [1, 1024], found 0");
  EXPECT_EQ(refusal(cpu + "threads = 1025\n", kReal),
            "9:11: fault[0].threads expects a whole number in [1, 1024], found 1025");
  EXPECT_EQ(refusal(cpu + "threads = 2\nfor_ms = 9\nuntil_step = 3\n", kReal),
            "6:1: fault[0] expects either for_ms or until_step");
  EXPECT_EQ(refusal(cpu + "threads = 2\nmegabytes_per_second = 3\n", kReal),
            "10:24: fault[0].megabytes_per_second belongs to kind = \"slow-link\", found "
            "\"cpu-hog\": leave it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'bandwidth-hog'\nworker = '1'\nthreads = 2\n", kReal),
            "9:11: fault[0].threads belongs to kind = \"cpu-hog\", found \"bandwidth-hog\": leave "
            "it out");
  EXPECT_EQ(refusal("[[fault]]\nkind = 'bandwidth-hog'\n", kReal),
            "6:1: fault[0].worker is missing: expected \"PIPELINE.STAGE\" or a number");
  EXPECT_EQ(refusal(cpu + "threads = 2\n"),
            "7:8: fault[0].kind \"cpu-hog\" takes real resources from a host, and a paced device "
            "only imitates computing: take a \"slow-worker\" or a \"slow-link\", or device.kind = "
            "\"cpu\"");
  EXPECT_NE(refusal("[[fault]]\nkind = 'bandwidth-hog'\nworker = '8'\n", kReal)
                .find("fault[0].worker \"8\" is no worker of this job"),
            std::string::npos);
}

TEST(FaultTable, HasNoFlags) {
  for (const char* flag : {"fault.link=1", "fault[0].link=1"}) {
    EXPECT_EQ(refusal("", {flag}),
              cat("--", flag,
                  ": injected faults have no flags: write [[fault]] tables into the job file"));
  }
}

}  // namespace
}  // namespace tenuto
