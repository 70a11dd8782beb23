// What workers report of a step, as text and back; what a run writes of it.
#include "run/record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "protocol/event_text.h"

namespace tenuto {
namespace {

std::vector<Event> two_events() {
  Event forward{
      .worker = {1}, .step = 3, .op = {.kind = OpKind::Forward, .stage = {1}, .micro = {0}}};
  forward.start = Duration(5000);
  forward.finish = Duration(9000);
  Event receive{.worker = {1}, .step = 3};
  receive.op = {OpKind::Recv, ValueKind::Activation, -1, {0}, {0}, {0}, {}};
  receive.start = Duration(1000);
  receive.finish = Duration(4000);
  receive.moved = {4096};
  receive.sent = Duration(900);
  return {receive, forward};
}

TEST(Events, AsTextAndBack) {
  const std::vector<Event> events = two_events();
  const Result<std::vector<Event>> back = events_from_text(to_text(events));
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_EQ(back.value().size(), events.size());
  EXPECT_EQ(to_text(back.value()), to_text(events));
  EXPECT_EQ(back.value()[0].op, events[0].op);
  EXPECT_EQ(back.value()[0].sent, events[0].sent);
}

// The events of a report have a limited size; whole lines at the end are left out.
TEST(Events, EventsBeyondTheLimitAreLeftOut) {
  const std::vector<Event> events = two_events();
  const std::string all = to_text(events);
  const std::string first = all.substr(0, all.find('\n') + 1);
  EXPECT_EQ(to_text(events, all.size()), all);
  EXPECT_EQ(to_text(events, all.size() - 1), first);
  EXPECT_EQ(to_text(events, first.size()), first);
  EXPECT_EQ(to_text(events, first.size() - 1), "");
}

TEST(Events, NonsenseIsRefusedWithItsLine) {
  const std::string text = to_text(two_events());
  for (const std::string& nonsense : {std::string("nonsense"), std::string("{\"worker\":1}"),
                                      std::string("{\"worker\":\"one\"}")}) {
    const Result<std::vector<Event>> read = events_from_text(text + nonsense + "\n");
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.error().message.find("line 3"), std::string::npos) << read.error().message;
  }
}

TEST(Record, AStepIsOneLineAndATracedOneIsAPicture) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  Job job;
  Plan plan;
  plan.order = "1f1b";
  plan.schedule.lists.resize(2);
  Result<Record> record = Record::open(folder, job);
  ASSERT_TRUE(record.ok());
  StepRecord step{.step = 3, .epoch = 2, .complete = true, .loss = 2.5, .gradient_norm = 0.125};
  step.plan = std::make_shared<const Plan>(plan);
  step.duration = std::chrono::milliseconds(250);
  step.validation_loss = 2.25;
  step.validation_accuracy = 0.75;
  step.events = {"", to_text(two_events())};
  ASSERT_TRUE(record.value().step(step).ok());
  const StepPromise none = [](const StepRecord&) { return std::vector<Span>{}; };
  ASSERT_TRUE(record.value().write_traces(none).ok());
  step.step = 4;
  step.complete = false;
  step.events = {"", ""};
  ASSERT_TRUE(record.value().step(step).ok());
  ASSERT_TRUE(record.value().write_traces(none).ok());
  const std::string text = read_file(folder + "/metrics.jsonl").value();
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["loss"], 2.5);
  EXPECT_EQ(first["validation_loss"], 2.25);
  EXPECT_EQ(first["validation_accuracy"], 0.75);
  EXPECT_EQ(first["step_ms"], 250);
  EXPECT_EQ(first["tokens"], 4 * 4 * 128);
  EXPECT_EQ(first["tokens_per_second"], 4 * 4 * 128 * 4);
  const auto second = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_TRUE(second["loss"].is_null());
  const std::string trace = read_file(folder + "/trace-3.json").value();
  EXPECT_FALSE(nlohmann::json::parse(trace, nullptr, false).is_discarded());
  EXPECT_NE(trace.find("PP:1F0"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder + "/trace-4.json"));
  std::filesystem::remove_all(folder);
}

StepRecord traced_step(int64_t step) {
  StepRecord record{.step = step, .complete = true, .loss = 2.5};
  Plan plan;
  plan.schedule.lists.resize(2);
  record.plan = std::make_shared<const Plan>(plan);
  record.events = {"", to_text(two_events())};
  return record;
}

