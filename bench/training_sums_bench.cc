// All-reduces of gradients while one worker is slow, in real runs: one process for each of several
// pipelines of one stage, with paced devices on the virtual clock. The worker is slow
// from the first step on. Each row is a size of gradients, each column an all-reduce. A figure is
// the mean time of a step over the run; the steps of each plan count with their median, because a
// busy machine makes single steps long. Late-one knows the slow worker from the start. Auto must
// find it first; its mean includes that time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/quantile.h"
#include "base/text.h"
#include "bench/program.h"
#include "bench/runs.h"
#include "sim/price.h"
#include "world/fault.h"
#include "world/job_model.h"
#include "world/load.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double kMostOver = 0.01;  // excess of auto over the best column
constexpr int32_t kMicros = 4;
constexpr double kOpMs = 5, kLatencyMs = 0.5, kMegabytesPerSecond = 2;
const std::vector<std::string> kWays = {"ring", "halving", "late-one", "auto"};

struct Asked {
  std::string tenuto;
  std::vector<int64_t> kibibytes = {8, 32, 64, 128, 256};
  int64_t steps = 200;
  int32_t pipelines = 8;
  double speed = 0.7;
  bool json = false;
};

// One run.
struct Cell {
  double mean_ms = 0;    // of a step
  double priced_ms = 0;  // of a step under the last plan
  int64_t plans = 0;     // plans that came into force
  int64_t from = 0;      // first step of the last plan
  std::string sums;      // the last plan's all-reduce
  bool lag_valid = true;
};

struct Row {
  int64_t kibibytes = 0;
  std::vector<Cell> cells;  // by way
  double best_ms() const {
    double best = cells.front().mean_ms;
    for (size_t i = 0; i + 1 < cells.size(); ++i) best = std::min(best, cells[i].mean_ms);
    return best;
  }
  double over() const { return cells.back().mean_ms / best_ms() - 1; }
};

std::string job_text(const Asked& asked, int64_t kibibytes, const std::string& way) {
  std::string times;
  for (const char* op : {"forward", "backward_input", "backward_weight"}) {
    times += cat(op, "_ms = ", kOpMs, "\n");
  }
  return cat("[optimizer]\nkind = \"sgd\"\n[parallel]\nstages = 1\npipelines = ", asked.pipelines,
             "\nmicros = ", kMicros, "\nall_reduce = \"", way, "\"\n[device]\nkind = \"paced\"\n",
             times, "parameter_bytes = ", 1024 * kibibytes,
             "\n[network]\nlatency_ms = ", kLatencyMs,
             "\nmegabytes_per_second = ", kMegabytesPerSecond, "\nconnect_seconds = 120\n",
             "[[fault]]\nkind = \"slow-worker\"\nworker = \"", asked.pipelines - 1,
             ".0\"\nspeed = ", asked.speed, "\n");
}

double price_ms(const Job& job, const Plan& plan) {
  PriceOptions period;
  period.in_turn = true;
  period.lower_bound = false;
  const Cluster now = with_faults(cluster_of(job), job.faults, 0, job.parallel.stages);
  const auto priced = price(plan, job_model(job, plan), now, period);
  if (!priced.ok()) give_up(priced.error().message);
  return to_milliseconds(priced.value().period);
}

// The mean period of all steps but the first, which has none.
double mean_of(const std::vector<StepFigures>& figures, const std::vector<PlanChange>& changes) {
  double all = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    const int64_t first = std::max<int64_t>(1, changes[i].from);
    const int64_t end =
        i + 1 < changes.size() ? changes[i + 1].from : static_cast<int64_t>(figures.size());
    std::vector<Duration> periods;
    for (int64_t step = first; step < end; ++step) {
      periods.push_back(from_milliseconds(figures[static_cast<size_t>(step)].period_ms));
    }
    if (periods.empty()) continue;
    all += to_milliseconds(quantile(periods, 0.5)) * static_cast<double>(periods.size());
  }
  return all / static_cast<double>(figures.size() - 1);
}

