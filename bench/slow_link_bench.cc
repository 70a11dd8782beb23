// What a slow link costs an iteration, with eight paced worker processes of real runs: schedules
// whose messages block the device, the same with messages beside it, and the adapted one, which
// begins healthy and has to find the slow link by itself. Op times are those of a 14B model on
// eight H800; the published columns stand beside ours.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026 (op times and published iteration times)
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "sim/price.h"
#include "sim/trace_reader.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int32_t kStages = 8, kMicros = 24;
const std::vector<double> kForward = {8, 9, 10, 9, 10, 9, 9, 10};
const std::vector<double> kBackward = {9, 11, 11, 11, 10, 10, 10, 9};
const std::vector<double> kWeight = {5, 6, 6, 7, 6, 6, 6, 6};

// One way of running the step.
struct Mode {
  std::string name, order, dispatch, send;
  bool split = true, adapts = false;
};
const std::vector<Mode> kModes = {
    {"blocking 1f1b", "1f1b", "listed", "blocking", false, false},
    {"blocking zb", "zb-h2", "listed", "blocking", true, false},
    {"offloaded zb", "zb-h2", "listed", "offloaded", true, false},
    {"adapted", "auto", "ready", "offloaded", true, true},
};

// One cell: which links are slow by how much, and what was published for it (ms, by mode; 0 = no
// such figure).
struct Cell {
  std::vector<int32_t> links;
  double delay_ms = 0;
  std::vector<double> published;
};

// The means of the last iterations of the published logs, and of those of several links.
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

struct Settings {
  std::string tenuto;  // the program
  std::string traces;  // where Chrome traces of one cell are kept; empty = nowhere
  int32_t steps = 16;  // of the adapted run
  fs::path folder;
};

// What came of one run.
struct Figure {
  double measured_ms = 0, priced_ms = 0, bound_ms = 0, step_ms = 0;
  bool lag_valid = true;
  std::string story;  // of the adapted run: when it was found and changed
};

[[noreturn]] void give_up(const std::string& sentence) {
  std::fprintf(stderr, "slow_link_bench: %s\n", sentence.c_str());
  std::exit(1);
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) give_up(cat("cannot read ", path.string()));
  return text.str();
}

std::string list(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += cat(text.empty() ? "[" : ", ", number);
  return text + "]";
}

int32_t fault_step(const Mode& mode) { return mode.adapts ? 4 : 0; }
int32_t steps_of(const Settings& settings, const Mode& mode) {
  return mode.adapts ? settings.steps : 3;
}

void write_job(const Settings& settings, const Cell& cell, const Mode& mode) {
  std::ofstream file(settings.folder / "job.toml");
  const int32_t steps = steps_of(settings, mode);
  file << "[job]\nname = \"cell\"\nsteps = " << steps << "\ndirectory = \""
       << (settings.folder / "runs").string() << "\"\ncheckpoint_every = 0\nvalidate_every = 0\n"
       << "validate_micros = 0\ntrace_steps = [" << steps - 1 << "]\n[model]\nlayers = " << kStages
       << "\n[optimizer]\nkind = \"sgd\"\nclip = 0.0\n[parallel]\nstages = " << kStages
       << "\nmicros = " << kMicros << "\norder = \"" << mode.order << "\"\ndispatch = \""
       << mode.dispatch << "\"\nsplit_backward = " << (mode.split ? "true" : "false")
       << "\n[device]\nkind = \"paced\"\nmessage_bytes = 1024\nforward_ms = " << list(kForward)
       << "\nbackward_input_ms = " << list(kBackward) << "\nbackward_weight_ms = " << list(kWeight)
       << "\n[network]\nsend = \"" << mode.send << "\"\n[resilience]\nslow_links = \""
       << (mode.adapts ? "adapt" : "off") << "\"\n";
  for (const int32_t link : cell.links) {
    if (cell.delay_ms == 0) continue;
    file << "[[fault]]\nkind = \"slow-link\"\nlink = " << link << "\nlatency_ms = " << cell.delay_ms
         << "\nat_step = " << fault_step(mode) << "\n";
  }
}

void train(const Settings& settings) {
  const std::string job = (settings.folder / "job.toml").string();
  const std::string log = (settings.folder / "log").string();
  const std::string command =
      cat("'", settings.tenuto, "' train '", job, "' --json > '", log, "' 2>&1");
  fs::remove_all(settings.folder / "runs");
  if (std::system(command.c_str()) != 0) give_up(cat("a run failed: ", read(log)));
}

// The newest plan of a run.
Plan plan_of(const fs::path& run) {
  fs::path path = run / "plan-1.json";
  for (int serial = 2; fs::exists(run / cat("plan-1-", serial, ".json")); ++serial) {
    path = run / cat("plan-1-", serial, ".json");
  }
  auto plan = plan_from_json(read(path), path.string());
  if (!plan.ok()) give_up(plan.error().message);
  return std::move(plan).value();
}

