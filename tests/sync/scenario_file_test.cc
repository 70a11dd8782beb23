// Scenarios as files: written, read back, refused; and the files of the built-in ones.
#include "sync/scenario_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "source_tree.h"

namespace tenuto {
namespace {

void expect_read_back(const SyncScenario& scenario) {
  const std::string text = to_toml(scenario);
  const auto read = sync_scenario_from_toml(text, "text");
  ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
  EXPECT_TRUE(read.value() == scenario) << text << "is read as\n" << to_toml(read.value());
}

TEST(ScenarioFile, BuiltInScenariosAreReadBackAsTheyWere) {
  for (const SyncScenario& scenario : sync_scenarios()) expect_read_back(scenario);
}

double drawn(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

// A time of whole nanoseconds.
Duration drawn_time(Random& random, Duration least, Duration most) {
  return least + Duration(random.below((most - least).count() + 1));
}

SlowPhase drawn_phase(Random& random, int32_t replicas) {
  SlowPhase phase;
  if (random.below(3) > 0) {
    phase.length = drawn_time(random, Duration(0), std::chrono::seconds(10'000));
  }
  for (int32_t replica = 0; replica < replicas; ++replica) {
    if (random.below(3) > 0) continue;
    SlowReplica one;
    one.replica = replica;
    if (random.below(2) == 0) one.compute = drawn(random, 0.01, 1'000);
    if (random.below(2) == 0) one.transfer = drawn(random, 0.01, 1'000);
    phase.slow.push_back(one);
  }
  if (random.below(2) == 0) phase.chance = random.uniform();
  if (random.below(2) == 0) phase.transfer = drawn(random, 0.01, 1'000);
  phase.in_pairs = random.below(2) == 0;
  return phase;
}

SyncScenario drawn_file(uint64_t seed) {
  constexpr Duration kLeast = std::chrono::microseconds(1), kMost = std::chrono::seconds(10);
  Random random(seed);
  SyncScenario scenario;
  scenario.name = cat("drawn \"", seed, "\" \\ \xc3\xa9");
  scenario.replicas = static_cast<int32_t>(2 + random.below(9));
  scenario.base.compute = drawn_time(random, kLeast, kMost);
  scenario.base.transfer = drawn_time(random, kLeast, kMost);
  scenario.compute_jitter = drawn(random, 0, 2);
  scenario.transfer_jitter = drawn(random, 0, 2);
  scenario.apply = drawn_time(random, kLeast, kMost);
  for (int64_t left = random.below(4); left > 0; --left) {
    scenario.phases.push_back(drawn_phase(random, scenario.replicas));
  }
  return scenario;
}

TEST(ScenarioFile, DrawnScenariosAreReadBackAsTheyWere) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const SyncScenario scenario = drawn_file(seed);
    ASSERT_TRUE(has_right_phases(scenario)) << seed;
    expect_read_back(scenario);
  }
}

// Whole milliseconds at the ends of the range, where the text is an integer or has an exponent.
TEST(ScenarioFile, TheEndsOfTheRangesAreReadBack) {
  SyncScenario scenario = drawn_file(1);
  scenario.base = {std::chrono::microseconds(1), std::chrono::seconds(10)};
  scenario.compute_jitter = 0;
  scenario.transfer_jitter = 2;
  SlowPhase first, second;
  first.length = Duration(1);
  first.slow.push_back({0, 0.01, 1'000});
  first.chance = 1;
  second.length = std::chrono::seconds(10'000);
  scenario.phases = {first, second};
  expect_read_back(scenario);
}

// The files of examples/ are those of the list, no more and no fewer, and say what happens.
TEST(ScenarioFile, TheExamplesAreTheBuiltInScenarios) {
  const std::string folder = source_tree() + "/examples/sync/scenarios";
  std::set<std::string> names, expected;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  for (const SyncScenario& scenario : sync_scenarios()) {
    const std::string name = scenario.name + ".toml", path = cat(folder, "/", name);
    expected.insert(name);
    const auto text = read_file(path);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_TRUE(text.value().starts_with("# ")) << path << " has no comment in its first line";
    const auto read = sync_scenario_from_toml(text.value(), path);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_TRUE(read.value() == scenario) << path << " says\n"
                                          << to_toml(read.value()) << "and the list\n"
                                          << to_toml(scenario);
  }
  EXPECT_EQ(names, expected);
}

TEST(ScenarioFile, KeysMayBeLeftOut) {
  const auto read = sync_scenario_from_toml(
      "name = \"few\"\nreplicas = 2.0\ncompute_ms = 1e1\ntransfer_ms = 5\napply_ms = 0.5\n"
      "[[phase]]\n[[phase.slow]]\nreplica = 1\ntransfer = 3\n",
      "f");
  ASSERT_TRUE(read.ok()) << read.error().message;
  SyncScenario expected;
  expected.name = "few";
  expected.replicas = 2;
  expected.base = {from_milliseconds(10), from_milliseconds(5)};
  expected.apply = std::chrono::microseconds(500);
  SlowPhase phase;
  phase.slow.push_back({1, 1, 3});
  expected.phases = {phase};
  EXPECT_TRUE(read.value() == expected) << to_toml(read.value());
}

void expect_refused(const std::string& text, const std::string& sentence) {
  const auto read = sync_scenario_from_toml(text, "f.toml");
  ASSERT_FALSE(read.ok()) << text;
  EXPECT_EQ(read.error().message, "f.toml:" + sentence) << text;
  EXPECT_EQ(read.error().code, Code::Invalid);
  EXPECT_EQ(read.error().reach, Reach::Call);
}

// The lines of a right file; those of a test stand in their place, or behind them.
struct FileLines {
  std::string name = "name = \"a\"", replicas = "replicas = 4", compute = "compute_ms = 80",
              transfer = "transfer_ms = 20", apply = "apply_ms = 1";
  std::string text() const {
    return cat(name, "\n", replicas, "\n", compute, "\n", transfer, "\n", apply, "\n");
  }
};

// A right file with this line in the place of the one of that member.
std::string with(std::string FileLines::*member, const std::string& line) {
  FileLines lines;
  lines.*member = line;
  return lines.text();
}

// A right file and, from line 6 on, this.
std::string with(const std::string& more) { return FileLines{}.text() + more; }

TEST(ScenarioFile, TheFileOfTheTestsIsRight) {
  const auto read = sync_scenario_from_toml(with(""), "f.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
}

TEST(ScenarioFile, RefusesWrongValuesOfAScenario) {
  const std::string name = "name expects a text of 1 to 100 bytes in one line, found ";
  expect_refused(with(&FileLines::name, "name = 7"), "1:8: " + name + "7");
  expect_refused(with(&FileLines::name, "name = \"\""), "1:8: " + name + "\"\"");
  expect_refused(with(&FileLines::name, "name = \"a\\nb\""), "1:8: " + name + "\"a\\u000ab\"");
  expect_refused(with(&FileLines::name, cat("name = \"", std::string(101, 'a'), "\"")),
                 cat("1:8: ", name, "\"", std::string(37, 'a'), "\"..."));
  const std::string replicas = "2:12: replicas expects a whole number from 2 to 16000, found ";
  for (const char* value : {"1", "16001", "-3", "2.5", "true"}) {
    expect_refused(with(&FileLines::replicas, cat("replicas = ", value)), replicas + value);
  }
  expect_refused(with(&FileLines::replicas, "replicas = \"4\""), replicas + "\"4\"");
  const std::string time = " expects a number of milliseconds from 0.001 to 10000, found ";
  for (const char* value : {"0", "-1", "10001", "inf", "nan"}) {
    expect_refused(with(&FileLines::compute, cat("compute_ms = ", value)),
                   cat("3:14: compute_ms", time, value));
    expect_refused(with(&FileLines::transfer, cat("transfer_ms = ", value)),
                   cat("4:15: transfer_ms", time, value));
    expect_refused(with(&FileLines::apply, cat("apply_ms = ", value)),
                   cat("5:12: apply_ms", time, value));
  }
  expect_refused(with(&FileLines::apply, "apply_ms = [1]"), cat("5:12: apply_ms", time, "a list"));
  expect_refused(with("compute_jitter = -0.1\n"),
                 "6:18: compute_jitter expects a deviation from 0 to 2, found -0.1");
  expect_refused(with("transfer_jitter = 2.5\n"),
                 "6:19: transfer_jitter expects a deviation from 0 to 2, found 2.5");
}

TEST(ScenarioFile, RefusesMissingAndUnknownKeys) {
  expect_refused(with(&FileLines::name, ""),
                 "1:1: name is missing: expected a text of 1 to 100 bytes in one line");
  expect_refused(with(&FileLines::replicas, ""),
                 "1:1: replicas is missing: expected a whole number from 2 to 16000");
  const std::string time = " is missing: expected a number of milliseconds from 0.001 to 10000";
  expect_refused(with(&FileLines::compute, ""), cat("1:1: compute_ms", time));
  expect_refused(with(&FileLines::transfer, ""), cat("1:1: transfer_ms", time));
  expect_refused(with(&FileLines::apply, ""), cat("1:1: apply_ms", time));
  expect_refused(with("optimizer = \"adamw\"\n"),
                 "6:1: a scenario has no key optimizer; it has name, replicas, compute_ms, "
                 "transfer_ms, compute_jitter, transfer_jitter, apply_ms, phase");
  expect_refused(with("transfer_jiter = 0.2\n"),
                 "6:1: a scenario has no key transfer_jiter, did you mean transfer_jitter?");
  expect_refused(with("[[phase]]\nlength = 3\n"),
                 "7:1: [[phase]] has no key length; it has seconds, slow, chance, transfer, pairs");
  expect_refused(with("[[phase]]\nslow = [{replica = 1, speed = 3}]\n"),
                 "7:23: an entry of slow has no key speed; it has replica, compute, transfer");
  expect_refused(with("[[phase]]\nslow = [{transfer = 3}]\n"),
                 "7:9: phase[0].slow[0].replica is missing: expected a whole number from 0 to 3");
}

TEST(ScenarioFile, RefusesWrongPhases) {
  expect_refused(with("phase = 3\n"), "6:9: phase expects a list of tables, [[phase]], found 3");
  expect_refused(with("phase = [3]\n"), "6:10: phase expects a list of tables, [[phase]], found 3");
  expect_refused(with("[[phase]]\n[[phase]]\nseconds = -1\n"),
                 "8:11: phase[1].seconds expects a number of seconds from 0 to 10000, found -1");
  expect_refused(with("[[phase]]\nseconds = \"6\"\n"),
                 "7:11: phase[0].seconds expects a number of seconds from 0 to 10000, found \"6\"");
  expect_refused(with("[[phase]]\nchance = 1.5\n"),
                 "7:10: phase[0].chance expects a chance from 0 to 1, found 1.5");
  expect_refused(with("[[phase]]\ntransfer = 0\n"),
                 "7:12: phase[0].transfer expects a factor from 0.01 to 1000, found 0");
  expect_refused(with("[[phase]]\npairs = 1\n"),
                 "7:9: phase[0].pairs expects true or false, found 1");
  const std::string length =
      "6:1: the phases have no length: expected seconds above 0 in one of them, or a phase "
      "without seconds, which lasts for ever, found seconds = 0 in each";
  expect_refused(with("[[phase]]\nseconds = 0\n"), length);
  expect_refused(with("[[phase]]\nseconds = 0\n[[phase]]\nseconds = 0.0\n"), length);
}

TEST(ScenarioFile, RefusesWrongReplicasOfAPhase) {
  const std::string list =
      " expects a list of tables, {replica = 0, compute = 2, transfer = 1}, found ";
  expect_refused(with("[[phase]]\nslow = 0\n"), cat("7:8: phase[0].slow", list, "0"));
  expect_refused(with("[[phase]]\nslow = [0]\n"), cat("7:9: phase[0].slow", list, "0"));
  expect_refused(with("[[phase]]\nslow = [{replica = 4}]\n"),
                 "7:20: phase[0].slow[0].replica expects a whole number from 0 to 3, found 4");
  expect_refused(with("[[phase]]\nslow = [{replica = -1}]\n"),
                 "7:20: phase[0].slow[0].replica expects a whole number from 0 to 3, found -1");
  expect_refused(with("[[phase]]\nslow = [{replica = 0, compute = 0.001}]\n"),
                 "7:33: phase[0].slow[0].compute expects a factor from 0.01 to 1000, found 0.001");
  expect_refused(with("[[phase]]\nslow = [{replica = 0, transfer = 1001}]\n"),
                 "7:34: phase[0].slow[0].transfer expects a factor from 0.01 to 1000, found 1001");
  expect_refused(with("[[phase]]\nslow = [{replica = 2}, {replica = 1}, {replica = 2}]\n"),
                 "7:39: phase[0].slow[2].replica: replica 2 stands twice in this phase: leave one "
                 "out");
}

TEST(ScenarioFile, NamesTheFirstOfSeveralFaults) {
  expect_refused(
      with("compute_jitter = 3\n[[phase]]\nchance = 2\npairs = 0\n"),
      "6:18: compute_jitter expects a deviation from 0 to 2, found 3 (and 2 faults more)");
  // A replica is not refused because the number of replicas is wrong.
  expect_refused(
      cat(with(&FileLines::replicas, "replicas = 1"), "[[phase]]\nslow = [{replica = 9}]\n"),
      "2:12: replicas expects a whole number from 2 to 16000, found 1");
}

TEST(ScenarioFile, RefusesWhatIsNoToml) {
  const auto read = sync_scenario_from_toml(with("[[phase\n"), "f.toml");
  ASSERT_FALSE(read.ok());
  EXPECT_TRUE(read.error().message.starts_with("f.toml:6:")) << read.error().message;
  EXPECT_NE(read.error().message.find("not TOML: "), std::string::npos) << read.error().message;
  std::string deep = "a";
  for (int i = 0; i < 20; ++i) deep += ".a";
  expect_refused(with(deep + " = 1\n"),
                 "6:32: not TOML: a name of more than 16 parts is no setting's name");
}

}  // namespace
}  // namespace tenuto
