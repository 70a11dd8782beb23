// Dead workers, slow workers and slow links in real runs: one process per worker, with paced
// devices. Dead workers are dead from the start; the slow ones turn slow during the run, which must
// detect them and adapt. Each measured period is shown beside the simulator's price of the plan
// that was in force, the bound over all routings (without waiting for the norm), and the period
// before the run had adapted.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adapt/adapt.h"
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

constexpr int64_t kHealthy = 6;       // steps before workers and links turn slow
constexpr size_t kLeastMeasured = 5;  // steps under the last plan
constexpr double kMostOff = 0.02;     // allowed relative difference of a period from its price
constexpr double kLinkMs = 12;        // extra latency of a slow link, each way

struct Asked {
  std::string tenuto, only;
  std::vector<std::string> sizes;
  int64_t steps = 40;
  double op_ms = 5;
  bool json = false;
};

// The size of a run, and where each kind of trouble is.
struct Size {
  std::string name;
  int32_t pipelines = 0, stages = 0;
  std::string dead, dead_beside, dead_elsewhere;  // beside: in the same stage; empty = no such case
  std::string slow;
  int32_t from = 0, to = 0;  // the slow link joins these workers
};

std::vector<Size> sizes() {
  return {{"3x4", 3, 4, "0.1", "1.1", "1.2", "1.2", 8, 9},
          {"2x4", 2, 4, "0.1", "", "1.3", "1.2", 4, 5}};
}

// One kind of trouble as [[fault]] tables.
std::string dead(const std::string& worker) {
  return cat("[[fault]]\nkind = \"dead-worker\"\nworker = \"", worker, "\"\n");
}

std::string half_speed(const Size& size) {
  return cat("[[fault]]\nkind = \"slow-worker\"\nworker = \"", size.slow,
             "\"\nspeed = 0.5\nat_step = ", kHealthy, "\n");
}

std::string slow_link(const Size& size) {
  std::string text;
  for (const auto& [from, to] : {std::pair(size.from, size.to), std::pair(size.to, size.from)}) {
    text += cat("[[fault]]\nkind = \"slow-link\"\nfrom = ", from, "\nto = ", to,
                "\nlatency_ms = ", kLinkMs, "\nat_step = ", kHealthy, "\n");
  }
  return text;
}

struct Cell {
  std::string name, faults;
};

std::vector<Cell> cells_of(const Size& size) {
  const std::string one = dead(size.dead), slow = half_speed(size), link = slow_link(size);
  std::vector<Cell> cells = {{"none", ""}, {"dead", one}};
  if (!size.dead_beside.empty())
    cells.push_back({"dead+dead-beside", one + dead(size.dead_beside)});
  cells.push_back({"dead+dead", one + dead(size.dead_elsewhere)});
  cells.push_back({"slow", slow});
  cells.push_back({"link", link});
  cells.push_back({"dead+slow", one + slow});
  cells.push_back({"dead+link", one + link});
  cells.push_back({"slow+link", slow + link});
  cells.push_back({"dead+slow+link", one + slow + link});
  return cells;
}

std::string job_text(const Asked& asked, const Size& size, const Cell& cell) {
  std::string times;
  for (const char* op : {"forward", "backward_input", "backward_weight"}) {
    times += cat(op, "_ms = ", asked.op_ms, "\n");
  }
  return cat("[optimizer]\nkind = \"sgd\"\n[parallel]\npipelines = ", size.pipelines,
             "\nstages = ", size.stages, "\nmicros = 6\norder = \"auto\"\n",
             "[device]\nkind = \"paced\"\nmessage_bytes = 1024\n", times,
             "[network]\nlatency_ms = 0.5\nconnect_seconds = 120\n",
             "[resilience]\nslow_links = \"adapt\"\nslow_workers = \"adapt\"\n", cell.faults);
}

// A plan in force over some steps.
struct Stretch {
  size_t steps = 0;
  double measured_ms = 0, priced_ms = 0;
  double off() const { return measured_ms / priced_ms - 1; }
};

struct Row {
  std::string size, troubles;
  Stretch answered;                   // under the last plan
  std::optional<Stretch> unanswered;  // in trouble, under the first plan
  double bound_ms = 0;
  int64_t steps_to_answer = 0;  // from the first step in trouble to the first under the last plan
  bool lag_valid = true;

  bool as_priced() const {
    return std::abs(answered.off()) <= kMostOff &&
           (!unanswered || std::abs(unanswered->off()) <= kMostOff);
  }
};

// Prices plans for a run of the job.
class Pricing {
 public:
  explicit Pricing(const Job& job)
      : job_(job),
        cluster_(with_faults(cluster_of(job), job.faults, kHealthy, job.parallel.stages)) {
    period_.in_turn = true;
    period_.lower_bound = false;
    free_.price.staggered = true;
  }
  double price_ms(const Plan& plan) const {
    const auto priced = price(plan, job_model(job_, plan), cluster_, period_);
    if (!priced.ok()) give_up(priced.error().message);
    return to_milliseconds(priced.value().period);
  }
  // The bound over all routings if there is trouble; else the bound of the plan's own routing.
  double bound_ms(const Plan& plan) const {
    const auto adapted = adapt(plan, job_model(job_, plan), cluster_, free_);
    if (!adapted.ok()) give_up(adapted.error().message);
    return to_milliseconds(adapted.value().lower_bound);
  }

 private:
  const Job& job_;
  const Cluster cluster_;
  PriceOptions period_;
  AdaptOptions free_;
};

