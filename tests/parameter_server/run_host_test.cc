// A process with all peers of a small run in it, from its first command to its last one.
#include "parameter_server/run_host.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/host.h"
#include "base/text.h"
#include "transport/memory.h"

namespace tenuto::servers {
namespace {

constexpr PeerId kDecider{0}, kKeeper{1}, kPart{2};
constexpr int64_t kElements = 5;
constexpr size_t kMostReports = 100'000;

Payload zeros(int64_t elements) {
  return std::make_shared<const std::vector<std::byte>>(
      static_cast<size_t>(elements * kElementBytes));
}

// Parameters that only count their updates.
class CountingStore : public ParameterStore {
 public:
  explicit CountingStore(int64_t& updates) : updates_(updates) {}
  void apply(const DecidedUpdate&, std::span<const Payload>) override { ++updates_; }
  Payload parameters() const override { return zeros(kElements); }
  Payload save() const override { return zeros(kElements); }
  Status load(const Payload&) override { return ok(); }

 private:
  int64_t& updates_;
};

// Has its gradient at the second look.
class CountingTrainer : public PartTrainer {
 public:
  Status begin(const Work& work, const std::vector<Payload>& parameters,
               Duration run_begun) override {
    EXPECT_GT(work.serial, last_serial_);
    last_serial_ = work.serial;
    EXPECT_EQ(parameters.size(), 1u);
    EXPECT_EQ(run_begun, std::chrono::seconds(3));
    looks_ = 0;
    return ok();
  }
  std::optional<ComputedIteration> advance(Duration now) override {
    looked_ = now;
    if (++looks_ < 2) return {};
    ComputedIteration computed{{zeros(kElements)}, {Duration{5}, Duration{2}}, 1};
    computed.loss = loss;
    computed.processor.cpu = Duration{4};
    if (!gives_transfer) {
      computed.time.transfer = Duration{-1};
      computed.transfer_is_given = false;
    }
    return computed;
  }
  Duration due() const override { return looked_; }
  void limit_cores(double limit) override { cores = limit; }
  std::optional<ValidatedReport> take_validated() override {
    if (validations.empty()) return {};
    const ValidatedReport first = validations.front();
    validations.pop_front();
    return first;
  }

  std::deque<ValidatedReport> validations;
  std::optional<double> loss;
  bool gives_transfer = true;
  double cores = 0;

 private:
  int64_t last_serial_ = -1;
  int looks_ = 0;
  Duration looked_{};
};

// The wire of a part to others, which is connected at the third look.
class CountingWire : public PartWire {
 public:
  Result<std::string> listen(int64_t epoch) override {
    EXPECT_EQ(epoch, 1);
    return std::string("part:1");
  }
  Status end() override { return invalid("the replica stays in the run"); }
  Status connect(const std::vector<std::string>& addresses) override {
    connected_to = addresses;
    return ok();
  }
  Result<bool> go_on() override { return ++looks == 3; }
  std::vector<StageId> take_lost() override { return {}; }

  std::vector<std::string> connected_to;
  int looks = 0;
};

// The host of the run: answers each report at once, and ends the run after some iterations.
class ScriptedHost : public HostLink {
 public:
  Result<std::optional<HostCommand>> next(Duration) override {
    if (commands_.empty()) return std::optional<HostCommand>();
    HostCommand command = std::move(commands_.front());
    commands_.pop_front();
    return std::optional(std::move(command));
  }
  bool has_ended() const override { return has_ended_; }
  Status report(const HostReport& report) override {
    reports.push_back(report);
    if (std::holds_alternative<ListeningReport>(report)) commands_.push_back(first);
    if (std::holds_alternative<ConnectedReport>(report)) {
      commands_.push_back(BeginCommand{std::chrono::seconds(3)});
      if (lease) commands_.push_back(*lease);
      commands_.push_back(MembersCommand{members()});
    }
    if (const auto* forming = std::get_if<FormingReport>(&report)) {
      commands_.push_back(FormCommand{forming->epoch, {forming->address}});
    }
    if (std::holds_alternative<PlacedReport>(report)) commands_.push_back(InstallCommand{});
    if (std::holds_alternative<MeasuredReport>(report)) {
      ++iterations;
      if (iterations == saves_at) commands_.push_back(SaveCommand{});
      if (iterations == 4) commands_.push_back(StopCommand{});
    }
    const auto* committed = std::get_if<CommittedReport>(&report);
    if (committed != nullptr && stops_at_version > 0 && !is_stopped_ &&
        committed->version.value >= stops_at_version) {
      is_stopped_ = true;
      commands_.push_back(StopCommand{});
    }
    if (std::holds_alternative<StoppedReport>(report)) commands_.push_back(FinishCommand{});
    if (std::holds_alternative<FinishedReport>(report)) has_ended_ = true;
    if (reports.size() > kMostReports) return invalid("the run does not end");
    return ok();
  }

