// What is told of a week: rows, text, JSON and picture.
#include "outlook/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/unit.h"

namespace tenuto::outlook {
namespace {

Question question_of(std::vector<Trouble> troubles) {
  Question question;
  question.shape = {4, 3};
  question.week.length = std::chrono::hours(2);
  question.week.buckets = 8;
  question.troubles = std::move(troubles);
  return question;
}

Question with_a_death() {
  return question_of(
      {{std::chrono::minutes(30), std::chrono::minutes(60), TroubleKind::DeadWorker, 1, 2, 0}});
}

TEST(Report, WithoutTroublesEveryRowIsWhole) {
  const Report report = report_of(question_of({}));
  ASSERT_EQ(report.rows.size(), 8u);
  for (const Row& row : report.rows) {
    EXPECT_EQ(row.result.steps, report.question.week.length / report.undisturbed.time) << row.name;
    EXPECT_NEAR(row.share, 1, 1e-3) << row.name;
  }
}

TEST(Report, ADeathCostsEachRowWhatItLacks) {
  const Report report = report_of(with_a_death());
  const Row& all = report.rows.front();
  const Row& none = report.rows.back();
  EXPECT_EQ(report.rows[1].remedies, kTodaysRemedies);
  EXPECT_EQ(none.remedies, Remedies{});
  EXPECT_LT(none.share, all.share);
  EXPECT_LT(report.rows[1].share, all.share);  // nobody comes back by default
  EXPECT_LT(all.share, 1);
  EXPECT_GT(none.result.pauses[static_cast<size_t>(PauseKind::Restart)], Duration{});
  EXPECT_EQ(all.result.pauses[static_cast<size_t>(PauseKind::Restart)], Duration{});
}

TEST(Report, TheJsonHasTheGoodputOverTime) {
  const auto tree = to_json(report_of(with_a_death()));
  EXPECT_EQ(tree["workers"], 12);
  EXPECT_EQ(tree["deaths"], 1);
  EXPECT_EQ(tree["slow_links"], 0);
  ASSERT_EQ(tree["rows"].size(), 8u);
  const auto& shares = tree["rows"][0]["share_over_time"];
  ASSERT_EQ(shares.size(), 8u);
  EXPECT_NEAR(shares[0].get<double>(), 1, 0.01);  // before the death
  EXPECT_LT(shares[2].get<double>(), 0.95);       // with a worker less
  EXPECT_NEAR(shares[7].get<double>(), 1, 0.01);  // after its return
}

TEST(Report, TextAndPictureNameTheRows) {
  const Report report = report_of(with_a_death());
  const std::string text = to_text(report), picture = picture_of(report);
  for (const Row& row : report.rows) EXPECT_NE(text.find(row.name), std::string::npos) << text;
  EXPECT_NE(text.find("1 deaths, 0 slow workers, 0 slow links"), std::string::npos) << text;
  EXPECT_EQ(picture.rfind("<svg ", 0), 0u);
  EXPECT_EQ(picture.substr(picture.size() - 7), "</svg>\n");
  size_t curves = 0;
  for (size_t at = picture.find("<polyline"); at != std::string::npos;
       at = picture.find("<polyline", at + 1)) {
    ++curves;
  }
  EXPECT_EQ(curves, 3u);
}

}  // namespace
}  // namespace tenuto::outlook
