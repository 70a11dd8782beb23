// What the host of a run tells its processes, and when: two servers, a decider and two replicas.
#include "parameter_server/server_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"

namespace tenuto::servers {
namespace {

constexpr int32_t kDecider = 2;

std::string name_of(const HostCommand& command) {
  const char* names[] = {"connect", "begin", "members", "install", "lost", "measured",
                         "mode",    "stop",  "finish",  "save",    "form", "lease"};
  const auto* finish = std::get_if<FinishCommand>(&command);
  const bool names_save = finish != nullptr && finish->save > Version{};
  return cat(names[command.index()], names_save ? cat(" after save ", finish->save.value) : "");
}

Roster two_replicas() { return Roster::make({{{{0}, 0, 6}, {{0}, 6, 10}}, 2}).value(); }

// A run whose processes answer only when the test lets them.
class PlayedRun {
 public:
  PlayedRun() {
    start({{}, ProcessKind::Server, {}, {}});
    start({{}, ProcessKind::Server, {}, {}});
    start({{}, ProcessKind::Decider, {}, {}});
    start({{}, ProcessKind::Part, {0}, {0}});
    start({{}, ProcessKind::Part, {1}, {0}});
  }

  void start(const RunProcess& process) {
    const WorkerId number = run.start(process);
    EXPECT_TRUE(say(number.value, ListeningReport{cat("host:", number), "a host"}).ok());
  }

  Status say(int32_t process, const HostReport& report) {
    const Status handled = run.handle({process}, report);
    collect();
    return handled;
  }

  // Commands that were given since the last call: "2 install".
  std::vector<std::string> take_texts() {
    std::vector<std::string> texts;
    for (const ServerRun::Task& task : std::exchange(given_, {})) {
      texts.push_back(cat(task.process, " ", name_of(task.command)));
    }
    return texts;
  }

  // Processes answer until nothing more is said. Counts the commands of this name.
  int count_while_answering(const std::string& name) {
    int count = 0;
    collect();
    while (!unanswered_.empty()) {
      const ServerRun::Task task = std::move(unanswered_.front());
      unanswered_.pop_front();
      count += name_of(task.command) == name ? 1 : 0;
      answer(task);
    }
    return count;
  }

  // All are connected, and have the first members.
  void begin() {
    count_while_answering("");
    EXPECT_TRUE(run.all_connected());
    EXPECT_TRUE(run.begin(std::chrono::seconds(5)).ok());
    count_while_answering("");
    EXPECT_TRUE(run.is_installed());
    EXPECT_EQ(run.newest().members.epoch, 1);
    take_texts();
  }

  // The test itself answers the commands that were given so far.
  void leave_to_the_test() {
    collect();
    unanswered_.clear();
  }

  void collect() {
    for (ServerRun::Task& task : run.take_commands()) {
      given_.push_back(task);
      unanswered_.push_back(std::move(task));
    }
  }

  ServerRun run{two_replicas()};

 private:
  void answer(const ServerRun::Task& task) {
    const int32_t self = task.process.value;
    Status said = ok();
    if (std::holds_alternative<ConnectCommand>(task.command)) said = say(self, ConnectedReport{});
    if (const auto* members = std::get_if<MembersCommand>(&task.command)) {
      said = say(self, PlacedReport{members->placed.members.epoch});
    }
    if (std::holds_alternative<StopCommand>(task.command)) said = say(self, StoppedReport{});
    if (std::holds_alternative<FinishCommand>(task.command)) said = say(self, FinishedReport{});
    EXPECT_TRUE(said.ok()) << (said.ok() ? "" : said.error().message);
  }

  std::vector<ServerRun::Task> given_;
  std::deque<ServerRun::Task> unanswered_;
};

using Texts = std::vector<std::string>;

TEST(ServerRun, TheDeciderBeginsWhenAllHaveTheMembers) {
  PlayedRun played;
  ServerRun& run = played.run;
  EXPECT_FALSE(run.begin({}).ok()) << "nobody is connected";
  EXPECT_EQ(played.take_texts(),
            (Texts{"0 connect", "1 connect", "2 connect", "3 connect", "4 connect"}));
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(run.all_connected());
    ASSERT_TRUE(played.say(i, ConnectedReport{}).ok());
  }
  ASSERT_TRUE(run.begin(std::chrono::seconds(5)).ok());
  EXPECT_FALSE(run.begin(std::chrono::seconds(6)).ok()) << "it has begun";
  played.collect();
  EXPECT_EQ(played.take_texts(),
            (Texts{"0 begin", "1 begin", "2 begin", "3 begin", "4 begin", "0 members", "1 members",
                   "2 members", "3 members", "4 members"}));
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(played.take_texts(), Texts{});
    EXPECT_FALSE(run.is_installed());
    ASSERT_TRUE(played.say(i, PlacedReport{1}).ok());
  }
  EXPECT_EQ(played.take_texts(), Texts{"2 install"});
  EXPECT_TRUE(run.is_installed());
}

