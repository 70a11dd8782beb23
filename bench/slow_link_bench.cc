// The cost of a slow link per iteration, in real runs of eight paced worker processes: schedules
// whose messages block the device, one whose messages do not, and the adapting one, whose links are
// healthy at first and which must detect the slow link by itself. Op times are those of a 14B model
// on eight H800; the published columns are shown beside ours.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026 (op times and published iteration times)
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/program.h"
#include "bench/slow_link.h"
#include "plan/make_plan.h"
#include "sim/price.h"
#include "sim/trace_reader.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// One cell: the slow links, their delay, and the published times (ms, by mode; 0 = no figure).
struct Cell {
  std::vector<int32_t> links;
  double delay_ms = 0;
  std::vector<double> published;
};

// The published mean times of an iteration. Those with only the last link slow are means over the
// last iterations of the published logs.
std::vector<Cell> cells_of(const std::string& which) {
  std::vector<Cell> all;
  const std::vector<std::vector<double>> last = {{862, 767, 787, 787},    {1082, 1007, 903, 834},
                                                 {1331, 1359, 1053, 854}, {1580, 1825, 1221, 876},
                                                 {1832, 2299, 1356, 889}, {2108, 2828, 1528, 877},
                                                 {2334, 3257, 1691, 891}};
  if (which == "all" || which == "last") {
    for (size_t i = 0; i < last.size(); ++i) all.push_back({{6}, 10.0 * double(i), last[i]});
  }
  if (which == "all" || which == "first") {
    all.push_back({{0}, 30, {1600, 1970, 970, 930}});
    all.push_back({{0}, 60, {2530, 3400, 1240, 960}});
  }
  if (which == "all" || which == "several") {
    all.push_back({{0, 1}, 30, {2110, 2310, 1110, 900}});
    all.push_back({{0, 2}, 30, {2190, 2100, 1110, 890}});
    all.push_back({{0, 6}, 30, {1630, 2000, 1220, 880}});
    all.push_back({{0, 3, 6}, 30, {1690, 2120, 1270, 940}});
  }
  return all;
}

// The results of one run.
struct Figure {
  double measured_ms = 0, priced_ms = 0, bound_ms = 0, step_ms = 0;
  bool lag_valid = true;
  std::string story;  // of the adapting run: when it detected the link and changed its plan
};

constexpr int32_t kCellSteps = 16;  // default of an adapting run

std::vector<Fault> faults_of(const Cell& cell, const Mode& mode) {
  std::vector<Fault> faults;
  for (const int32_t link : cell.links) {
    if (cell.delay_ms == 0) continue;
    Fault fault;
    fault.link = link;
    fault.latency_ms = cell.delay_ms;
    fault.at_step = mode.adapts ? 4 : 0;
    faults.push_back(fault);
  }
  return faults;
}

Cluster cluster_of(const Cell& cell) {
  Cluster cluster = uniform_cluster(kStages, {});
  for (const int32_t link : cell.links) {
    const Link slow{from_milliseconds(cell.delay_ms), 0};
    cluster.exceptions[{{link}, {link + 1}}] = cluster.exceptions[{{link + 1}, {link}}] = slow;
  }
  return cluster;
}

// The time from the first op's start to the last weight gradient's end.
double compute_ms(const std::vector<Span>& spans) {
  Duration first = Duration::max(), last{};
  for (const Span& span : spans) {
    const OpKind kind = span.op.kind;
    const bool computes =
        kind == OpKind::Forward || kind == OpKind::BackwardInput || kind == OpKind::BackwardWeight;
    if (!computes) continue;
    first = std::min(first, span.start);
    last = std::max(last, span.finish);
  }
  return to_milliseconds(last - first);
}

void read_metrics(const fs::path& run, Figure& figure) {
  for (const StepFigures& step : figures_of(run)) {
    figure.step_ms = step.step_ms;
    figure.lag_valid = figure.lag_valid && step.lag_valid;
  }
}

std::string story_of(const fs::path& run) {
  std::istringstream lines(read_all(run / "events.jsonl"));
  std::string line, story;
  while (std::getline(lines, line)) {
    const Json json = Json::parse(line);
    const std::string kind = json["event"];
    if (kind != "detection" && kind != "decision") continue;
    story += cat(story.empty() ? "" : "; ", "step ", json["step"].get<int64_t>(), ": ",
                 json["reason"].get<std::string>());
  }
  return story;
}

