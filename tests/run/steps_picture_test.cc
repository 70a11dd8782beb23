// The picture of a run: which panels it has, and what stands in them.
#include "run/steps_picture.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

class StepsPictureTest : public ::testing::Test {
 protected:
  StepsPictureTest() {
    char name[] = "/tmp/tenuto-picture-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~StepsPictureTest() override { std::filesystem::remove_all(folder_); }

  std::string picture(const std::string& metrics, const std::string& events = "") {
    EXPECT_TRUE(write_file(folder_ + "/metrics.jsonl", metrics).ok());
    EXPECT_TRUE(write_file(folder_ + "/events.jsonl", events).ok());
    const Result<std::string> drawn = picture_of_steps(folder_);
    return drawn.ok() ? drawn.value() : "refused: " + drawn.error().message;
  }

 private:
  std::string folder_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string step(int64_t number, const std::string& more) {
  return cat("{\"step\":", number, ",\"step_ms\":", 10 + number, more, "}\n");
}

TEST_F(StepsPictureTest, ARunWithoutStepsHasNone) {
  EXPECT_TRUE(has(picture(""), "tells of no step"));
}

TEST_F(StepsPictureTest, OnlyWhatTheRunTellsIsDrawn) {
  const std::string plain = picture(step(0, "") + step(1, ""));
  EXPECT_TRUE(has(plain, "time of a step, ms"));
  EXPECT_EQ(count(plain, "<polyline"), 1u);
  for (const char* title : {"loss, nats", "right targets", "sync mode"}) {
    EXPECT_FALSE(has(plain, title)) << title;
  }
  const std::string losses = picture(step(0, ",\"loss\":2.5") + step(1, ",\"loss\":null"));
  EXPECT_TRUE(has(losses, "loss, nats"));
  EXPECT_EQ(count(losses, "<polyline"), 2u);
}

TEST_F(StepsPictureTest, ValidationsAreDots) {
  const std::string drawn =
      picture(step(0, ",\"loss\":2,\"validation_loss\":3,\"validation_accuracy\":0.25") +
              step(1, ",\"loss\":1,\"validation_loss\":2,\"validation_accuracy\":0.5"));
  EXPECT_TRUE(has(drawn, "right targets of the held-out data, %"));
  EXPECT_EQ(count(drawn, "<circle"), 4u);
  EXPECT_EQ(count(drawn, "<polyline"), 4u);
}

// A mode is one rectangle as long as it lasts; its color is the same when it comes again.
TEST_F(StepsPictureTest, ModesAreABand) {
  std::string metrics;
  for (int64_t i = 0; i < 30; ++i) {
    const bool middle = i >= 10 && i < 20;
    metrics += step(i, cat(",\"mode\":\"", middle ? "grace:2" : "synchronous", "\""));
  }
  const std::string drawn = picture(metrics);
  EXPECT_EQ(count(drawn, "<title>synchronous, from step "), 2u);
  EXPECT_EQ(count(drawn, "<title>grace:2, from step 10<"), 1u);
  EXPECT_EQ(count(drawn, "fill=\"#cde\"><title>synchronous"), 2u);
  EXPECT_EQ(count(drawn, ">grace:2</text>"), 1u);
}

TEST_F(StepsPictureTest, EventsAreNumberedSentences) {
  const std::string events =
      "{\"step\":1,\"event\":\"straggler\",\"reason\":\"replica 1 is late\"}\n"
      "{\"step\":1,\"event\":\"checkpoint\",\"reason\":\"saved\"}\n"
      "{\"step\":2,\"event\":\"learning-rate\",\"reason\":\"the loss has risen to <9>\"}\n";
  const std::string drawn = picture(step(0, "") + step(3, ""), events);
  EXPECT_TRUE(has(drawn, ">1  step 1: replica 1 is late<"));
  EXPECT_TRUE(has(drawn, ">2  step 2: the loss has risen to &lt;9><"));
  EXPECT_FALSE(has(drawn, "saved"));
}

// Many events: the first ones have their sentences, all have their lines, up to a limit.
TEST_F(StepsPictureTest, SentencesHaveALimit) {
  std::string events;
  for (int i = 0; i < 1100; ++i) {
    events += "{\"step\":1,\"event\":\"fault\",\"reason\":\"one more\"}\n";
  }
  const std::string drawn = picture(step(0, "") + step(3, ""), events);
  EXPECT_EQ(count(drawn, "one more"), 40u);
  EXPECT_EQ(count(drawn, "stroke-dasharray"), 1000u);
  EXPECT_TRUE(has(drawn, "and 960 more, in events.jsonl"));
}

// More steps than columns: a column has the median and the range of its steps.
TEST_F(StepsPictureTest, ManyStepsShareColumns) {
  std::string metrics;
  for (int64_t i = 0; i < 3000; ++i) metrics += step(i, ",\"loss\":1");
  const std::string drawn = picture(metrics);
  EXPECT_EQ(count(drawn, "<path"), 2u);
  EXPECT_LT(drawn.size(), 200'000u);
}

}  // namespace
}  // namespace tenuto