TEST(ServerRun, TheProcessWithTheDeciderHearsWhatWasMeasured) {
  PlayedRun played;
  played.begin();
  const MeasuredIteration iteration{{1}, {std::chrono::milliseconds(4), Duration{}}, 1};
  ASSERT_TRUE(played.say(4, MeasuredReport{iteration}).ok());
  EXPECT_EQ(played.take_texts(), Texts{"2 measured"});
  EXPECT_EQ(played.run.processes()[4].iterations, 1);
  EXPECT_EQ(played.run.processes()[4].process.host, "a host");
  EXPECT_EQ(played.run.placement(),
            "both copies of 2 of 2 ranges are on one host, because no other one had a server, and "
            "host a host carries the most: 100 % of what all hosts send or receive");
  ASSERT_TRUE(played.say(kDecider, ModeReport{}).ok());
  EXPECT_EQ(played.run.changes(), 1);
}

TEST(ServerRun, WhatWasSaidIsTakenOnce) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  EXPECT_EQ(run.committed().version, Version{0});
  for (int32_t part = 3; part < 5; ++part) {
    const MeasuredIteration iteration{{part - 3}, {Duration{4}, Duration{}}, 1, 0.5 * part};
    ASSERT_TRUE(played.say(part, MeasuredReport{iteration}).ok());
  }
  SyncMode mode;
  mode.kind = SyncKind::Asynchronous;
  ASSERT_TRUE(played.say(kDecider, ModeReport{mode, "one is slow"}).ok());
  const std::vector<MeasuredIteration> measured = run.take_measured();
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].replica, ReplicaId{0});
  EXPECT_EQ(measured[1].loss, 2.0);
  EXPECT_TRUE(run.take_measured().empty());
  const std::vector<ModeReport> modes = run.take_modes();
  ASSERT_EQ(modes.size(), 1u);
  EXPECT_EQ(modes[0].mode, mode);
  EXPECT_EQ(modes[0].reason, "one is slow");
  EXPECT_TRUE(run.take_modes().empty());
  ASSERT_TRUE(played.say(4, ValidatedReport{{1}, 20, 7.5, 3}).ok());
  const std::vector<ValidatedReport> validated = run.take_validated();
  ASSERT_EQ(validated.size(), 1u);
  EXPECT_EQ(validated[0].replica, ReplicaId{1});
  EXPECT_EQ(validated[0].step, 20);
  EXPECT_EQ(validated[0].loss_sum, 7.5);
  EXPECT_EQ(validated[0].micros, 3);
  EXPECT_TRUE(run.take_validated().empty());
  // The newest committed version counts, in whatever order it is said.
  ASSERT_TRUE(played.say(kDecider, CommittedReport{{7}, {28}, {1}, 0.5, 6, {}}).ok());
  ASSERT_TRUE(played.say(0, CommittedReport{{6}, {24}, {1}, 0.25, 3, {}}).ok());
  EXPECT_EQ(run.committed().version, Version{7});
  EXPECT_EQ(run.committed().applied, Mass{28});
  EXPECT_EQ(run.committed().works, 6);
}