Model model_of(const Plan& plan) {
  Model model;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    Layer& layer = model.layers[static_cast<size_t>(plan.stages[s].layer_first)];
    layer.forward = from_milliseconds(kForward[s]);
    layer.backward_input = from_milliseconds(kBackward[s]);
    layer.backward_weight = from_milliseconds(kWeight[s]);
  }
  return model;
}

Cluster cluster_of(const Cell& cell) {
  Cluster cluster = uniform_cluster(kStages, {});
  for (const int32_t link : cell.links) {
    const Link slow{from_milliseconds(cell.delay_ms), 0};
    cluster.exceptions[{{link}, {link + 1}}] = cluster.exceptions[{{link + 1}, {link}}] = slow;
  }
  return cluster;
}

// From the first op's start to the last weight gradient's end.
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
  std::istringstream lines(read(run / "metrics.jsonl"));
  std::string line;
  while (std::getline(lines, line)) {
    const Json json = Json::parse(line);
    figure.step_ms = json["step_ms"];
    figure.lag_valid = figure.lag_valid && json["lag_valid"].get<bool>();
  }
}

std::string story_of(const fs::path& run) {
  std::istringstream lines(read(run / "events.jsonl"));
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
  write_job(settings, cell, mode);
  train(settings);
  const fs::path run = settings.folder / "runs" / "cell";
  const Plan plan = plan_of(run);
  const fs::path trace = run / cat("trace-", steps_of(settings, mode) - 1, ".json");
  const auto spans = spans_of_trace(read(trace), trace.string(), plan);
  if (!spans.ok()) give_up(spans.error().message);
  Figure figure;
  figure.measured_ms = compute_ms(spans.value());
  PriceOptions options;
  options.update = false;
  options.sending = mode.send == "blocking" ? Sending::Blocking : Sending::Offloaded;
  const auto priced = price(plan, model_of(plan), cluster_of(cell), options);
  if (!priced.ok()) give_up(priced.error().message);
  figure.priced_ms = to_milliseconds(priced.value().makespan);
  figure.bound_ms = to_milliseconds(priced.value().lower_bound);
  read_metrics(run, figure);
  if (mode.adapts) figure.story = story_of(run);
  if (!settings.traces.empty() && cell.links == std::vector<int32_t>{6} && cell.delay_ms == 60) {
    std::string name = mode.name;
    std::replace(name.begin(), name.end(), ' ', '-');
    fs::create_directories(settings.traces);
    fs::copy_file(trace, fs::path(settings.traces) / (name + ".json"),
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
  for (size_t m = 0; m < kModes.size(); ++m) {
    row[kModes[m].name] = {{"measured_ms", figures[m].measured_ms},
                           {"priced_ms", figures[m].priced_ms},
                           {"step_ms", figures[m].step_ms},
                           {"published_ms", cell.published[m]},
                           {"lag_valid", figures[m].lag_valid}};
  }
  row["lower_bound_ms"] = figures.back().bound_ms;
  row["story"] = figures.back().story;
  return row;
}

// Measured (published) of each mode, then how the adapted one stands.
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

int run_table(Settings settings, const std::string& which, bool json) {
  char folder[] = "/tmp/tenuto-slow-link-XXXXXX";
  if (mkdtemp(folder) == nullptr) give_up("cannot make a folder in /tmp");
  settings.folder = folder;
  Json rows = Json::array();
  if (!json) {
    std::printf("one iteration in ms, %d stages, %d micro-batches; published figures in brackets\n",
                kStages, kMicros);
    std::printf("%-18s", "slow links");
    for (const Mode& mode : kModes) std::printf(" %13s", mode.name.c_str());
    std::printf("  gain over both  bound, above it  furthest from its price\n");
  }
  for (const Cell& cell : cells_of(which)) {
    std::vector<Figure> figures;
    for (const Mode& mode : kModes) figures.push_back(run_cell(settings, cell, mode));
    if (json) {
      rows.push_back(to_json(cell, figures));
    } else {
      print_row(cell, figures);
    }
  }
  if (json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  fs::remove_all(settings.folder);
  return 0;
}

}  // namespace
}  // namespace tenuto

int main(int argc, char** argv) {
  using tenuto::Settings;
  CLI::App app("A slow link: iteration times of real runs on paced devices");
  Settings settings;
  settings.tenuto = (tenuto::fs::read_symlink("/proc/self/exe").parent_path().parent_path() /
                     "src" / "app" / "tenuto")
                        .string();
  std::string which = "all";
  bool json = false;
  app.add_option("--links", which, "all, last, first or several")
      ->check(CLI::IsMember({"all", "last", "first", "several"}));
  app.add_option("--steps", settings.steps, "steps of each adapted run (16)")
      ->check(CLI::Range(12, 1000));
  app.add_option("--traces", settings.traces, "folder for the Chrome traces of 60 ms on link 6");
  app.add_option("--tenuto", settings.tenuto, "the program that trains");
  app.add_flag("--json", json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  return tenuto::run_table(settings, which, json);
}
