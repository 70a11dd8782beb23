// The commands and reports of a run's host as bytes: each kind comes back, and damaged bytes are
// refused.
#include "parameter_server/host_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/text.h"
#include "parameter_server/message_bytes.h"
#include "transport/bytes.h"

namespace tenuto::servers {
namespace {

using ByteList = std::vector<std::byte>;

PlacedMembers two_servers() {
  PlacedMembers placed;
  placed.members = {3, {4}, {{{{0}, 0, 10}, {{0}, {1}}}, {{{0}, 10, 12}, {{2}}}}, {{{3}}, {}}};
  // The process of each peer.
  const std::vector<int32_t> processes = {0, 1, 1, 5, 2};
  for (size_t i = 0; i < processes.size(); ++i) {
    placed.places[PeerId{static_cast<int32_t>(i)}] = WorkerId{processes[i]};
  }
  return placed;
}

MeasuredIteration measured() {
  MeasuredIteration one{{2}, {std::chrono::milliseconds(30), std::chrono::milliseconds(7)}, 0.75};
  one.loss = 2.5;
  one.receive = std::chrono::milliseconds(3);
  one.processor = {std::chrono::milliseconds(4), std::chrono::milliseconds(50), 0.25};
  return one;
}

SyncMode grace() {
  SyncMode mode;
  mode.kind = SyncKind::Grace;
  mode.count = 2;
  mode.window = std::chrono::milliseconds(12);
  return mode;
}

Tally tally() { return {41, {160}, 0x8000'0000'0000'0001}; }

Balance balance() { return {{41}, tally(), {172}, {3}, {8}, {1}}; }

CommittedReport committed() { return {{41}, {160}, {3}, 1.25, 17, grace(), 5, 0.75}; }

SavedReport saved() {
  return {{{0}, 16, 32}, {41}, {160},    {{"stage-0-range-16-32.state", 4096, "abc"}, {}},
          tally(),       true, balance()};
}

ValidatedReport validated() { return {{1}, 40, 12.5, 4, 2.5}; }

std::vector<ModeAlternative> alternatives(size_t count) {
  std::vector<ModeAlternative> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back({grace(), 20.0 + static_cast<double>(i), 1.5, 0.25});
    all.back().mode.count = static_cast<int32_t>(i);
  }
  return all;
}

// One command of each kind, and some without contents.
std::vector<HostCommand> all_commands() {
  return {ConnectCommand{},
          ConnectCommand{{{{0}, "127.0.0.1:4000"}, {{3}, ""}}},
          BeginCommand{std::chrono::seconds(9)},
          MembersCommand{two_servers()},
          InstallCommand{},
          LostCommand{{3}},
          MeasuredCommand{measured()},
          ModeCommand{},
          ModeCommand{grace()},
          StopCommand{},
          FinishCommand{{7}},
          SaveCommand{},
          FormCommand{},
          FormCommand{4, {"127.0.0.1:4002", "127.0.0.1:4003"}},
          LeaseCommand{},
          LeaseCommand{true, 2.5},
          LeaseCommand{true, 2.5, {{{3}, 1e6}, {{4}, 2.5e6}}, {{0}, {1}}}};
}

// One report of each kind.
std::vector<HostReport> all_reports() {
  return {ListeningReport{"127.0.0.1:4001"},
          ConnectedReport{},
          PlacedReport{7},
          MeasuredReport{measured()},
          MeasuredReport{},
          ModeReport{grace(), "it is faster", {12}},
          ModeReport{grace(), "it is faster", {12}, alternatives(3)},
          StoppedReport{},
          StateReport{{2}, {41}},
          StateReport{{2}, {41}, false, tally()},
          FinishedReport{},
          FinishedReport{true, balance()},
          LostReport{{1}},
          FailedReport{"the disk is full"},
          committed(),
          SavedReport{},
          saved(),
          validated(),
          FormingReport{4, "127.0.0.1:4002"},
          AskReport{grace(), 0.25},
          TrafficReport{},
          TrafficReport{{{{0}, 5000}, {{2}, int64_t{1} << 40}}}};
}

// The bytes are refused in a sentence that has this part.
template <class Value>
void expect_refused(const Result<Value>& result, const std::string& part = "expected") {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::Corrupt);
  EXPECT_EQ(result.error().reach, Reach::Worker);
  EXPECT_EQ(result.error().message.find("a message of server shards is damaged: "), 0u);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

// Every cut of the bytes and every longer list of bytes is refused.
template <class Value>
void expect_only_whole(const ByteList& whole,
                       const std::function<Result<Value>(const ByteList&)>& read) {
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_refused(read({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}));
  }
  ByteList longer = whole;
  longer.push_back({});
  expect_refused(read(longer), "expected the end at byte");
}

TEST(HostMessage, EveryCommandComesBack) {
  std::vector<bool> seen(std::variant_size_v<HostCommand>);
  for (const HostCommand& command : all_commands()) {
    SCOPED_TRACE(cat("command ", command.index()));
    const ByteList bytes = encode_command(command);
    const auto back = decode_command(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value().index(), command.index());
    EXPECT_EQ(encode_command(back.value()), bytes);
    seen[command.index()] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
}

TEST(HostMessage, EveryReportComesBack) {
  std::vector<bool> seen(std::variant_size_v<HostReport>);
  for (const HostReport& report : all_reports()) {
    SCOPED_TRACE(cat("report ", report.index()));
    const ByteList bytes = encode_report(report);
    const auto back = decode_report(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value().index(), report.index());
    EXPECT_EQ(encode_report(back.value()), bytes);
    seen[report.index()] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
}

TEST(HostMessage, NothingIsLeftOut) {
  const auto connecting =
      decode_command(encode_command(ConnectCommand{{{{0}, "one:1"}, {{3}, "two:2"}}}));
  ASSERT_TRUE(connecting.ok());
  const std::vector<ProcessAddress> expected = {{{0}, "one:1"}, {{3}, "two:2"}};
  EXPECT_EQ(std::get<ConnectCommand>(connecting.value()).processes, expected);
  const auto members = decode_command(encode_command(MembersCommand{two_servers()}));
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(std::get<MembersCommand>(members.value()).placed, two_servers());
  const auto report = decode_report(encode_report(MeasuredReport{measured()}));
  ASSERT_TRUE(report.ok());
  const MeasuredIteration& iteration = std::get<MeasuredReport>(report.value()).iteration;
  EXPECT_EQ(iteration.replica, measured().replica);
  EXPECT_EQ(iteration.time.compute, measured().time.compute);
  EXPECT_EQ(iteration.time.transfer, measured().time.transfer);
  EXPECT_EQ(iteration.share, measured().share);
  EXPECT_EQ(iteration.loss, measured().loss);
  EXPECT_EQ(iteration.receive, measured().receive);
  EXPECT_EQ(iteration.processor, measured().processor);
  const auto listening = decode_report(encode_report(ListeningReport{"one:1", "first", 1000}));
  ASSERT_TRUE(listening.ok());
  EXPECT_EQ(std::get<ListeningReport>(listening.value()).address, "one:1");
  EXPECT_EQ(std::get<ListeningReport>(listening.value()).host, "first");
  EXPECT_EQ(std::get<ListeningReport>(listening.value()).port, 1000);
  const auto mode = decode_command(encode_command(ModeCommand{grace()}));
  ASSERT_TRUE(mode.ok());
  EXPECT_EQ(std::get<ModeCommand>(mode.value()).mode, grace());
  const auto failed = decode_report(encode_report(FailedReport{"the disk is full"}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(std::get<FailedReport>(failed.value()).why, "the disk is full");
  const auto changed = decode_report(encode_report(ModeReport{grace(), "it is faster", {12}}));
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(std::get<ModeReport>(changed.value()).mode, grace());
  EXPECT_EQ(std::get<ModeReport>(changed.value()).reason, "it is faster");
  EXPECT_EQ(std::get<ModeReport>(changed.value()).version, Version{12});
}

TEST(HostMessage, NothingIsLeftOutOfWhatIsCommittedSavedAndValidated) {
  const auto read = decode_report(encode_report(committed()));
  ASSERT_TRUE(read.ok());
  const auto& commit = std::get<CommittedReport>(read.value());
  EXPECT_EQ(commit.version, committed().version);
  EXPECT_EQ(commit.applied, committed().applied);
  EXPECT_EQ(commit.dropped, committed().dropped);
  EXPECT_EQ(commit.age, committed().age);
  EXPECT_EQ(commit.works, committed().works);
  EXPECT_EQ(commit.mode, committed().mode);
  EXPECT_EQ(commit.filled, 5);
  EXPECT_EQ(commit.kappa, committed().kappa);
  const auto again = decode_report(encode_report(saved()));
  ASSERT_TRUE(again.ok());
  const auto& state = std::get<SavedReport>(again.value());
  EXPECT_EQ(state.range, saved().range);
  EXPECT_EQ(state.version, saved().version);
  EXPECT_EQ(state.mass, saved().mass);
  EXPECT_EQ(state.files, saved().files);
  EXPECT_EQ(state.tally, tally());
  EXPECT_TRUE(state.has_record);
  EXPECT_EQ(state.decided, balance());
  const auto third = decode_report(encode_report(validated()));
  ASSERT_TRUE(third.ok());
  const auto& validation = std::get<ValidatedReport>(third.value());
  EXPECT_EQ(validation.replica, validated().replica);
  EXPECT_EQ(validation.step, validated().step);
  EXPECT_EQ(validation.loss_sum, validated().loss_sum);
  EXPECT_EQ(validation.micros, validated().micros);
  EXPECT_EQ(validation.accuracy_sum, validated().accuracy_sum);
}

// The rest is not sent, and who sends more is refused.
TEST(HostMessage, AlternativesHaveALimit) {
  for (const size_t count : {size_t{0}, size_t{3}, kMostAlternatives, kMostAlternatives + 1}) {
    const auto read =
        decode_report(encode_report(ModeReport{grace(), "", {}, alternatives(count)}));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(std::get<ModeReport>(read.value()).alternatives,
              alternatives(std::min(count, kMostAlternatives)));
  }
  // The count is the last number when there are none.
  ByteList bytes = encode_report(ModeReport{grace(), ""});
  bytes[bytes.size() - 4] = std::byte{kMostAlternatives + 1};
  bytes.resize(bytes.size() + 4096);
  expect_refused(decode_report(bytes), "expected at most 8 items");
}

TEST(HostMessage, NothingIsLeftOutOfTheEnd) {
  const auto read = decode_report(encode_report(StateReport{{2}, {41}, false, tally()}));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto& state = std::get<StateReport>(read.value());
  EXPECT_EQ(state.keeper, PeerId{2});
  EXPECT_EQ(state.version, Version{41});
  EXPECT_FALSE(state.is_filled);
  EXPECT_EQ(state.tally, tally());
  const auto again = decode_report(encode_report(FinishedReport{true, balance(), {7}}));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(std::get<FinishedReport>(again.value()).has_decider);
  EXPECT_EQ(std::get<FinishedReport>(again.value()).decided, balance());
  EXPECT_EQ(std::get<FinishedReport>(again.value()).save, Version{7});
}

TEST(HostMessage, NothingIsLeftOutOfAFormation) {
  const auto command = decode_command(encode_command(FormCommand{4, {"one:1", "two:2"}}));
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& form = std::get<FormCommand>(command.value());
  EXPECT_EQ(form.epoch, 4);
  EXPECT_EQ(form.addresses, (std::vector<std::string>{"one:1", "two:2"}));
  const auto report = decode_report(encode_report(FormingReport{5, "one:1"}));
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto& forming = std::get<FormingReport>(report.value());
  EXPECT_EQ(forming.epoch, 5);
  EXPECT_EQ(forming.address, "one:1");
}

TEST(HostMessage, NothingIsLeftOutOfALeaseAndOfAQuestion) {
  const LeaseCommand lease{true, 2.5, {{{3}, 1e6}, {{4}, 2.5e6}}, {{0}, {1}}};
  const auto command = decode_command(encode_command(lease));
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<LeaseCommand>(command.value()), lease);
  const TrafficReport traffic{{{{0}, 5000}, {{2}, int64_t{1} << 40}}};
  const auto sent = decode_report(encode_report(traffic));
  ASSERT_TRUE(sent.ok()) << sent.error().message;
  EXPECT_EQ(std::get<TrafficReport>(sent.value()).sent, traffic.sent);
  const auto report = decode_report(encode_report(AskReport{grace(), 0.25}));
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto& asked = std::get<AskReport>(report.value());
  EXPECT_EQ(asked.mode, grace());
  EXPECT_EQ(asked.gain, 0.25);
}

TEST(HostMessage, TornBytesAreRefused) {
  for (const HostCommand& command : all_commands()) {
    SCOPED_TRACE(cat("command ", command.index()));
    expect_only_whole<HostCommand>(encode_command(command),
                                   [](const ByteList& bytes) { return decode_command(bytes); });
  }
  for (const HostReport& report : all_reports()) {
    SCOPED_TRACE(cat("report ", report.index()));
    expect_only_whole<HostReport>(encode_report(report),
                                  [](const ByteList& bytes) { return decode_report(bytes); });
  }
}

TEST(HostMessage, RefusalsSayWhatWasExpected) {
  expect_refused(decode_command(ByteList{std::byte{12}}),
                 "expected a kind of message from 0 to 11");
  expect_refused(decode_report(ByteList{std::byte{16}}), "expected a kind of message from 0 to 15");
  // The length of the address stands behind the kind, and behind it that of the host's name.
  ByteList listening = encode_report(ListeningReport{"host:1"});
  listening[1] = std::byte{17};
  expect_refused(decode_report(listening), "expected a text of at most 16 bytes at byte 1");
  // The last two places are 4 bytes of a peer and 4 of its process each.
  ByteList members = encode_command(MembersCommand{two_servers()});
  std::swap_ranges(members.end() - 16, members.end() - 8, members.end() - 8);
  expect_refused(decode_command(members), "expected items in rising order");
}

TEST(HostMessage, ALongSentenceIsCut) {
  const auto report = decode_report(encode_report(FailedReport{std::string(5000, 'x')}));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(std::get<FailedReport>(report.value()).why, std::string(kFrameText, 'x'));
}

// They have the right form, and are still refused by whoever places them.
TEST(HostMessage, MembersWithoutAPlaceAreRefused) {
  EXPECT_TRUE(check(two_servers()).ok());
  PlacedMembers placed = two_servers();
  placed.places.erase(PeerId{2});
  const Status missing = check(placed);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message,
            "the members of epoch 3: expected a process in which peer 2 lives, found none");
  placed.places[PeerId{2}] = {};
  EXPECT_FALSE(check(placed).ok());
}

}  // namespace
}  // namespace tenuto::servers