  HostCommand first = ConnectCommand{};
  std::optional<LeaseCommand> lease;
  std::vector<HostReport> reports;
  int iterations = 0;
  int64_t stops_at_version = 0;  // 0 = after some iterations
  int saves_at = 0;  // the iteration after which keepers are to write down what they have

 private:
  static PlacedMembers members() {
    PlacedMembers placed;
    placed.members.epoch = 1;
    placed.members.decider = kDecider;
    placed.members.ranges.push_back({{{0}, 0, kElements}, {kKeeper}});
    placed.members.replicas.push_back({kPart});
    for (const PeerId peer : {kDecider, kKeeper, kPart}) placed.places[peer] = WorkerId{0};
    return placed;
  }

  std::deque<HostCommand> commands_;
  bool has_ended_ = false, is_stopped_ = false;
};

// A process over the transport within a process.
struct HostedRun {
  HostedRun() {
    Hello hello;
    hello.self = {0};
    transport = make_memory_transport(network, hello, mailbox);
  }

  Status run() {
    HostSettings settings;
    settings.process.number = {0};
    settings.process.replica = {0};
    settings.peers.make_store = [this](const ElementRange&) {
      return std::make_unique<CountingStore>(updates);
    };
    settings.peers.decider.micros = 2;
    settings.peers.decider.record = first_record({}, 1);
    settings.peers.decider.save_every = save_every;
    settings.peers.write_down = [this](const std::string& line) { lines.push_back(line); };
    settings.choice.replicas = 1;
    settings.pace = pace;
    settings.trainer = &trainer;
    settings.wire = wire;
    settings.reports_iterations = reports_iterations;
    settings.save = [this](PeerId id, const ServerShard&) {
      saved.push_back(id);
      return ok();
    };
    settings.save_state = [this](const ElementRange& range, const SavedState& state) {
      return save_state(range, state);
    };
    return run_host(*transport, mailbox, host, std::move(settings));
  }

  Result<std::vector<SavedFile>> save_state(const ElementRange& range, const SavedState& state) {
    EXPECT_EQ(range, (ElementRange{{0}, 0, kElements}));
    EXPECT_EQ(size_of(state.state).count, kElements * kElementBytes);
    if (disk_is_full) return invalid("the disk is full");
    states.push_back(state);
    return std::vector<SavedFile>{{cat("version-", state.version.value), 20, "sum"}};
  }

  // What was reported of this kind, in order.
  template <class Report>
  std::vector<Report> all() const {
    std::vector<Report> found;
    for (const HostReport& report : host.reports) {
      if (const auto* one = std::get_if<Report>(&report)) found.push_back(*one);
    }
    return found;
  }

