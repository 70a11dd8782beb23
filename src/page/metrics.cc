#include "page/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto::page {
namespace {

struct Metric {
  const char* name;
  const char* type;  // gauge | counter
  const char* help;
};

constexpr std::array<Metric, 22> kMetrics = {{
    {"tenuto_run_info", "gauge", "Always 1; its labels say what the run is doing."},
    {"tenuto_step", "gauge", "Steps that are committed."},
    {"tenuto_steps", "gauge", "Steps that the job is to do."},
    {"tenuto_epoch", "gauge", "Epoch of the members: higher after each loss of a worker."},
    {"tenuto_checkpoint_step", "gauge", "Step of the newest checkpoint."},
    {"tenuto_loss", "gauge", "Loss of the newest step whose loss is known."},
    {"tenuto_validation_loss", "gauge", "Loss of the newest held-out pass."},
    {"tenuto_validation_accuracy", "gauge", "Share of targets that this pass has predicted."},
    {"tenuto_step_seconds", "gauge", "Time of the newest step."},
    {"tenuto_training_seconds_total", "counter", "Time of all steps."},
    {"tenuto_promised_step_seconds", "gauge", "Time of a step as the plan in force is priced."},
    {"tenuto_workers", "gauge", "Workers by state."},
    {"tenuto_worker_step_seconds", "gauge", "Time of a worker's newest step."},
    {"tenuto_worker_busy_seconds", "gauge", "Time of that step in which the worker computed."},
    {"tenuto_link_round_trip_seconds", "gauge",
     "A message there and one back between two workers, without computing."},
    {"tenuto_link_bytes_per_second", "gauge", "Rate between two workers, as their kernels say."},
    {"tenuto_link_slow", "gauge", "1 = the link is slow by the verdict of the detection."},
    {"tenuto_plan_changes_total", "counter", "Changes of the plan or of the sync mode."},
    {"tenuto_faults_total", "counter", "Faults that were injected, and deaths of workers."},
    {"tenuto_mass_micro_batches", "gauge", "Micro-batches in committed updates, with a sync mode."},
    {"tenuto_gradient_age", "gauge", "Age of the newest works in gradients, with a sync mode."},
    {"tenuto_coordinator_cpu_seconds_total", "counter", "Processor time of the coordinator."},
}};

// A label's value: backslash, quotation mark and end of line are escaped.
std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char letter : value) {
    if (letter == '\n') {
      text += "\\n";
    } else {
      if (letter == '\\' || letter == '"') text += '\\';
      text += letter;
    }
  }
  return text + "\"";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return cat(value);
}

// Writes metrics, each with its two comment lines before its first value.
class Writer {
 public:
  void add(std::string_view name, double number, const std::string& labels = {}) {
    if (name != last_) begin(name);
    text_ += cat(name, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}", " ",
                 number_text(number), "\n");
  }
  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name) {
    const auto* const found =
        std::find_if(kMetrics.begin(), kMetrics.end(),
                     [name](const Metric& metric) { return metric.name == name; });
    CHECK(found != kMetrics.end(), "a metric of the table");
    text_ += cat("# HELP ", name, " ", found->help, "\n# TYPE ", name, " ", found->type, "\n");
    last_ = name;
  }

  std::string text_, last_;
};

std::string worker_labels(const ShownWorker& worker) {
  std::string stages;
  for (const int32_t stage : worker.stages) stages += cat(stages.empty() ? "" : ",", stage);
  return cat("worker=\"", worker.worker, "\",stage=", quoted(stages), ",pipeline=\"",
             worker.pipeline < 0 ? std::string() : cat(worker.pipeline), "\"");
}

std::string link_labels(const ShownLink& link) {
  return cat("first=\"", link.first, "\",second=\"", link.second, "\"");
}

std::optional<double> newest_loss(const History& history) {
  const std::vector<ShownStep> steps = history.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->loss) return step->loss;
  }
  return std::nullopt;
}

void write_run(Writer& out, const Snapshot& now, const std::vector<Promise>& promises) {
  out.add("tenuto_run_info", 1,
          cat("job=", quoted(now.job), ",situation=", quoted(now.situation),
              ",mode=", quoted(now.mode), ",plan=", quoted(now.plan)));
  out.add("tenuto_step", static_cast<double>(now.step));
  out.add("tenuto_steps", static_cast<double>(now.steps));
  out.add("tenuto_epoch", static_cast<double>(now.epoch));
  if (now.saved >= 0) out.add("tenuto_checkpoint_step", static_cast<double>(now.saved));
  if (const auto loss = newest_loss(now.history)) out.add("tenuto_loss", *loss);
  const std::vector<ShownValidation> validations = now.history.validations();
  if (!validations.empty()) {
    out.add("tenuto_validation_loss", validations.back().loss);
    const std::optional<double>& accuracy = validations.back().accuracy;
    if (accuracy) out.add("tenuto_validation_accuracy", *accuracy);
  }
  const std::optional<ShownStep>& newest = now.history.newest();
  if (newest && newest->seconds > 0) out.add("tenuto_step_seconds", newest->seconds);
  out.add("tenuto_training_seconds_total", now.history.seconds());
  if (!promises.empty()) out.add("tenuto_promised_step_seconds", promises.back().seconds);
}

void write_workers(Writer& out, const Snapshot& now) {
  for (const char* state : kWorkerStates) {
    const auto count = std::count_if(now.workers.begin(), now.workers.end(),
                                     [&](const ShownWorker& of) { return of.state == state; });
    out.add("tenuto_workers", static_cast<double>(count), cat("state=\"", state, "\""));
  }
  for (const ShownWorker& worker : now.workers) {
    if (!worker.times) continue;
    out.add("tenuto_worker_step_seconds", worker.times->whole, worker_labels(worker));
  }
  for (const ShownWorker& worker : now.workers) {
    if (!worker.times) continue;
    const WorkerTimes& times = *worker.times;
    out.add("tenuto_worker_busy_seconds", times.forward + times.backward + times.weight,
            worker_labels(worker));
  }
}

void write_links(Writer& out, const Snapshot& now) {
  for (const ShownLink& link : now.links) {
    if (link.round_trip <= 0) continue;
    out.add("tenuto_link_round_trip_seconds", link.round_trip, link_labels(link));
  }
  for (const ShownLink& link : now.links) {
    for (size_t way = 0; way < link.rate.size(); ++way) {
      if (link.rate[way] <= 0) continue;
      out.add("tenuto_link_bytes_per_second", link.rate[way],
              cat(link_labels(link), ",to=\"", way == 0 ? link.second : link.first, "\""));
    }
  }
  for (const ShownLink& link : now.links) {
    out.add("tenuto_link_slow", link.slow ? 1 : 0, link_labels(link));
  }
}

}  // namespace

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& metric : kMetrics) names.emplace_back(metric.name);
  return names;
}

std::string metrics_text(const Snapshot& snapshot, const std::vector<Promise>& promises) {
  Writer out;
  write_run(out, snapshot, promises);
  write_workers(out, snapshot);
  write_links(out, snapshot);
  out.add("tenuto_plan_changes_total", static_cast<double>(snapshot.history.changes()));
  out.add("tenuto_faults_total", static_cast<double>(snapshot.history.faults()));
  if (snapshot.mass) {
    out.add("tenuto_mass_micro_batches", static_cast<double>(*snapshot.mass));
  }
  if (snapshot.age) out.add("tenuto_gradient_age", *snapshot.age);
  out.add("tenuto_coordinator_cpu_seconds_total", snapshot.cpu_seconds);
  return out.take();
}

}  // namespace tenuto::page
