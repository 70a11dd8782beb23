// What the host of a run tells its processes where the parts of replicas keep the parameters: three
// replicas of one stage, and no server.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/text.h"
#include "parameter_server/server_run.h"

namespace tenuto::servers {
namespace {

Roster three_replicas(bool kept_by_parts) {
  RosterStart start;
  start.ranges = {{{0}, 0, 2}, {{0}, 2, 4}, {{0}, 4, 6}};
  start.replicas = 3;
  start.kept_by_parts = kept_by_parts;
  return Roster::make(start).value();
}

SyncMode ring_without(int32_t child) {
  SyncMode mode;
  mode.kind = SyncKind::Ring;
  mode.count = 2;
  for (int32_t i = 0; i < 3; ++i) mode.parents.push_back({i == child ? (child + 1) % 3 : i});
  return mode;
}

// A run whose processes place all members at once, and do nothing else by themselves.
class PartsRun {
 public:
  explicit PartsRun(bool kept_by_parts) : run(three_replicas(kept_by_parts)) {
    if (!kept_by_parts) start({{}, ProcessKind::Server, {}, {}});
    for (int32_t i = 0; i < 3; ++i) start({{}, ProcessKind::Part, {i}, {0}});
    const Status begun = run.begin({});
    EXPECT_TRUE(begun.ok()) << (begun.ok() ? "" : begun.error().message);
    pass_commands();
  }

  void start(const RunProcess& process) {
    const int32_t number = run.start(process).value;
    say(number, ListeningReport{cat("host:", number)});
    say(number, ConnectedReport{});
  }

  void say(int32_t process, const HostReport& report) {
    const Status handled = run.handle({process}, report);
    EXPECT_TRUE(handled.ok()) << (handled.ok() ? "" : handled.error().message);
  }

  // Members are placed. Returns all other commands, each as "PROCESS NAME".
  std::vector<std::string> pass_commands() {
    std::vector<std::string> texts;
    for (auto tasks = run.take_commands(); !tasks.empty(); tasks = run.take_commands()) {
      for (const ServerRun::Task& task : tasks) {
        const int32_t process = task.process.value;
        if (const auto* members = std::get_if<MembersCommand>(&task.command)) {
          say(process, PlacedReport{members->placed.members.epoch});
        }
        if (std::holds_alternative<InstallCommand>(task.command)) texts.push_back("install");
        if (std::holds_alternative<StopCommand>(task.command)) {
          texts.push_back(cat("stop ", process));
        }
        if (std::holds_alternative<FinishCommand>(task.command)) {
          texts.push_back(cat("finish ", process));
        }
      }
    }
    return texts;
  }

  int64_t epoch() const { return run.newest().members.epoch; }
  int32_t decider() const { return run.newest().places.at(run.newest().members.decider).value; }

  // The decider says that all keepers of the newest epoch have their ranges.
  void fill(const SyncMode& mode) {
    CommittedReport report;
    report.mode = mode;
    report.filled = epoch();
    say(decider(), report);
  }

  // The processes that keep something.
  std::set<int32_t> keepers() const {
    std::set<int32_t> found;
    for (const PeerId keeper : keepers_of(run.newest().members)) {
      found.insert(run.newest().places.at(keeper).value);
    }
    return found;
  }