  MemoryNetwork network;
  QueueMailbox mailbox;
  std::unique_ptr<Transport> transport;
  ScriptedHost host;
  CountingTrainer trainer;
  PartWire* wire = nullptr;
  std::shared_ptr<SendPace> pace;
  bool reports_iterations = true;
  Mass save_every;
  bool disk_is_full = false;
  std::vector<SavedState> states;
  int64_t updates = 0;
  std::vector<std::string> lines;
  std::vector<PeerId> saved;
};

TEST(RunHost, AProcessTrainsUntilItIsStopped) {
  HostedRun hosted;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(hosted.host.iterations, 4);
  // What the last offer makes may come after the end.
  EXPECT_GE(hosted.updates, 3);
  EXPECT_LE(hosted.updates, 4);
  EXPECT_EQ(hosted.saved, std::vector<PeerId>{kKeeper});
  // A line for each update, one when the decider begins, and its last record.
  EXPECT_EQ(std::ssize(hosted.lines), hosted.updates + 2);
  // What is committed is said in between.
  std::vector<HostReport> reports = hosted.host.reports;
  std::erase_if(reports, [](const HostReport& report) {
    return std::holds_alternative<CommittedReport>(report);
  });
  ASSERT_EQ(reports.size(), 10u);
  EXPECT_FALSE(std::get<ListeningReport>(reports[0]).address.empty());
  EXPECT_EQ(std::get<ListeningReport>(reports[0]).host, host_name());
  EXPECT_TRUE(std::holds_alternative<ConnectedReport>(reports[1]));
  EXPECT_EQ(std::get<PlacedReport>(reports[2]).epoch, 1);
  for (size_t i = 3; i < 7; ++i) {
    const MeasuredIteration& iteration = std::get<MeasuredReport>(reports[i]).iteration;
    EXPECT_EQ(iteration.replica, ReplicaId{0});
    EXPECT_EQ(iteration.time.compute, Duration{5});
    EXPECT_EQ(iteration.time.transfer, Duration{2});
  }
  EXPECT_TRUE(std::holds_alternative<StoppedReport>(reports[7]));
  EXPECT_EQ(std::get<StateReport>(reports[8]).keeper, kKeeper);
  EXPECT_EQ(std::get<StateReport>(reports[8]).version, Version{hosted.updates});
  // What the keeper has applied is what the decider has decided.
  const StateReport& state = std::get<StateReport>(reports[8]);
  EXPECT_TRUE(state.is_filled);
  EXPECT_EQ(state.tally.updates, hosted.updates);
  EXPECT_EQ(state.tally.applied, Mass{2 * hosted.updates});
  const FinishedReport& finished = std::get<FinishedReport>(reports[9]);
  EXPECT_TRUE(finished.has_decider);
  const std::vector<KeptTally> kept = {{"the keeper", state.version, state.tally}};
  EXPECT_TRUE(check_tallies(kept, finished.decided).ok());
}

TEST(RunHost, TheHostHearsWhatIsCommitted) {
  HostedRun hosted;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  int64_t version = 0, works = 0;
  const std::vector<CommittedReport> reports = hosted.all<CommittedReport>();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().version.value, 0) << "the first one says that the keeper has its range";
  for (size_t i = 0; i < reports.size(); ++i) {
    const CommittedReport& report = reports[i];
    EXPECT_EQ(report.filled, 1);
    if (i > 0) {
      EXPECT_GT(report.version.value, version);
    }
    version = report.version.value;
    works += report.works;
    EXPECT_EQ(report.applied, Mass{2 * version});
    EXPECT_EQ(report.dropped, Mass{});
    EXPECT_EQ(report.age, 0);
  }
  EXPECT_EQ(version, hosted.updates);
  EXPECT_EQ(works, hosted.updates);
}

TEST(RunHost, WhatTheTrainerDoesNotMeasureIsMeasured) {
  HostedRun hosted;
  hosted.trainer.gives_transfer = false;
  hosted.trainer.loss = 1.5;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const std::vector<MeasuredReport> measured = hosted.all<MeasuredReport>();
  ASSERT_EQ(measured.size(), 4u);
  for (const MeasuredReport& report : measured) {
    EXPECT_EQ(report.iteration.replica, ReplicaId{0});
    EXPECT_EQ(report.iteration.time.compute, Duration{5});
    EXPECT_GE(report.iteration.time.transfer, Duration{}) << "the trainer's own one is replaced";
    EXPECT_GE(report.iteration.receive, Duration{});
    EXPECT_LE(report.iteration.receive, report.iteration.time.transfer);
    EXPECT_EQ(report.iteration.processor.cpu, Duration{4});
    EXPECT_EQ(report.iteration.loss, 1.5);
  }
}

TEST(RunHost, TheTrainerKnowsHowManyCoresItMayUse) {
  HostedRun hosted;
  hosted.host.lease = LeaseCommand{false, 2.5};
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(hosted.trainer.cores, 2.5);
}

TEST(RunHost, TheTransportKnowsHowFastItMaySend) {
  HostedRun hosted;
  hosted.pace = std::make_shared<SendPace>();
  // The other limit is of another process.
  hosted.host.lease = LeaseCommand{false, 0, {{{0}, 1e6}, {{1}, 5e6}}, {{2}}};
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const Duration now = std::chrono::seconds(5);
  EXPECT_EQ(hosted.pace->reserve({1}, {1'000'000}, now), now);
  EXPECT_NEAR(to_milliseconds(hosted.pace->reserve({1}, {1'000'000}, now) - now), 1000, 10);
  EXPECT_EQ(hosted.pace->reserve({2}, {1'000'000}, now), now) << "it is spared";
}

// A part of several stages gets no work before it is connected to the others.
TEST(RunHost, APartIsPlacedWhenItIsConnectedToTheOthers) {
  HostedRun hosted;
  CountingWire wire;
  hosted.wire = &wire;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(wire.connected_to, std::vector<std::string>{"part:1"});
  EXPECT_EQ(wire.looks, 3);
  const std::vector<HostReport>& reports = hosted.host.reports;
  ASSERT_GE(reports.size(), 4u);
  EXPECT_EQ(std::get<FormingReport>(reports[2]).epoch, 1);
  EXPECT_EQ(std::get<PlacedReport>(reports[3]).epoch, 1);
  EXPECT_EQ(hosted.host.iterations, 4);
}

// The part of another stage does so.
TEST(RunHost, APartMayReportNoIterations) {
  HostedRun hosted;
  hosted.reports_iterations = false;
  hosted.trainer.validations = {{{}, 2, 1.5, 3}};
  hosted.host.stops_at_version = 4;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_TRUE(hosted.all<MeasuredReport>().empty());
  EXPECT_TRUE(hosted.all<ValidatedReport>().empty());
  EXPECT_TRUE(hosted.trainer.validations.empty());
  EXPECT_GE(hosted.updates, 4);
}

TEST(RunHost, ValidationsAreReportedInOrder) {
  HostedRun hosted;
  hosted.trainer.validations = {{{}, 2, 1.5, 3}, {{}, 4, 0.5, 1}};
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const std::vector<ValidatedReport> validated = hosted.all<ValidatedReport>();
  ASSERT_EQ(validated.size(), 2u);
  EXPECT_EQ(validated[0].replica, ReplicaId{0});
  EXPECT_EQ(validated[0].step, 2);
  EXPECT_EQ(validated[0].loss_sum, 1.5);
  EXPECT_EQ(validated[0].micros, 3);
  EXPECT_EQ(validated[1].step, 4);
}

// Each update has a mass of 2, and every other one is written down.
TEST(RunHost, StatesAreWrittenDownByMass) {
  HostedRun hosted;
  hosted.save_every = {4};
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const std::vector<SavedReport> saved = hosted.all<SavedReport>();
  ASSERT_EQ(std::ssize(saved), hosted.updates / 2);
  ASSERT_EQ(saved.size(), hosted.states.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const Version version{2 * static_cast<int64_t>(i) + 2};
    EXPECT_EQ(saved[i].range, (ElementRange{{0}, 0, kElements}));
    EXPECT_EQ(saved[i].version, version);
    EXPECT_EQ(saved[i].mass, Mass{2 * version.value});
    const std::vector<SavedFile> files = {{cat("version-", version.value), 20, "sum"}};
    EXPECT_EQ(saved[i].files, files);
    EXPECT_EQ(saved[i].tally.applied, saved[i].mass);
    EXPECT_TRUE(saved[i].has_record);
    EXPECT_EQ(saved[i].decided.tally, saved[i].tally);
    ASSERT_TRUE(hosted.states[i].record.has_value());
    EXPECT_EQ(hosted.states[i].record->version, version);
  }
}

// The second iteration has read what the first one's update made.
TEST(RunHost, StatesAreWrittenDownOnRequest) {
  HostedRun hosted;
  hosted.host.saves_at = 2;
  const Status ran = hosted.run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const std::vector<SavedReport> saved = hosted.all<SavedReport>();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_GE(saved[0].version, Version{1});
  EXPECT_EQ(saved[0].mass, Mass{2 * saved[0].version.value});
}

TEST(RunHost, AStateThatCannotBeWrittenEndsTheProcess) {
  HostedRun hosted;
  hosted.save_every = {4};
  hosted.disk_is_full = true;
  const Status ran = hosted.run();
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().message, "the disk is full");
}

TEST(RunHost, TheFirstCommandIsToConnect) {
  HostedRun hosted;
  hosted.host.first = StopCommand{};
  const Status ran = hosted.run();
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().message, "process 0 expected a command to connect, found another one");
}

}  // namespace
}  // namespace tenuto::servers
