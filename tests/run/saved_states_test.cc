// Which saved ranges of server shards make a checkpoint.
#include "run/saved_states.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenuto {
namespace {

using servers::ElementRange;
using servers::SavedReport;

const ElementRange kFirst{{0}, 0, 16};
const ElementRange kSecond{{0}, 16, 40};

// The server that keeps the range has saved it, and the record if it has that.
SavedReport saved(const ElementRange& range, int64_t version, int64_t mass, bool has_record) {
  SavedReport report;
  report.range = range;
  report.version = {version};
  report.mass = {mass};
  report.files.push_back({range == kFirst ? "first.state" : "second.state", 100, "0123abcd"});
  report.tally = {version, {mass}, 7};
  if (has_record) {
    report.files.push_back({"record.state", 10, "89abcdef"});
    report.has_record = true;
    report.decided = servers::Balance{{version}, report.tally, {mass}};
  }
  return report;
}

std::vector<std::string> names_of(const SavedVersion& version) {
  std::vector<std::string> names;
  for (const servers::SavedFile& file : version.files) names.push_back(file.name);
  return names;
}

class SavedStatesTest : public testing::Test {
 protected:
  SavedStates states{{kFirst, kSecond}, Mass{8}};
};

TEST_F(SavedStatesTest, AllRangesAndTheRecordMakeACheckpoint) {
  EXPECT_FALSE(states.add(saved(kSecond, 5, 20, true)).has_value());
  EXPECT_EQ(states.newest(), Version{5});
  EXPECT_EQ(states.complete(), Version{0});
  const auto whole = states.add(saved(kFirst, 5, 20, true));
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->version, Version{5});
  EXPECT_EQ(whole->mass, Mass{20});
  EXPECT_EQ(whole->step, 2);
  EXPECT_EQ(names_of(*whole),
            (std::vector<std::string>{"first.state", "second.state", "record.state"}));
  EXPECT_EQ(states.complete(), Version{5});
}

TEST_F(SavedStatesTest, ACheckpointHasTheTalliesOfAllThatHaveWrittenIt) {
  EXPECT_FALSE(states.add(saved(kFirst, 6, 22, false)).has_value());
  // The keeper that takes its place writes the range again.
  EXPECT_FALSE(states.add(saved(kFirst, 6, 22, true)).has_value());
  const auto whole = states.add(saved(kSecond, 6, 22, false));
  ASSERT_TRUE(whole.has_value());
  ASSERT_EQ(whole->tallies.size(), 3u);
  EXPECT_TRUE(servers::check_tallies(whole->tallies, whole->decided).ok());
  EXPECT_EQ(whole->tallies[0].keeper, "the keeper of elements 0 to 16 of stage 0");
  EXPECT_EQ(whole->tallies[2].keeper, "the keeper of elements 16 to 40 of stage 0");
  EXPECT_EQ(whole->tallies[2].version, Version{6});
  EXPECT_EQ(whole->tallies[2].tally, (servers::Tally{6, {22}, 7}));
}

TEST_F(SavedStatesTest, WithoutTheRecordThereIsNone) {
  EXPECT_FALSE(states.add(saved(kFirst, 5, 20, false)).has_value());
  EXPECT_FALSE(states.add(saved(kSecond, 5, 20, false)).has_value());
  // The next keeper of the range has the record.
  EXPECT_TRUE(states.add(saved(kSecond, 5, 20, true)).has_value());
}

// A range of version 5 is never saved, because its keeper was lost. Version 9 replaces it.
TEST_F(SavedStatesTest, AVersionThatIsNeverWholeIsLeftBehind) {
  EXPECT_FALSE(states.add(saved(kFirst, 5, 20, true)).has_value());
  EXPECT_FALSE(states.add(saved(kFirst, 9, 40, true)).has_value());
  EXPECT_TRUE(states.add(saved(kSecond, 9, 40, true)).has_value());
  EXPECT_FALSE(states.add(saved(kSecond, 5, 20, true)).has_value());
  EXPECT_EQ(states.complete(), Version{9});
  EXPECT_EQ(states.newest(), Version{9});
}

// Both have the names of step 2: the files of version 6 take the place of those of version 5.
TEST_F(SavedStatesTest, ALaterVersionOfTheSameStepReplacesTheEarlierOne) {
  EXPECT_FALSE(states.add(saved(kFirst, 5, 20, true)).has_value());
  EXPECT_FALSE(states.add(saved(kFirst, 6, 22, true)).has_value());
  EXPECT_FALSE(states.add(saved(kSecond, 5, 20, true)).has_value());
  const auto whole = states.add(saved(kSecond, 6, 22, true));
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->version, Version{6});
}

TEST_F(SavedStatesTest, ALaterVersionOfAnotherStepDoesNot) {
  EXPECT_FALSE(states.add(saved(kFirst, 5, 20, true)).has_value());
  EXPECT_FALSE(states.add(saved(kFirst, 7, 24, true)).has_value());
  EXPECT_TRUE(states.add(saved(kSecond, 5, 20, true)).has_value());
  EXPECT_TRUE(states.add(saved(kSecond, 7, 24, true)).has_value());
}

TEST_F(SavedStatesTest, AnUnknownRangeChangesNothing) {
  EXPECT_FALSE(states.add(saved({{1}, 0, 16}, 5, 20, true)).has_value());
  EXPECT_EQ(states.newest(), Version{0});
}

}  // namespace
}  // namespace tenuto