  ServerRun run;
};

using Texts = std::vector<std::string>;
using Processes = std::set<int32_t>;

TEST(ServerRunOfParts, AReplicaThatLeavesTheRingHandsItsRangesOver) {
  PartsRun parts(true);
  EXPECT_EQ(parts.epoch(), 1);
  EXPECT_TRUE(parts.run.is_installed());
  EXPECT_EQ(parts.keepers(), (Processes{0, 1, 2}));
  const SyncMode ring = ring_without(2);
  parts.say(parts.decider(), ModeReport{ring, "one is slow"});
  EXPECT_EQ(parts.epoch(), 2);
  EXPECT_EQ(parts.pass_commands(), Texts{"install"});
  EXPECT_TRUE(parts.run.is_installed());
  // Each of its ranges has another keeper, which is in the ring. It stays until there are two.
  EXPECT_EQ(parts.keepers(), (Processes{0, 1, 2}));
  parts.fill(ring);
  EXPECT_EQ(parts.pass_commands(), Texts{"install"});
  EXPECT_EQ(parts.keepers(), (Processes{0, 1}));
  EXPECT_EQ(parts.epoch(), 3);
  parts.fill(ring);
  EXPECT_EQ(parts.pass_commands(), Texts{}) << "all is where it should be";
  EXPECT_EQ(parts.epoch(), 3);
  EXPECT_EQ(parts.run.changes(), 1);
}

// With a ring of one replica the standbys live outside of it.
TEST(ServerRunOfParts, ANewKeeperAnswersReadsOnceItHasItsRange) {
  PartsRun parts(true);
  SyncMode one;
  one.kind = SyncKind::Ring;
  one.count = 1;
  one.parents = {{0}, {0}, {0}};
  parts.say(parts.decider(), ModeReport{one, ""});
  parts.pass_commands();
  const int64_t first = parts.epoch();
  EXPECT_EQ(first, 2);
  // A report of an epoch before changes nothing.
  CommittedReport old;
  old.mode = one;
  old.filled = 1;
  parts.say(parts.decider(), old);
  EXPECT_EQ(parts.epoch(), first);
  int epochs = 0;
  for (int64_t before = 0; before != parts.epoch() && epochs < 9; ++epochs) {
    before = parts.epoch();
    parts.fill(one);
    parts.pass_commands();
  }
  EXPECT_LT(epochs, 9);
  EXPECT_GT(parts.epoch(), first);
  for (const KeptRange& kept : parts.run.newest().members.ranges) {
    EXPECT_EQ(parts.run.newest().places.at(kept.keepers.front()), WorkerId{0});
    EXPECT_EQ(kept.keepers.size(), 2u);
  }
}

// The mode that a run begins with is in no report but this one.
TEST(ServerRunOfParts, TheRingIsAlsoHeardWithWhatIsCommitted) {
  PartsRun parts(true);
  for (int i = 0; i < 2; ++i) {
    parts.fill(ring_without(1));
    parts.pass_commands();
  }
  EXPECT_EQ(parts.keepers(), (Processes{0, 2}));
  // Any other mode lets all keep ranges again.
  CommittedReport report;
  report.version = {3};
  report.works = 5;
  report.filled = parts.epoch();
  parts.say(parts.decider(), report);
  parts.pass_commands();
  EXPECT_EQ(parts.keepers(), (Processes{0, 1, 2}));
  // What is said of an epoch alone leaves the rest as it was.
  CommittedReport filled;
  filled.version = {3};
  filled.filled = parts.epoch();
  parts.say(parts.decider(), filled);
  EXPECT_EQ(parts.run.committed().works, 5);
  EXPECT_EQ(parts.run.committed().filled, filled.filled);
}

TEST(ServerRunOfParts, ServersKeepWhatTheyHaveInARing) {
  PartsRun parts(false);
  EXPECT_EQ(parts.keepers(), Processes{0});
  parts.say(parts.decider(), ModeReport{ring_without(2), ""});
  parts.fill(ring_without(2));
  EXPECT_EQ(parts.pass_commands(), Texts{});
  EXPECT_EQ(parts.epoch(), 1);
}

// Parts stop, but still have to write down what they keep.
TEST(ServerRunOfParts, PartsThatKeepFinishAfterTheDecider) {
  PartsRun parts(true);
  ServerRun& run = parts.run;
  run.stop();
  EXPECT_EQ(parts.pass_commands(), (Texts{"stop 0", "stop 1", "stop 2"}));
  for (int32_t i = 0; i < 3; ++i) parts.say(i, StoppedReport{});
  EXPECT_TRUE(run.have_replicas_stopped());
  ASSERT_EQ(parts.decider(), 0);
  EXPECT_EQ(parts.pass_commands(), Texts{"finish 0"});
  parts.say(0, FinishedReport{});
  EXPECT_TRUE(run.has_decider_finished());
  EXPECT_EQ(parts.pass_commands(), (Texts{"finish 1", "finish 2"}));
  parts.say(2, FinishedReport{});
  EXPECT_FALSE(run.has_finished());
  parts.say(1, FinishedReport{});
  EXPECT_TRUE(run.has_finished());
}

// The decider takes part in a handover that was announced before it finishes. None begins then.
TEST(ServerRunOfParts, AtTheEndAHandoverThatHasBegunGoesOn) {
  PartsRun parts(true);
  ServerRun& run = parts.run;
  parts.say(parts.decider(), ModeReport{ring_without(2), ""});
  EXPECT_EQ(parts.epoch(), 2);
  run.stop();
  for (int32_t i = 0; i < 3; ++i) parts.say(i, StoppedReport{});
  EXPECT_TRUE(run.have_replicas_stopped());
  EXPECT_FALSE(run.is_installed());
  EXPECT_EQ(parts.pass_commands(), (Texts{"stop 0", "stop 1", "stop 2", "install", "finish 0"}));
  parts.say(parts.decider(), ModeReport{ring_without(1), ""});
  EXPECT_EQ(parts.epoch(), 2);
}

// A part that comes when the run ends is stopped as soon as it is connected.
TEST(ServerRunOfParts, APartThatComesAtTheEndIsStopped) {
  PartsRun parts(true);
  ServerRun& run = parts.run;
  run.give_up({2});
  ASSERT_TRUE(run.lose({2}).ok());
  parts.pass_commands();
  const WorkerId late = run.start({{}, ProcessKind::Part, {2}, {0}});
  parts.say(late.value, ListeningReport{"host:late"});
  run.stop();
  EXPECT_EQ(parts.pass_commands(), (Texts{"stop 0", "stop 1"}));
  parts.say(late.value, ConnectedReport{});
  EXPECT_EQ(parts.pass_commands(), (Texts{cat("stop ", late), "install"}));
}

}  // namespace
}  // namespace tenuto::servers