// Events since the trace before are instants, and promised ops are beside those that happened.
TEST(Record, ATraceShowsPromisesAndEvents) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  const Job job;
  Result<Record> record = Record::open(folder, job);
  ASSERT_TRUE(record.ok());
  const StepPromise promise = [](const StepRecord& step) {
    EXPECT_EQ(step.step, 7);
    Span span;
    span.worker = {1};
    span.op = two_events()[1].op;
    span.finish = Duration(3000);
    return std::vector<Span>{span};
  };
  ASSERT_TRUE(record.value().event("detection", 1, 6, "a \"link\" is slow").ok());
  ASSERT_TRUE(record.value().step(traced_step(7)).ok());
  ASSERT_TRUE(record.value().event("decision", 1, 8, "plan 2 is proposed").ok());
  ASSERT_TRUE(record.value().write_traces(promise).ok());
  ASSERT_TRUE(record.value().write_traces(promise).ok()) << "nothing is left to write";
  std::vector<std::string> marks, promised;
  double loss = 0;
  const auto trace = nlohmann::json::parse(read_file(folder + "/trace-7.json").value());
  for (const auto& row : trace["traceEvents"]) {
    if (row["ph"] == "i") {
      marks.push_back(row["name"].get<std::string>() + ": " +
                      row["args"]["reason"].get<std::string>());
      EXPECT_GE(row["ts"].get<double>(), 0);
    }
    if (row.value("cat", "") == "promised") promised.push_back(row["name"].get<std::string>());
    if (row["ph"] == "C" && row["name"] == "loss") loss = row["args"]["value"].get<double>();
  }
  EXPECT_EQ(marks, (std::vector<std::string>{"detection: a \"link\" is slow",
                                             "decision: plan 2 is proposed"}));
  EXPECT_EQ(promised, std::vector<std::string>{"1F0"});
  EXPECT_EQ(loss, 2.5);
  std::filesystem::remove_all(folder);
}

// Also those of an earlier coordinator count; the newest one stays however large it is.
TEST(Record, TheOldestTracesGoWhenAllAreTooLarge) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  Job job;
  job.trace_megabytes = 1;
  ASSERT_TRUE(write_file(folder + "/trace-2.json", std::string(600'000, ' ')).ok());
  ASSERT_TRUE(write_file(folder + "/trace-3.json", std::string(399'000, ' ')).ok());
  Result<Record> record = Record::open(folder, job);
  ASSERT_TRUE(record.ok());
  const StepPromise none = [](const StepRecord&) { return std::vector<Span>{}; };
  ASSERT_TRUE(record.value().step(traced_step(4)).ok());
  ASSERT_TRUE(record.value().write_traces(none).ok());
  EXPECT_FALSE(std::filesystem::exists(folder + "/trace-2.json"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/trace-3.json"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/trace-4.json"));
  std::filesystem::remove_all(folder);
}

TEST(Record, AStepOfARunWithServerShards) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  const Job job;
  Result<Record> record = Record::open(folder, job);
  ASSERT_TRUE(record.ok());
  ServedStep step{.step = 3, .epoch = 2, .duration = std::chrono::milliseconds(250)};
  step.mode = "x:2";
  step.validation_loss = 2.25;
  step.validation_accuracy = 0.75;
  step.age = 1.5;
  step.applied = {20};
  step.dropped = {4};
  ASSERT_TRUE(record.value().step(step).ok());
  const auto line = nlohmann::json::parse(read_file(folder + "/metrics.jsonl").value());
  EXPECT_EQ(line["step"], 3);
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_EQ(line["validation_loss"], 2.25);
  EXPECT_EQ(line["validation_accuracy"], 0.75);
  EXPECT_EQ(line["tokens"], 4 * 4 * 128);
  EXPECT_EQ(line["tokens_per_second"], 4 * 4 * 128 * 4);
  EXPECT_EQ(line["step_ms"], 250);
  EXPECT_EQ(line["mode"], "x:2");
  EXPECT_EQ(line["age"], 1.5);
  EXPECT_EQ(line["mass"], 20);
  EXPECT_EQ(line["dropped"], 4);
  EXPECT_EQ(line["epoch"], 2);
  std::filesystem::remove_all(folder);
}

TEST(Record, AnEventMayHaveDetails) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  const Job job;
  Result<Record> record = Record::open(folder, job);
  ASSERT_TRUE(record.ok());
  servers::ModeAlternative best{{}, 20.5, 1.5, 18.25}, other = best;
  other.mode.kind = SyncKind::Asynchronous;
  other.progress = 17;
  ASSERT_TRUE(record.value().event("mode", 2, 7, "because", {{best, other}, "", ""}).ok());
  ASSERT_TRUE(record.value().event("straggler", 2, 8, "it is late", {{}, "cpu", "first"}).ok());
  ASSERT_TRUE(record.value().event("end", 2, 8, "all is done").ok());
  EventDetails of_plan;
  of_plan.plan = 3;
  ASSERT_TRUE(record.value().event("decision", 2, 8, "plan 3 is proposed", of_plan).ok());
  std::istringstream lines(read_file(folder + "/events.jsonl").value());
  std::string text;
  ASSERT_TRUE(std::getline(lines, text));
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["event"], "mode");
  EXPECT_EQ(line["reason"], "because");
  ASSERT_EQ(line["alternatives"].size(), 2u);
  EXPECT_EQ(line["alternatives"][0]["mode"], "synchronous");
  EXPECT_EQ(line["alternatives"][0]["gradients_per_second"], 20.5);
  EXPECT_EQ(line["alternatives"][0]["age"], 1.5);
  EXPECT_EQ(line["alternatives"][0]["progress"], 18.25);
  EXPECT_EQ(line["alternatives"][1]["mode"], "asynchronous");
  EXPECT_EQ(line["alternatives"][1]["progress"], 17);
  EXPECT_FALSE(line.contains("cause"));
  ASSERT_TRUE(std::getline(lines, text));
  const auto straggler = nlohmann::json::parse(text);
  EXPECT_FALSE(straggler.contains("alternatives"));
  EXPECT_EQ(straggler["cause"], "cpu");
  EXPECT_EQ(straggler["host"], "first");
  ASSERT_TRUE(std::getline(lines, text));
  EXPECT_EQ(nlohmann::json::parse(text).size(), 5u) << "no details";
  ASSERT_TRUE(std::getline(lines, text));
  EXPECT_EQ(nlohmann::json::parse(text)["plan"], 3);
  std::filesystem::remove_all(folder);
}

TEST(Record, FiguresContinueFromTheMetrics) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  EXPECT_FALSE(read_figures(folder, 0).ok());
  ASSERT_TRUE(write_file(folder + "/metrics.jsonl",
                         "{\"step\":1,\"loss\":9.0,\"tokens\":5,\"step_ms\":100}\n"
                         "{\"step\":2,\"loss\":null,\"tokens\":5,\"step_ms\":20.5}\n"
                         "{\"step\":3,\"loss\":3.5,\"validation_loss\":4.5,\"tokens\":5}\n"
                         "{\"step\":4,\"loss\":2.5,\"tokens\":5,\"step_ms\":10,"
                         "\"lag_valid\":false}\n")
                  .ok());
  std::vector<MetricsLine> told;
  const Result<Figures> figures =
      read_figures(folder, 2, [&told](const MetricsLine& line) { told.push_back(line); });
  ASSERT_TRUE(figures.ok());
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].step, 2);
  EXPECT_FALSE(told[0].loss.has_value());
  EXPECT_EQ(told[0].step_ms, 20.5);
  EXPECT_EQ(told[1].validation_loss, 4.5);
  EXPECT_FALSE(told[1].validation_accuracy.has_value());
  EXPECT_FALSE(told[2].lag_valid);
  EXPECT_EQ(figures.value().steps_done, 3);
  EXPECT_EQ(figures.value().first_loss, 3.5);
  EXPECT_EQ(figures.value().last_loss, 2.5);
  EXPECT_EQ(figures.value().validation_loss, 4.5);
  EXPECT_EQ(figures.value().tokens, 10);
  EXPECT_EQ(figures.value().duration, from_milliseconds(30.5));
  EXPECT_FALSE(figures.value().lag_valid);
  std::filesystem::remove_all(folder);
}