TEST(ServerRun, KeepersSaveWhoeverDecides) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  run.save();
  played.collect();
  EXPECT_EQ(played.take_texts(), Texts{"2 save"});
  // It dies before anybody has written anything, so its successor is told again.
  run.give_up({kDecider});
  ASSERT_TRUE(run.lose({kDecider}).ok());
  played.count_while_answering("");
  const WorkerId now = run.newest().places.at(run.newest().members.decider);
  EXPECT_EQ(played.take_texts().back(), cat(now, " save"));
  const SavedReport saved{{{0}, 0, 6}, {9}, {36}, {{"a.state", 24, "x"}}};
  ASSERT_TRUE(played.say(0, saved).ok());
  const std::vector<SavedReport> all = run.take_saved();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].range, saved.range);
  EXPECT_EQ(all[0].mass, Mass{36});
  EXPECT_EQ(all[0].files, saved.files);
  EXPECT_TRUE(run.take_saved().empty());
  // Once something was written, another epoch asks for nothing.
  run.give_up({4});
  ASSERT_TRUE(run.lose({4}).ok());
  played.count_while_answering("");
  EXPECT_EQ(played.take_texts().back(), cat(now, " install"));
}

TEST(ServerRun, BeforeThereAreMembersNobodyIsToldToSave) {
  PlayedRun played;
  played.run.save();
  played.count_while_answering("");
  ASSERT_TRUE(played.run.begin(std::chrono::seconds(5)).ok());
  EXPECT_EQ(played.count_while_answering("save"), 1);
}

TEST(ServerRun, AnotherProcessDecidesAfterTheLossOfTheDecider) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  SyncMode mode;
  mode.kind = SyncKind::Asynchronous;
  run.want(mode);
  played.collect();
  EXPECT_EQ(played.take_texts(), Texts{"2 mode"});
  run.give_up({kDecider});
  ASSERT_TRUE(run.lose({kDecider}).ok());
  played.collect();
  EXPECT_EQ(played.take_texts(), (Texts{"0 lost", "1 lost", "3 lost", "4 lost", "0 members",
                                        "1 members", "3 members", "4 members"}));
  EXPECT_FALSE(run.is_installed());
  played.count_while_answering("");
  EXPECT_TRUE(run.is_installed());
  const WorkerId now = run.newest().places.at(run.newest().members.decider);
  EXPECT_EQ(run.processes()[static_cast<size_t>(now.value)].process.kind, ProcessKind::Server);
  EXPECT_EQ(played.take_texts(), (Texts{cat(now, " install"), cat(now, " mode")}));
  // One that takes its place joins as soon as it is connected, and changes no members.
  played.start({{}, ProcessKind::Decider, {}, {}});
  EXPECT_EQ(played.count_while_answering("begin"), 1);
  EXPECT_EQ(run.newest().members.epoch, 2);
}

TEST(ServerRun, AReplicaComesBack) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  run.give_up({4});
  ASSERT_TRUE(run.lose({4}).ok());
  played.count_while_answering("");
  EXPECT_TRUE(run.newest().members.replicas[1].empty());
  played.take_texts();
  played.start({{}, ProcessKind::Part, {1}, {0}});
  EXPECT_EQ(played.take_texts(), Texts{"5 connect"});
  EXPECT_EQ(played.count_while_answering("members"), 5);
  EXPECT_TRUE(run.is_installed());
  EXPECT_EQ(run.newest().members.epoch, 3);
  EXPECT_EQ(run.newest().members.replicas[1].size(), 1u);
}

TEST(ServerRun, ReplicasStopThenTheDeciderFinishesThenTheOthers) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  run.stop();
  played.collect();
  EXPECT_EQ(played.take_texts(), (Texts{"3 stop", "4 stop"}));
  ASSERT_TRUE(played.say(3, StoppedReport{}).ok());
  EXPECT_EQ(played.take_texts(), Texts{});
  EXPECT_FALSE(run.have_replicas_stopped());
  ASSERT_TRUE(played.say(4, StoppedReport{}).ok());
  EXPECT_EQ(played.take_texts(), Texts{"2 finish"});
  EXPECT_TRUE(run.have_replicas_stopped());
  EXPECT_FALSE(run.has_decider_finished());
  EXPECT_FALSE(run.decided().has_value());
  const Tally tally{12, {48}, 7};
  const Balance decided{{12}, tally, {48}};
  ASSERT_TRUE(played.say(kDecider, FinishedReport{true, decided, {11}}).ok());
  EXPECT_EQ(run.decided(), decided);
  EXPECT_EQ(played.take_texts(), (Texts{"0 finish after save 11", "1 finish after save 11"}));
  EXPECT_TRUE(run.has_decider_finished());
  ASSERT_TRUE(played.say(0, StateReport{{3}, {12}, true, tally}).ok());
  // A standby that waits for its range.
  ASSERT_TRUE(played.say(0, StateReport{{4}, {0}, false}).ok());
  ASSERT_TRUE(played.say(0, FinishedReport{}).ok());
  EXPECT_FALSE(run.has_finished());
  // A process that is done may leave.
  ASSERT_TRUE(played.say(1, LostReport{{0}}).ok());
  ASSERT_TRUE(played.say(1, FinishedReport{}).ok());
  EXPECT_TRUE(run.has_finished());
  EXPECT_EQ(run.states().at({3}), Version{12});
  const std::vector<KeptTally> tallies = run.tallies();
  ASSERT_EQ(tallies.size(), 1u);
  EXPECT_EQ(tallies[0].keeper, "keeper 3");
  EXPECT_EQ(tallies[0].version, Version{12});
  EXPECT_EQ(tallies[0].tally, tally);
  EXPECT_EQ(run.decided(), decided) << "the process of a keeper says nothing of it";
}

