#include "run/record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "base/clock.h"
#include "base/text.h"
#include "ir/sync_mode.h"
#include "protocol/event_text.h"
#include "sim/timeline.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostMarks = 1000;  // events that are kept for the next trace

// Seconds since 1970, to the millisecond: for people who compare runs.
double wall_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) /
         1000;
}

// A line of metrics; none: it is no object, or has no step.
std::optional<MetricsLine> metrics_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
  };
  if (!json.is_object()) return std::nullopt;
  const std::optional<double> step = number("step");
  if (!step) return std::nullopt;
  MetricsLine metrics;
  metrics.step = static_cast<int64_t>(*step);
  metrics.loss = number("loss");
  metrics.validation_loss = number("validation_loss");
  metrics.validation_accuracy = number("validation_accuracy");
  metrics.step_ms = number("step_ms");
  metrics.iteration_ms = number("iteration_ms");
  metrics.period_ms = number("period_ms");
  metrics.tokens = static_cast<int64_t>(number("tokens").value_or(0));
  metrics.lag_valid = json.value("lag_valid", true);
  return metrics;
}

void add_to(Figures& figures, const MetricsLine& line) {
  figures.steps_done += 1;
  if (line.loss) {
    if (!figures.first_loss) figures.first_loss = line.loss;
    figures.last_loss = line.loss;
  }
  if (line.validation_loss) {
    figures.validation_loss = line.validation_loss;
    figures.validation_accuracy = line.validation_accuracy;
    figures.validation_step = line.step + 1;
  }
  if (line.step_ms) {
    figures.tokens += line.tokens;
    figures.duration += from_milliseconds(*line.step_ms);
  }
  figures.lag_valid = figures.lag_valid && line.lag_valid;
}

}  // namespace

int64_t tokens_of_step(const Job& job) {
  const int64_t rows = int64_t{job.micro_count()} * job.parallel.micro_rows;
  return job.model.kind == "gpt" ? rows * job.model.sequence : rows;
}

Result<Figures> read_figures(const std::string& directory, int64_t first_step,
                             const MetricsReader& reader) {
  const Result<std::string> text = read_file(directory + "/metrics.jsonl");
  if (!text.ok()) return text.error();
  Figures figures;
  std::istringstream lines(text.value());
  for (std::string line; std::getline(lines, line);) {
    const std::optional<MetricsLine> metrics = metrics_of(line);
    if (!metrics || metrics->step < first_step) continue;
    add_to(figures, *metrics);
    if (reader) reader(*metrics);
  }
  return figures;
}

