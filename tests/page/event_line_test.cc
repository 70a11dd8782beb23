// Lines of events.jsonl, as the page reads them: also those that other versions write, and
// nonsense.
#include "page/event_line.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace tenuto::page {
namespace {

TEST(EventLine, HasWhatAPlannersDecisionSays) {
  const auto event = event_of_line(
      "{\"time\":1.5,\"event\":\"decision\",\"epoch\":2,\"step\":7,\"reason\":\"because\",\"plan\":"
      "4,"
      "\"alternatives\":[{\"name\":\"stay\",\"step_ms\":250,\"change_ms\":0,\"total_ms\":50000,"
      "\"chosen\":false},{\"name\":\"move layers\",\"step_ms\":125.0,\"chosen\":true}]}");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, "decision");
  EXPECT_EQ(event->epoch, 2);
  EXPECT_EQ(event->step, 7);
  EXPECT_EQ(event->reason, "because");
  EXPECT_EQ(event->plan, 4);
  ASSERT_EQ(event->alternatives.size(), 2u);
  const ShownAlternative& stay = event->alternatives[0];
  EXPECT_EQ(stay.name, "stay");
  EXPECT_EQ(stay.step, 0.25);
  EXPECT_EQ(stay.change, 0.0);
  EXPECT_EQ(stay.total, 50.0);
  EXPECT_FALSE(stay.chosen);
  const ShownAlternative& move = event->alternatives[1];
  EXPECT_EQ(move.step, 0.125);
  EXPECT_FALSE(move.change.has_value());
  EXPECT_TRUE(move.chosen);
}

TEST(EventLine, HasTheModesThatAModeWasChosenFrom) {
  const auto event = event_of_line(
      "{\"event\":\"mode\",\"reason\":\"sync mode x:2\",\"alternatives\":[{\"mode\":\"x:2\","
      "\"gradients_per_second\":20.5,\"age\":1.5,\"progress\":18.25}]}");
  ASSERT_TRUE(event.has_value());
  ASSERT_EQ(event->alternatives.size(), 1u);
  EXPECT_EQ(event->alternatives[0].name, "x:2");
  EXPECT_EQ(event->alternatives[0].progress, 18.25);
  EXPECT_FALSE(event->alternatives[0].step.has_value());
}

// What has another type than it should have is not known.
TEST(EventLine, ToleratesWhatItDoesNotKnow) {
  const auto event = event_of_line(
      "{\"event\":\"decision\",\"epoch\":\"two\",\"step\":null,\"reason\":[],\"plan\":1.5,"
      "\"alternatives\":[7,null,{},{\"name\":8},{\"name\":\"stay\",\"step_ms\":\"slow\","
      "\"change_ms\":null,\"chosen\":1,\"colour\":\"red\"}]}");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->epoch, 0);
  EXPECT_EQ(event->step, 0);
  EXPECT_EQ(event->reason, "");
  EXPECT_EQ(event->plan, 0);
  ASSERT_EQ(event->alternatives.size(), 1u);
  EXPECT_EQ(event->alternatives[0].name, "stay");
  EXPECT_FALSE(event->alternatives[0].step.has_value());
  EXPECT_FALSE(event->alternatives[0].chosen);
  EXPECT_TRUE(event_of_line("{\"event\":\"end\",\"alternatives\":{}}")->alternatives.empty());
}

TEST(EventLine, IsNoneWhereThereIsNoEvent) {
  for (const char* line : {"", "{", "[]", "7", "{}", "{\"event\":\"\"}", "{\"event\":5}",
                           "{\"event\":\"death\",\"epo", "\xff\xfe"}) {
    EXPECT_FALSE(event_of_line(line).has_value()) << line;
  }
}

TEST(EventLine, HasSoManyAlternativesAndNoMore) {
  std::string line = "{\"event\":\"decision\",\"alternatives\":[";
  for (int i = 0; i < 1000; ++i) line += cat(i == 0 ? "" : ",", "{\"name\":\"", i, "\"}");
  const auto event = event_of_line(line + "]}");
  ASSERT_TRUE(event.has_value());
  ASSERT_EQ(event->alternatives.size(), kMostAlternatives);
  EXPECT_EQ(event->alternatives.back().name, cat(kMostAlternatives - 1));
}

}  // namespace
}  // namespace tenuto::page