TEST(ServerRun, ADeciderThatIsLostAtTheEndHasASuccessorThatFinishes) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  run.stop();
  ASSERT_TRUE(played.say(3, StoppedReport{}).ok());
  ASSERT_TRUE(played.say(4, StoppedReport{}).ok());
  EXPECT_EQ(played.take_texts().back(), "2 finish");
  run.give_up({kDecider});
  ASSERT_TRUE(run.lose({kDecider}).ok());
  played.collect();
  const WorkerId now = run.newest().places.at(run.newest().members.decider);
  EXPECT_EQ(played.take_texts().back(), cat(now, " finish"));
}

TEST(ServerRun, FaultsAreToldUnlessTheProcessWasGivenUp) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  const Status failed = played.say(0, FailedReport{"the disk is full\n"});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::Corrupt);
  EXPECT_EQ(failed.error().reach, Reach::Job);
  EXPECT_EQ(failed.error().message, "process 0 says: the disk is full?");
  const Status lost = played.say(3, LostReport{{1}});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message, "process 3 has lost process 1, which was not killed");
  const Status unknown = played.say(17, FinishedReport{});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message, "process 17 was never started, and says something");
  run.give_up({1});
  EXPECT_TRUE(played.say(3, LostReport{{1}}).ok());
  EXPECT_TRUE(played.say(1, FailedReport{"anything"}).ok());
}

// Two that were lost come back together. The second one is connected while the members with the
// first one are on their way, and changes nothing in them. It gets them too, or nobody would
// install them.
TEST(ServerRun, TwoComeBackTogether) {
  PlayedRun played;
  ServerRun& run = played.run;
  played.begin();
  for (const int32_t lost : {1, kDecider}) {
    run.give_up({lost});
    ASSERT_TRUE(run.lose({lost}).ok());
  }
  played.count_while_answering("");
  ASSERT_TRUE(run.is_installed());
  played.take_texts();
  played.start({{}, ProcessKind::Server, {}, {}});
  played.start({{}, ProcessKind::Decider, {}, {}});
  ASSERT_TRUE(played.say(5, ConnectedReport{}).ok());
  EXPECT_FALSE(run.is_installed());
  ASSERT_TRUE(played.say(6, ConnectedReport{}).ok());
  const int64_t epoch = run.newest().members.epoch;
  EXPECT_EQ(played.take_texts(),
            (Texts{"5 connect", "6 connect", "5 begin", "0 members", "3 members", "4 members",
                   "5 members", "6 begin", "6 members"}));
  for (const int32_t process : {0, 3, 4, 5, 6}) {
    EXPECT_FALSE(run.is_installed());
    ASSERT_TRUE(played.say(process, PlacedReport{epoch}).ok());
  }
  EXPECT_TRUE(run.is_installed());
  EXPECT_EQ(played.take_texts(), Texts{"0 install"});
}

// The one that was started later may be connected first.
TEST(ServerRun, TwoComeBackInAnotherOrder) {
  PlayedRun played;
  played.begin();
  for (const int32_t lost : {1, kDecider}) {
    played.run.give_up({lost});
    ASSERT_TRUE(played.run.lose({lost}).ok());
  }
  played.count_while_answering("");
  played.start({{}, ProcessKind::Server, {}, {}});
  played.start({{}, ProcessKind::Decider, {}, {}});
  played.leave_to_the_test();
  ASSERT_TRUE(played.say(6, ConnectedReport{}).ok());
  ASSERT_TRUE(played.say(5, ConnectedReport{}).ok());
  played.count_while_answering("");
  EXPECT_TRUE(played.run.is_installed());
  EXPECT_EQ(played.run.newest().members.ranges[0].keepers.size(), 2u);
}