// A writer was killed in the middle of a line, which may be the first one.
TEST(LineFile, AHalfWrittenLineIsRemoved) {
  char name[] = "/tmp/tenuto-record-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string path = folder + "/lines";
  for (const auto& [before, whole] : {std::pair("one\ntw", "one\n"), std::pair("on", ""),
                                      std::pair("one\ntwo\n", "one\ntwo\n")}) {
    ASSERT_TRUE(write_file(path, before).ok());
    Result<LineFile> file = LineFile::open(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().write("last").ok());
    EXPECT_EQ(read_file(path).value(), std::string(whole) + "last\n");
  }
  std::filesystem::remove_all(folder);
}

TEST(LineFile, AFullDiskLeavesWholeLines) {
  const Result<LineFile> full = LineFile::open("/dev/full");
  ASSERT_TRUE(full.ok());
  Result<LineFile> file = LineFile::open("/dev/full");
  const Status written = file.value().write("a line");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::Exhausted);
  EXPECT_EQ(written.error().message,
            "cannot write /dev/full: No space left on device; free some space there and run the "
            "command again");
}

// Each validation is printed once, with its step; later lines do not repeat it.
TEST(Progress, AValidationIsReportedOnceWithItsStep) {
  Job job;
  job.steps = 40;
  std::FILE* stream = std::tmpfile();
  ASSERT_NE(stream, nullptr);
  Progress progress(stream, job);
  for (int64_t step = 0; step < job.steps; ++step) {
    StepRecord record{.step = step, .complete = true, .loss = 2};
    record.plan = std::make_shared<const Plan>();
    if ((step + 1) % 10 == 0) record.validation_loss = 1 + static_cast<double>(step);
    progress.step(record, std::chrono::milliseconds(step));
  }
  std::rewind(stream);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream));
  std::fclose(stream);
  std::istringstream lines(text);
  std::vector<std::string> told;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("validation ");
    if (at == std::string::npos) continue;
    told.push_back(line.substr(0, line.find(' ', 5)) + ": " +
                   line.substr(at, line.find(')', at) + 1 - at));
  }
  EXPECT_EQ(told, (std::vector<std::string>{
                      "step 10/40: validation 10.0000 (step 10)",
                      "step 20/40: validation 20.0000 (step 20)",
                      "step 30/40: validation 30.0000 (step 30)",
                      "step 40/40: validation 40.0000 (step 40)",
                  }));
  EXPECT_EQ(progress.figures().validation_step, 40);
}

}  // namespace
}  // namespace tenuto
