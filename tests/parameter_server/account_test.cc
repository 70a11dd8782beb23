// What the processes of a run write down: as text, and the audit, each of whose rules is broken
// once.
#include "parameter_server/account.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/text.h"

namespace tenuto::servers {
namespace {

constexpr PeerId kShard{1}, kStandby{2};

// Two micro-batches of this stream.
Work work_of(int64_t serial, int32_t stream, int64_t begin, int64_t version) {
  return {serial, {{stream}, {begin / 2}, {version}, {2}}, 1, {{{stream}, begin, begin + 2}}};
}

Duration at(int64_t seconds) { return std::chrono::seconds(seconds); }

// Two updates, a work that was dropped, one that is open, and what a lost one has returned.
RunAccount account_of_two() {
  RunAccount account;
  const std::vector<Work> first = {work_of(1, 0, 0, 0), work_of(2, 1, 0, 0)};
  const std::vector<Work> second = {work_of(3, 0, 2, 0)};
  account.applied = {{kShard, {0}, 0, at(2), first},
                     {kStandby, {0}, 0, at(1), first},
                     {kShard, {1}, 1, at(3), second},
                     {kStandby, {1}, 1, at(4), second}};
  account.dropped = {{1, 5, work_of(4, 1, 2, 1)}};
  account.begun = {{1, 1}};
  Record last = first_record({}, 2);
  last.version = last.committed = {2};
  last.updates_decided = 2;
  last.applied = {6};
  last.dropped = {2};
  last.streams[0].fresh = last.streams[1].fresh = 6;
  last.open = {{work_of(5, 0, 4, 2), false, false}};
  last.returned = {{{1}, 4, 6}};
  account.last = last;
  return account;
}

std::string text_of(const RunAccount& account) {
  std::string text;
  for (const auto& line : account.applied) text += to_text(line) + "\n";
  for (const auto& line : account.dropped) text += to_text(line) + "\n";
  for (const auto& line : account.begun) text += to_text(line) + "\n";
  return text + to_text(*account.last) + "\n";
}

TEST(Account, LinesAreReadAsTheyWereWritten) {
  const RunAccount account = account_of_two();
  const std::string text = text_of(account);
  EXPECT_EQ(text,
            "applied 1 0 0 2000000000 2 1 0 0 0 2 1 1 0 0 2 2 1 0 0 2 1 1 1 0 2\n"
            "applied 2 0 0 1000000000 2 1 0 0 0 2 1 1 0 0 2 2 1 0 0 2 1 1 1 0 2\n"
            "applied 1 1 1 3000000000 1 3 0 1 0 2 1 1 0 2 4\n"
            "applied 2 1 1 4000000000 1 3 0 1 0 2 1 1 0 2 4\n"
            "dropped 1 5 4 1 1 1 2 1 1 1 2 4\n"
            "begun 1 1\n"
            "last 2 2 2 6 2 2 6 6 1 1 4 6 1 5 0 2 2 2 1 1 0 4 6\n");
  RunAccount read;
  const Status added = add_lines(text, read);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(read.applied, account.applied);
  EXPECT_EQ(read.dropped, account.dropped);
  EXPECT_EQ(read.begun, account.begun);
  ASSERT_TRUE(read.last);
  EXPECT_EQ(*read.last, *account.last);
  // A second last record is refused.
  EXPECT_FALSE(add_lines(to_text(*account.last) + "\n", read).ok());
}

// A line that was cut off at the end of the text is left out, one within it is refused.
TEST(Account, LinesThatWereCut) {
  const std::string line = to_text(account_of_two().applied.front());
  for (size_t length = 1; length < line.size(); ++length) {
    const std::string cut = line.substr(0, length);
    RunAccount account;
    EXPECT_TRUE(add_lines(cut, account).ok());
    EXPECT_TRUE(account.applied.empty());
    EXPECT_FALSE(add_lines(cut + "\n", account).ok()) << cut;
  }
  RunAccount account;
  const Status unknown = add_lines("begun 1 1\nended 4\n", account);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "line 2 of the account of a process: expected applied, dropped, begun or one last, "
            "with their numbers, found 'ended 4'");
  for (const char* text : {"begun 1\n", "begun 1 x\n", "begun 1  1\n", "begun 1 1 1\n",
                           "applied 1 0 0 0 9000000000000000000\n", "applied 1 0 0 0 -1\n",
                           "applied 4294967296 0 0 0 0\n", "\n"}) {
    EXPECT_FALSE(add_lines(text, account).ok()) << text;
  }
}

TEST(Account, ARunThatIsRight) {
  const auto updates = audit(account_of_two());
  ASSERT_TRUE(updates.ok()) << updates.error().message;
  ASSERT_EQ(updates.value().size(), 2u);
  // As the first keeper had them.
  EXPECT_EQ(updates.value()[0].moment, at(1));
  EXPECT_EQ(updates.value()[1].moment, at(3));
}

void expect_fault(const std::function<void(RunAccount&)>& change, const std::string& sentence) {
  RunAccount account = account_of_two();
  change(account);
  const auto updates = audit(account);
  ASSERT_FALSE(updates.ok()) << sentence;
  EXPECT_EQ(updates.error().message, "audit: " + sentence);
}

TEST(Account, VersionsAreUpdates) {
  expect_fault([](RunAccount& of) { of.last.reset(); }, "no decider has written how the run ended");
  expect_fault([](RunAccount& of) { of.last->version = {3}; },
               "2 updates were applied: expected as many decided ones, and version and committed "
               "version to be as many, found 2, 3 and 2");
  expect_fault([](RunAccount& of) { of.last->updates_decided = 1; },
               "2 updates were applied: expected as many decided ones, and version and committed "
               "version to be as many, found 1, 2 and 2");
  expect_fault([](RunAccount& of) { of.last->committed = {1}; },
               "2 updates were applied: expected as many decided ones, and version and committed "
               "version to be as many, found 2, 2 and 1");
  expect_fault([](RunAccount& of) { of.applied.erase(of.applied.begin(), of.applied.begin() + 2); },
               "no keeper has applied an update to version 0");
  expect_fault([](RunAccount& of) { of.applied[3].works[0].serial = 9; },
               "keepers 1 and 2 have applied different updates to version 1");
  expect_fault([](RunAccount& of) { of.applied[3].number = 9; },
               "keepers 1 and 2 have applied different updates to version 1");
}

TEST(Account, EachMicroBatchIsInOnePlace) {
  expect_fault(
      [](RunAccount& of) { of.applied[2].works = of.applied[3].works = {work_of(3, 0, 0, 0)}; },
      "micro-batch 0 of stream 0 is in update 1 and in update 0");
  expect_fault([](RunAccount& of) { of.last->returned.clear(); },
               "micro-batch 4 of stream 1 is in no update, was not dropped by name, and does not "
               "wait");
  expect_fault([](RunAccount& of) { of.last->open.clear(); },
               "micro-batch 4 of stream 0 is in no update, was not dropped by name, and does not "
               "wait");
  expect_fault([](RunAccount& of) { of.last->streams[0].fresh = 5; },
               "micro-batch 5 of stream 0 is in the open work 5, but was never given out");
  expect_fault(
      [](RunAccount& of) {
        of.last->returned.push_back({{2}, 0, 1});
      },
      "what lost works returned has micro-batches of stream 2: expected one of 2 streams");
  expect_fault(
      [](RunAccount& of) {
        of.last->returned = {{{1}, 4, 4}, {{1}, 4, 6}};
      },
      "what lost works returned has an empty range");
  expect_fault([](RunAccount& of) { of.last->open[0].work.micros[0].end = 5; },
               "work 5 in the open work 5 has 1 micro-batches: expected the mass of its offer, 2");
  expect_fault([](RunAccount& of) { of.last->applied = {5}; },
               "micro-batches in updates and in dropped works: expected 5 and 2 as in the record, "
               "found 6 and 2");
}

// What a decider dropped just before it died does not count if the next one goes on without it.
TEST(Account, ADropThatNoKeeperKnows) {
  RunAccount account = account_of_two();
  account.begun.push_back({2, 5});
  EXPECT_FALSE(audit(account).ok());
  account.last->dropped = {};
  account.last->open.push_back({work_of(6, 1, 2, 2), false, false});
  const auto updates = audit(account);
  EXPECT_TRUE(updates.ok()) << updates.error().message;
  // The next one knows of it.
  account.begun.back().sequence = 6;
  EXPECT_FALSE(audit(account).ok());
}

// The second update's replica has read version 0: the four micro-batches of the first update came
// between.
TEST(Account, RateAndAgeAreMeasuredFromTheFirstUpdateOn) {
  const std::vector<AppliedLine> updates = audit(account_of_two()).value();
  const SyncMeasure measure = measure_updates(updates, at(10), {2});
  EXPECT_EQ(measure.updates, 2);
  EXPECT_DOUBLE_EQ(measure.gradients_per_second, 0.5);
  EXPECT_DOUBLE_EQ(measure.updates_per_second, 0.5);
  EXPECT_DOUBLE_EQ(measure.mean_age, 2);
  EXPECT_EQ(measure.end, at(3));
  EXPECT_EQ(measure_updates(updates, at(2), {2}).updates, 1);
  EXPECT_EQ(measure_updates(updates, at(2), {2}).gradients_per_second, 0);
  EXPECT_EQ(measure_updates({}, at(2), {2}).updates, 0);
}

}  // namespace
}  // namespace tenuto::servers
