// Files of troubles: what is read, and the sentence about each wrong line.
#include "outlook/trouble_file.h"

#include <gtest/gtest.h>

#include "base/longest_time.h"
#include "base/text.h"

namespace tenuto::outlook {
namespace {

constexpr ClusterShape kShape{4, 3};

std::string with_head(const std::string& lines) { return cat(kTroubleHead, "\n", lines); }

std::string refusal(const std::string& text, const ClusterShape& shape = kShape) {
  const auto read = read_troubles(text, "week.csv", shape);
  return read.ok() ? "read" : read.error().message;
}

TEST(TroubleFile, LinesAreReadInAnyOrder) {
  const auto read =
      read_troubles(with_head("# a comment\n\n20.5, slow-worker, 1.2, 1.5, 600 # here too\n"
                              "10,dead-worker,2.3,,\r\n30,slow-link,0.2,5,0"),
                    "week.csv", kShape);
  ASSERT_TRUE(read.ok()) << read.error().message;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const std::vector<Trouble> expected = {
      {seconds(10), kLongestTime, TroubleKind::DeadWorker, 2, 3, 0},
      {milliseconds(20'500), milliseconds(620'500), TroubleKind::SlowWorker, 1, 2, 1.5},
      {seconds(30), seconds(30), TroubleKind::SlowLink, 0, 2, 5}};
  EXPECT_EQ(read.value(), expected);
}

TEST(TroubleFile, AHeadAloneIsNoTrouble) {
  const auto read = read_troubles(cat(kTroubleHead), "week.csv", kShape);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().empty());
}

TEST(TroubleFile, EachWrongLineHasItsSentence) {
  EXPECT_EQ(refusal("\n"),
            cat("week.csv: expected the head ", kTroubleHead, ", found an empty file"));
  EXPECT_EQ(refusal("1,dead-worker,0.0,,\n"),
            cat("week.csv:1: expected the head ", kTroubleHead, ", found '1,dead-worker,0.0,,'"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1,dead-worker,0.0",
       "the 5 fields time_s,kind,target,factor,duration_s, found "
       "'1,dead-worker,0.0'"},
      {"1,dead-worker,0.0,,,",
       "the 5 fields time_s,kind,target,factor,duration_s, found "
       "'1,dead-worker,0.0,,,'"},
      {"-1,dead-worker,0.0,,", "time_s, seconds from 0 to 1000000000, found '-1'"},
      {"nan,dead-worker,0.0,,", "time_s, seconds from 0 to 1000000000, found 'nan'"},
      {"1,dead,0.0,,", "the kind dead-worker, slow-worker or slow-link, found 'dead'"},
      {"1,dead-worker,3.0,,",
       "the target P.S with a pipeline from 0 to 2 and a stage from 0 to "
       "3, found '3.0'"},
      {"1,dead-worker,0.4,,",
       "the target P.S with a pipeline from 0 to 2 and a stage from 0 to "
       "3, found '0.4'"},
      {"1,slow-link,0.3,2,",
       "the target P.S with a pipeline from 0 to 2 and a stage from 0 to 2, "
       "found '0.3'"},
      {"1,slow-worker,3,2,",
       "the target P.S with a pipeline from 0 to 2 and a stage from 0 to 3, "
       "found '3'"},
      {"1,dead-worker,0.0,2,", "no factor for a dead worker, found '2'"},
      {"1,slow-worker,0.0,,", "factor, a number from 1 to 1000, found ''"},
      {"1,slow-worker,0.0,0.5,", "factor, a number from 1 to 1000, found '0.5'"},
      {"1,slow-worker,0.0,2,-3",
       "duration_s, seconds from 0 to 1000000000 or nothing, found "
       "'-3'"}};
  for (const auto& [line, sentence] : cases) {
    EXPECT_EQ(refusal(with_head("0,dead-worker,0.0,,\n" + line)),
              "week.csv:3: expected " + sentence);
  }
}

TEST(TroubleFile, OneStageHasNoLinks) {
  EXPECT_EQ(refusal(with_head("1,slow-link,0.0,2,"), {1, 3}),
            "week.csv:2: expected no slow link, because pipelines of one stage have no links, "
            "found '0.0'");
}

}  // namespace
}  // namespace tenuto::outlook