// The first command of a process is always the one to connect, also when another process is lost
// while this one starts.
TEST(ServerRun, ANewProcessIsNotToldOfOneThatWasLostBefore) {
  PlayedRun played;
  played.begin();
  const WorkerId joiner = played.run.start({{}, ProcessKind::Server, {}, {}});
  ASSERT_TRUE(played.run.lose({0}).ok());
  played.collect();
  for (const std::string& text : played.take_texts()) {
    EXPECT_FALSE(text.starts_with(cat(joiner, " "))) << text;
  }
  ASSERT_TRUE(played.run.handle(joiner, ListeningReport{"host:5"}).ok());
  const auto commands = played.run.take_commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].process, joiner);
  const auto& connect = std::get<ConnectCommand>(commands[0].command);
  ASSERT_EQ(connect.processes.size(), 4U);
  EXPECT_EQ(connect.processes[0].process, WorkerId{1});
}

// ---- replicas of several stages --------------------------------------------------------------

// Two servers, and two replicas of two stages: replica r has processes 2 + 2 r and 3 + 2 r. The
// test answers all commands that are about members.
class StagedRun {
 public:
  StagedRun() {
    for (int32_t i = 0; i < 2; ++i) start({{}, ProcessKind::Server, {}, {}});
    for (int32_t r = 0; r < 2; ++r) {
      for (int32_t s = 0; s < 2; ++s) start({{}, ProcessKind::Part, {r}, {s}});
    }
    EXPECT_TRUE(run.begin({}).ok());
    take();
  }

  // Starts a process, which is connected at once.
  int32_t start(const RunProcess& process) {
    const int32_t number = run.start(process).value;
    say(number, ListeningReport{cat("host:", number)});
    say(number, ConnectedReport{});
    return number;
  }

  void say(int32_t process, const HostReport& report) {
    const Status handled = run.handle({process}, report);
    EXPECT_TRUE(handled.ok()) << (handled.ok() ? "" : handled.error().message);
  }

  // The process says where it listens for the formation of this epoch.
  void form(int32_t process, int64_t epoch) {
    say(process, FormingReport{epoch, cat("part:", process)});
  }

  void place_all(int64_t epoch) {
    for (const HostedProcess& one : run.processes()) {
      if (one.lives()) say(one.process.number.value, PlacedReport{epoch});
    }
  }

  void lose(int32_t process) {
    run.give_up({process});
    EXPECT_TRUE(run.lose({process}).ok());
  }

  // The newest commands to form, each as "PROCESS EPOCH: ADDRESSES"; all others are forgotten.
  std::vector<std::string> take() {
    std::vector<std::string> texts;
    for (const ServerRun::Task& task : run.take_commands()) {
      const auto* form = std::get_if<FormCommand>(&task.command);
      if (form == nullptr) continue;
      std::string text = cat(task.process, " ", form->epoch, ":");
      for (const std::string& address : form->addresses) text += cat(" ", address);
      texts.push_back(text);
    }
    return texts;
  }

  int64_t epoch() const { return run.newest().members.epoch; }

  ServerRun run{Roster::make({{{{0}, 0, 6}, {{1}, 0, 4}}, 2}).value()};
};

TEST(StagedServerRun, PartsAreToldWhereTheOthersListen) {
  StagedRun staged;
  staged.form(2, 1);
  staged.form(5, 1);
  EXPECT_EQ(staged.take(), Texts{}) << "each replica lacks a part";
  staged.form(3, 1);
  EXPECT_EQ(staged.take(), (Texts{"2 1: part:2 part:3", "3 1: part:2 part:3"}));
  staged.form(4, 1);
  EXPECT_EQ(staged.take(), (Texts{"4 1: part:4 part:5", "5 1: part:4 part:5"}));
  EXPECT_FALSE(staged.run.is_installed());
  staged.place_all(1);
  EXPECT_TRUE(staged.run.is_installed());
  EXPECT_EQ(staged.run.newest().members.replicas[1].size(), 2u);
}