Cell run_cell(const Asked& asked, int64_t kibibytes, const std::string& way) {
  const WorkFolder folder;
  const std::string text = job_text(asked, kibibytes, way);
  const auto job = job_from_toml(text, way);
  if (!job.ok()) give_up(job.error().message);
  const fs::path run = train(asked.tenuto, folder.path(), asked.steps, {}, text);
  const std::vector<StepFigures> figures = figures_of(run);
  const std::vector<PlanChange> changes = changes_of(run);
  const Plan plan = plan_of(run, changes.back().serial);
  Cell cell;
  cell.mean_ms = mean_of(figures, changes);
  cell.priced_ms = price_ms(job.value(), plan);
  cell.plans = static_cast<int64_t>(changes.size());
  cell.from = changes.back().from;
  const Summing& summing = plan.schedule.groups.front().summing;
  cell.sums =
      summing.chunks > 0 ? cat(summing.algorithm, ", k = ", summing.chunks) : summing.algorithm;
  cell.lag_valid = figures.back().lag_valid;
  return cell;
}

Json to_json(const Row& row) {
  Json json = {{"kibibytes", row.kibibytes}};
  for (size_t i = 0; i < kWays.size(); ++i) {
    const Cell& cell = row.cells[i];
    json[kWays[i]] = {{"mean_ms", cell.mean_ms}, {"priced_ms", cell.priced_ms},
                      {"plans", cell.plans},     {"from", cell.from},
                      {"sums", cell.sums},       {"lag_valid", cell.lag_valid}};
  }
  json["best_ms"] = row.best_ms();
  json["auto_over_best"] = row.over();
  return json;
}

void print_row(const Row& row) {
  const double ring = row.cells.front().mean_ms;
  std::printf("%6lld", static_cast<long long>(row.kibibytes));
  bool valid = true;
  for (const Cell& cell : row.cells) {
    std::printf("  %8.3f %5.3f %8.3f", cell.mean_ms, cell.mean_ms / ring, cell.priced_ms);
    valid = valid && cell.lag_valid;
  }
  const Cell& last = row.cells.back();
  std::printf("  %+6.2f %%  %s", 100 * row.over(), last.sums.c_str());
  if (last.plans > 1) std::printf(", from step %lld", static_cast<long long>(last.from));
  std::printf("%s%s\n", row.over() > kMostOver ? "  too slow" : "",
              valid ? "" : "  (lag: machine too busy)");
  std::fflush(stdout);
}

int run_table(const Asked& asked) {
  bool within = true;
  Json rows = Json::array();
  if (!asked.json) {
    std::printf(
        "%d workers, one at %.2f of its speed, %lld steps; ms a step, over the ring, priced\n",
        asked.pipelines, asked.speed, static_cast<long long>(asked.steps));
    std::printf("%6s", "KiB");
    for (const std::string& way : kWays) std::printf("  %8s %5s %8s", way.c_str(), "", "");
    std::printf("  %8s  %s\n", "over best", "auto sums by");
  }
  for (const int64_t kibibytes : asked.kibibytes) {
    Row row{kibibytes, {}};
    for (const std::string& way : kWays) row.cells.push_back(run_cell(asked, kibibytes, way));
    within = within && row.over() <= kMostOver;
    if (asked.json) {
      rows.push_back(to_json(row));
    } else {
      print_row(row);
    }
  }
  if (asked.json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  return within ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  CLI::App app{"Real processes that sum gradients while one of them is slow",
               "training_sums_bench"};
  tenuto::Asked asked;
  asked.tenuto = tenuto::tenuto_of_this_build();
  app.add_option("--kib", asked.kibibytes, "gradients of a worker, in KiB (8,32,64,128,256)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", asked.steps, "of each run (200)")->check(CLI::Range(12, 10000));
  app.add_option("--pipelines", asked.pipelines, "workers (8)")->check(CLI::Range(2, 64));
  app.add_option("--speed", asked.speed, "of the slow worker (0.7)")->check(CLI::Range(0.05, 1.0));
  app.add_option("--tenuto", asked.tenuto, "the program that trains");
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  return tenuto::run_table(asked);
}