std::string event_line(const std::string& kind, int64_t epoch, int64_t step,
                       const std::string& sentence, const EventDetails& details) {
  Json line = {{"time", wall_seconds()},
               {"event", kind},
               {"epoch", epoch},
               {"step", step},
               {"reason", sentence}};
  if (!details.cause.empty()) line["cause"] = details.cause;
  if (!details.host.empty()) line["host"] = details.host;
  if (details.plan != 0) line["plan"] = details.plan;
  for (const servers::ModeAlternative& one : details.alternatives) {
    line["alternatives"].push_back({{"mode", to_text(one.mode)},
                                    {"gradients_per_second", one.gradients_per_second},
                                    {"age", one.age},
                                    {"progress", one.progress}});
  }
  for (const Alternative& one : details.remedies) {
    line["expected_steps"] = details.expected_steps;
    line["alternatives"].push_back({{"name", one.name},
                                    {"step_ms", to_milliseconds(one.step)},
                                    {"change_ms", to_milliseconds(one.change)},
                                    {"total_ms", one.total_ms},
                                    {"chosen", one.chosen}});
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Record> Record::open(const std::string& directory, const Job& job) {
  Record record;
  record.directory_ = directory;
  record.job_ = &job;
  Result<LineFile> metrics = LineFile::open(directory + "/metrics.jsonl");
  if (!metrics.ok()) return metrics.error();
  Result<LineFile> events = LineFile::open(directory + "/events.jsonl");
  if (!events.ok()) return events.error();
  record.metrics_ = std::move(metrics).value();
  record.events_ = std::move(events).value();
  record.traced_at_ = monotonic_clock().now();
  std::error_code error;  // without a list of old traces, only the new ones are counted
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const int64_t step = step_of_trace(entry.path().filename().string());
    if (step < 0) continue;
    std::error_code gone;
    const auto bytes = entry.file_size(gone);
    if (!gone) record.sizes_[step] = static_cast<int64_t>(bytes);
  }
  return record;
}

Status Record::step(const StepRecord& step) {
  const double milliseconds = to_milliseconds(step.duration);
  const int64_t tokens = step.only_evaluated ? 0 : tokens_of_step(*job_);
  Json line = {{"step", step.step}};
  line["loss"] = step.has_loss() ? Json(step.loss) : Json(nullptr);
  if (step.validation_loss) line["validation_loss"] = *step.validation_loss;
  if (step.validation_accuracy) line["validation_accuracy"] = *step.validation_accuracy;
  line["tokens"] = tokens;
  if (milliseconds > 0) {
    line["tokens_per_second"] = static_cast<double>(tokens) / (milliseconds / 1000);
    line["step_ms"] = milliseconds;
  }
  if (step.iteration) line["iteration_ms"] = to_milliseconds(*step.iteration);
  if (step.iteration_end.count() > 0) {
    if (before_ && before_->first + 1 == step.step) {
      line["period_ms"] = to_milliseconds(step.iteration_end - before_->second);
    }
    before_ = {step.step, step.iteration_end};
  }
  line["gradient_norm"] = step.gradient_norm;
  line["learning_rate"] = step.learning_rate;
  if (job_->device.kind == "paced") {
    line["lag_p99_ms"] = to_milliseconds(step.lag);
    line["lag_valid"] = step.lag_valid;
  }
  if (job_->device.kind == "cuda") {
    line["to_host_ms"] = to_milliseconds(step.to_host);
    line["to_device_ms"] = to_milliseconds(step.to_device);
    line["staged_messages"] = step.staged_messages;
    line["direct_messages"] = step.direct_messages;
  }
  line["plan"] = step.plan->order;
  line["epoch"] = step.epoch;
  const Status written = metrics_.write(line.dump());
  if (!written.ok()) return written;
  const Duration now = monotonic_clock().now();
  const auto tells = [](const std::string& events) { return !events.empty(); };
  if (std::any_of(step.events.begin(), step.events.end(), tells)) {
    traced_.push_back({step, traced_at_, now});
    traced_at_ = now;
  }
  return ok();
}

Status Record::step(const ServedStep& step) {
  const double milliseconds = to_milliseconds(step.duration);
  const int64_t tokens = tokens_of_step(*job_);
  Json line = {{"step", step.step}};
  line["loss"] = step.loss ? Json(*step.loss) : Json(nullptr);
  if (step.validation_loss) line["validation_loss"] = *step.validation_loss;
  if (step.validation_accuracy) line["validation_accuracy"] = *step.validation_accuracy;
  line["tokens"] = tokens;
  if (milliseconds > 0) {
    line["tokens_per_second"] = static_cast<double>(tokens) / (milliseconds / 1000);
  }
  line["step_ms"] = milliseconds;
  line["mode"] = step.mode;
  line["age"] = step.age;
  line["mass"] = step.applied.micros;
  line["dropped"] = step.dropped.micros;
  line["epoch"] = step.epoch;
  return metrics_.write(line.dump());
}

Status Record::event(const std::string& kind, int64_t epoch, int64_t step,
                     const std::string& sentence, const EventDetails& details) {
  marks_.push_back({monotonic_clock().now(), kind, sentence, epoch, step});
  if (marks_.size() > kMostMarks) marks_.pop_front();
  return events_.write(event_line(kind, epoch, step, sentence, details));
}

Status Record::write_traces(const StepPromise& promise) {
  for (const Traced& traced : std::exchange(traced_, {})) {
    const Status written = write_trace_of(traced, promise);
    if (!written.ok()) return written;
  }
  return ok();
}

Status Record::write_trace_of(const Traced& traced, const StepPromise& promise) {
  std::vector<Event> events;
  for (const std::string& lines : traced.step.events) {
    const Result<std::vector<Event>> of = events_from_text(lines);
    if (!of.ok()) return of.error();
    events.insert(events.end(), of.value().begin(), of.value().end());
  }
  const std::vector<Span> spans = spans_of(events);
  Duration end{};
  for (const Span& span : spans) end = std::max(end, span.finish);
  TraceDetails details;
  details.promised = promise(traced.step);
  details.loss = traced.step.loss;
  details.has_loss = traced.step.has_loss();
  // The clocks of this host and of the workers are compared at one moment: the end of the step,
  // which is committed a report later. What happened before the step is shown at its begin.
  for (const TraceMark& mark : marks_) {
    if (mark.at < traced.since) continue;
    details.marks.push_back(mark);
    details.marks.back().at = std::max(end + (mark.at - traced.committed), Duration{});
  }
  std::ostringstream trace;
  write_trace(trace, spans, *traced.step.plan, details);
  const std::string text = trace.str();
  const Status written = write_file(cat(directory_, "/", trace_file_name(traced.step.step)), text);
  if (!written.ok()) return written;
  sizes_[traced.step.step] = static_cast<int64_t>(text.size());
  remove_old_traces();
  return ok();
}

void Record::remove_old_traces() {
  constexpr int64_t kMegabyte = 1'000'000;
  int64_t all = 0;
  for (const auto& of : sizes_) all += of.second;
  while (sizes_.size() > 1 && all > job_->trace_megabytes * kMegabyte) {
    const auto oldest = sizes_.begin();
    std::error_code error;
    std::filesystem::remove(cat(directory_, "/", trace_file_name(oldest->first)), error);
    all -= oldest->second;
    sizes_.erase(oldest);
  }
}

}  // namespace tenuto