Figure run_cell(const Settings& settings, const Cell& cell, const Mode& mode) {
  const int32_t steps = !mode.adapts ? 3 : settings.steps > 0 ? settings.steps : kCellSteps;
  // With a fixed plan the first step is measured: like the price, it begins at all workers at once.
  // In later steps blocking receives also wait for the clip decision of the step before.
  const int32_t shown = mode.adapts ? steps - 1 : 0;
  const fs::path run = train(settings, {mode, steps, faults_of(cell, mode), {shown}});
  const Plan plan = plan_of(run);
  const fs::path trace = run / cat("trace-", shown, ".json");
  const auto spans = spans_of_trace(read_all(trace), trace.string(), plan);
  if (!spans.ok()) give_up(spans.error().message);
  Figure figure;
  figure.measured_ms = compute_ms(spans.value());
  PriceOptions options = pricing_of(mode);
  options.update = false;
  const auto priced = price(plan, model_of(settings, plan), cluster_of(cell), options);
  if (!priced.ok()) give_up(priced.error().message);
  figure.priced_ms = to_milliseconds(priced.value().makespan);
  figure.bound_ms = to_milliseconds(priced.value().lower_bound);
  read_metrics(run, figure);
  if (mode.adapts) figure.story = story_of(run);
  if (!settings.kept.empty() && cell.links == std::vector<int32_t>{6} && cell.delay_ms == 60) {
    fs::create_directories(settings.kept);
    fs::copy_file(trace, fs::path(settings.kept) / (file_name(mode) + ".json"),
                  fs::copy_options::overwrite_existing);
  }
  return figure;
}

std::string name_of(const Cell& cell) {
  std::string links;
  for (const int32_t link : cell.links) links += cat(links.empty() ? "" : ",", link, "-", link + 1);
  return cat(links, " ", cell.delay_ms, " ms");
}

Json to_json(const Cell& cell, const std::vector<Figure>& figures) {
  Json row = {{"links", cell.links}, {"delay_ms", cell.delay_ms}};
  for (size_t m = 0; m < modes().size(); ++m) {
    row[modes()[m].name] = {{"measured_ms", figures[m].measured_ms},
                            {"priced_ms", figures[m].priced_ms},
                            {"step_ms", figures[m].step_ms},
                            {"published_ms", cell.published[m]},
                            {"lag_valid", figures[m].lag_valid}};
  }
  row["lower_bound_ms"] = figures.back().bound_ms;
  row["story"] = figures.back().story;
  return row;
}

// Prints "measured (published)" for each mode; then the times of the two blocking modes over that
// of the adapting mode, the bound, how far the adapting mode is above it, and the largest deviation
// of any mode from its price.
void print_row(const Cell& cell, const std::vector<Figure>& figures) {
  std::printf("%-18s", name_of(cell).c_str());
  double worst = 0;
  bool valid = true;
  for (size_t m = 0; m < figures.size(); ++m) {
    std::printf(" %6.0f (%4.0f)", figures[m].measured_ms, cell.published[m]);
    worst = std::max(worst, std::abs(figures[m].measured_ms / figures[m].priced_ms - 1));
    valid = valid && figures[m].lag_valid;
  }
  const double adapted = figures.back().measured_ms;
  std::printf("  %5.2f %5.2f  %6.0f %+5.2f %%  %5.2f %%%s\n", figures[0].measured_ms / adapted,
              figures[1].measured_ms / adapted, figures.back().bound_ms,
              100 * (adapted / figures.back().bound_ms - 1), 100 * worst,
              valid ? "" : "  (lag: machine too busy)");
  std::fflush(stdout);
}

int run_table(const Settings& settings, const std::string& which, bool json) {
  Json rows = Json::array();
  if (!json) {
    std::printf("one iteration in ms, %d stages, %d micro-batches; published figures in brackets\n",
                kStages, kMicros);
    std::printf("%-18s", "slow links");
    for (const Mode& mode : modes()) std::printf(" %13s", mode.name.c_str());
    std::printf("  gain over both  bound, above it  furthest from its price\n");
  }
  for (const Cell& cell : cells_of(which)) {
    std::vector<Figure> figures;
    for (const Mode& mode : modes()) figures.push_back(run_cell(settings, cell, mode));
    if (json) {
      rows.push_back(to_json(cell, figures));
    } else {
      print_row(cell, figures);
    }
  }
  if (json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tenuto

int main(int argc, char** argv) {
  using tenuto::Settings;
  CLI::App app("A slow link: iteration times of real runs on paced devices");
  Settings settings;
  settings.tenuto = tenuto::tenuto_of_this_build();
  std::string which = "all", replay;
  bool json = false;
  app.add_option("--links", which, "all, last, first or several")
      ->check(CLI::IsMember({"all", "last", "first", "several"}));
  app.add_option("--steps", settings.steps, "steps of each adapted run (16), or of a replay")
      ->check(CLI::Range(12, 100000));
  app.add_option("--replay", replay,
                 "a trace of slow links, FILE of step;links;delay_ms, such as\n"
                 "examples/link-trace.csv: every mode under it")
      ->check(CLI::ExistingFile);
  app.add_option("--faster", settings.faster, "replay: op times and delays divided by this (1)")
      ->check(CLI::Range(1.0, 100.0));
  app.add_option("--keep", settings.kept,
                 "folder for the Chrome traces of 60 ms on link 6, or for a replay's pictures,\n"
                 "metrics and events");
  app.add_option("--tenuto", settings.tenuto, "the program that trains");
  app.add_flag("--json", json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  const tenuto::WorkFolder folder;
  settings.folder = folder.path();
  return replay.empty() ? tenuto::run_table(settings, which, json)
                        : tenuto::run_replay(settings, replay, json);
}