// The median period of steps [first, end), and the price of the plan that they ran under.
Stretch measure(const std::vector<StepFigures>& figures, int64_t first, int64_t end,
                double priced_ms) {
  std::vector<Duration> times;
  for (int64_t step = first; step < end; ++step) {
    times.push_back(from_milliseconds(figures[static_cast<size_t>(step)].period_ms));
  }
  const double median = to_milliseconds(quantile(times, 0.5));
  return {times.size(), median, priced_ms};
}

Row run_cell(const Asked& asked, const Size& size, const Cell& cell) {
  const WorkFolder folder;
  const std::string text = job_text(asked, size, cell);
  const auto job = job_from_toml(text, cell.name);
  if (!job.ok()) give_up(job.error().message);
  const fs::path run = train(asked.tenuto, folder.path(), asked.steps, {}, text);
  const std::vector<StepFigures> figures = figures_of(run);
  const std::vector<PlanChange> changes = changes_of(run);
  const PlanChange last = changes.back();
  const Pricing pricing(job.value());
  const Plan plan = plan_of(run, last.serial);
  Row row{size.name, cell.name, {}, {}, pricing.bound_ms(plan), 0, figures.back().lag_valid};
  row.answered = measure(figures, std::max(last.from, kHealthy) + 1,
                         static_cast<int64_t>(figures.size()), pricing.price_ms(plan));
  if (row.answered.steps < kLeastMeasured) {
    give_up(cat(size.name, " ", cell.name, ": the plan from step ", last.from,
                " on was in force for too few of ", asked.steps, " steps: take more --steps"));
  }
  if (changes.size() == 1) return row;
  row.steps_to_answer = last.from - kHealthy;
  row.unanswered =
      measure(figures, kHealthy + 1, changes[1].from, pricing.price_ms(plan_of(run, 1)));
  if (row.unanswered->steps == 0) row.unanswered.reset();
  return row;
}

Json to_json(const Stretch& stretch) {
  return {{"steps", stretch.steps},
          {"measured_ms", stretch.measured_ms},
          {"priced_ms", stretch.priced_ms}};
}

Json to_json(const Row& row) {
  Json json = {{"size", row.size}, {"troubles", row.troubles}, {"answered", to_json(row.answered)}};
  if (row.unanswered) json["unanswered"] = to_json(*row.unanswered);
  json["bound_ms"] = row.bound_ms;
  json["steps_to_answer"] = row.steps_to_answer;
  json["as_priced"] = row.as_priced();
  json["lag_valid"] = row.lag_valid;
  return json;
}

void print_row(const Row& row) {
  const Stretch& now = row.answered;
  std::printf("%-5s %-18s %8.1f %8.1f %+6.2f %%  %8.1f %+5.1f %%", row.size.c_str(),
              row.troubles.c_str(), now.measured_ms, now.priced_ms, 100 * now.off(), row.bound_ms,
              100 * (now.measured_ms / row.bound_ms - 1));
  if (row.unanswered) {
    const Stretch& before = *row.unanswered;
    std::printf("  %8.1f %8.1f %+6.2f %%  %5.2f %5lld", before.measured_ms, before.priced_ms,
                100 * before.off(), before.measured_ms / now.measured_ms,
                static_cast<long long>(row.steps_to_answer));
  }
  std::printf("%s%s\n", row.as_priced() ? "" : "  not as priced",
              row.lag_valid ? "" : "  (lag: machine too busy)");
  std::fflush(stdout);
}

bool wanted(const std::string& list, const std::string& name) {
  return list.empty() || cat(",", list, ",").find(cat(",", name, ",")) != std::string::npos;
}

int run_table(const Asked& asked) {
  bool all_as_priced = true;
  Json rows = Json::array();
  if (!asked.json) {
    std::printf(
        "ms from one step to the next, medians\n"
        "%-5s %-18s %8s %8s %8s  %8s %7s  %8s %8s %8s  %5s %5s\n",
        "size", "troubles", "measured", "priced", "off", "bound", "over", "before", "priced", "off",
        "gain", "steps");
  }
  for (const Size& size : sizes()) {
    const auto& names = asked.sizes;
    if (!names.empty() && std::find(names.begin(), names.end(), size.name) == names.end()) continue;
    for (const Cell& cell : cells_of(size)) {
      if (!wanted(asked.only, cell.name)) continue;
      const Row row = run_cell(asked, size, cell);
      all_as_priced = all_as_priced && row.as_priced();
      if (asked.json) {
        rows.push_back(to_json(row));
      } else {
        print_row(row);
      }
    }
  }
  if (asked.json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  return all_as_priced ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  CLI::App app{"Real processes with dead workers, slow workers and slow links against their price",
               "live_mixtures_bench"};
  tenuto::Asked asked;
  asked.tenuto = tenuto::tenuto_of_this_build();
  app.add_option("--size", asked.sizes, "3x4 or 2x4, pipelines x stages (both)")
      ->check(CLI::IsMember({"3x4", "2x4"}));
  app.add_option("--only", asked.only, "rows, with commas: none, dead, dead+dead, slow+link ...");
  app.add_option("--steps", asked.steps, "of each run (40)")->check(CLI::Range(12, 10000));
  app.add_option("--op-ms", asked.op_ms, "length of each op (5)")->check(CLI::Range(1.0, 1000.0));
  app.add_option("--tenuto", asked.tenuto, "the program that trains");
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  return tenuto::run_table(asked);
}