TEST(StagedServerRun, APartDiesWhileItsReplicaForms) {
  StagedRun staged;
  for (const int32_t part : {2, 3, 4}) staged.form(part, 1);
  staged.take();
  staged.lose(5);
  EXPECT_EQ(staged.epoch(), 2);
  EXPECT_TRUE(staged.run.newest().members.replicas[1].empty());
  // What was on its way for the formation before leads to nothing.
  staged.form(4, 1);
  EXPECT_EQ(staged.take(), Texts{});
  staged.place_all(2);
  EXPECT_TRUE(staged.run.is_installed());
  // Another process for the stage: both parts form anew, and the other replica goes on.
  const int32_t fresh = staged.start({{}, ProcessKind::Part, {1}, {1}});
  EXPECT_EQ(staged.epoch(), 3);
  staged.take();
  staged.form(4, 3);
  EXPECT_EQ(staged.take(), Texts{});
  staged.form(fresh, 3);
  EXPECT_EQ(staged.take(), (Texts{"4 3: part:4 part:6", "6 3: part:4 part:6"}));
  EXPECT_FALSE(staged.run.is_installed());
  staged.place_all(3);
  EXPECT_TRUE(staged.run.is_installed());
  EXPECT_EQ(staged.run.newest().members.replicas[1].size(), 2u);
}

// A new decider gives out all works anew, so what parts send each other begins anew as well.
TEST(StagedServerRun, AnotherDeciderMeansOtherFormations) {
  StagedRun staged;
  for (int32_t part = 2; part < 6; ++part) staged.form(part, 1);
  staged.take();
  staged.place_all(1);
  const WorkerId before = staged.run.newest().places.at(staged.run.newest().members.decider);
  staged.lose(before.value);
  staged.take();
  for (int32_t part = 2; part < 6; ++part) staged.form(part, 2);
  EXPECT_EQ(staged.take(), (Texts{"2 2: part:2 part:3", "3 2: part:2 part:3", "4 2: part:4 part:5",
                                  "5 2: part:4 part:5"}));
  staged.place_all(2);
  EXPECT_TRUE(staged.run.is_installed());
}

TEST(ServerRun, AllAreToldWhatTheJobMayTake) {
  PlayedRun played;
  ServerRun& run = played.run;
  run.lease({true, 0.5});
  played.count_while_answering("");
  ASSERT_TRUE(run.begin(std::chrono::seconds(5)).ok());
  EXPECT_EQ(played.count_while_answering("lease"), 5) << "nobody before the run begins";
  run.lease({true, 0.5});
  EXPECT_EQ(played.count_while_answering("lease"), 0) << "they know it";
  run.lease({false, 0});
  EXPECT_EQ(played.count_while_answering("lease"), 5);
  // One that comes later knows what the others know, and no more.
  played.start({{}, ProcessKind::Server, {}, {}});
  EXPECT_EQ(played.count_while_answering("lease"), 1);
}

TEST(ServerRun, WhatIsSentIsHandedOn) {
  PlayedRun played;
  played.begin();
  TrafficReport report;
  report.sent = {{{1}, 500}, {{1000}, 7}, {{-1}, 7}, {{1}, -5}};
  EXPECT_TRUE(played.say(kDecider, report).ok());
  report.sent = {{{0}, 20}};
  EXPECT_TRUE(played.say(1, report).ok());
  const auto sent = played.run.take_sent();
  ASSERT_EQ(sent.size(), 2u) << "what cannot be is left out";
  EXPECT_EQ(sent[0].first.value, kDecider);
  EXPECT_EQ(sent[0].second, (SentBytes{{1}, 500}));
  EXPECT_EQ(sent[1].first.value, 1);
  EXPECT_EQ(sent[1].second, (SentBytes{{0}, 20}));
  EXPECT_TRUE(played.run.take_sent().empty());
}

TEST(ServerRun, WhatTheDeciderAsksForIsHandedOn) {
  PlayedRun played;
  played.begin();
  SyncMode mode;
  mode.kind = SyncKind::Asynchronous;
  EXPECT_TRUE(played.say(kDecider, AskReport{mode, 0.25}).ok());
  const std::vector<AskReport> asked = played.run.take_questions();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].mode, mode);
  EXPECT_EQ(asked[0].gain, 0.25);
  EXPECT_TRUE(played.run.take_questions().empty());
}

}  // namespace
}  // namespace tenuto::servers
