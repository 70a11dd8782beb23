// Steps with some workers dead: their times with re-routing, by memory and variant; the times that
// other systems reach by their formulas; and the throughput that is left over hours of failures.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "adapt/mesh_bound.h"
#include "adapt/mixture.h"
#include "adapt/rivals.h"
#include "adapt/route.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRuns = 40;  // runs of each random process
// Default hours between failures.
const std::vector<double> kHoursBetween = {6, 2, 0.5};
const std::vector<MixtureSize> kProcessSizes = {
    {2, 16, 16}, {4, 8, 16}, {8, 4, 16}, {8, 4, 32}, {16, 8, 64}};

// The command line.
struct Asked {
  std::vector<std::string> sizes = {"4,3,6", "8,4,32", "16,8,64"};
  std::vector<double> hours_between = kHoursBetween;
  double hours = 12, repair_hours = 0;
  std::string events;
  int layers = 16;    // per stage
  double search = 0;  // million ops simulated for moves of micro-batches; 0 = as the planner
  bool rivals_only = false, json = false;

  RouteEffort effort() const {
    if (search <= 0) return {};
    return {1 << 30, static_cast<int64_t>(search * 1e6), 0};
  }
};

// Exits with a sentence.
[[noreturn]] void give_up(const std::string& sentence) {
  std::fprintf(stderr, "failures_bench: %s\n", sentence.c_str());
  std::exit(2);
}

MixtureSize size_of(const std::string& text) {
  const auto size = read_size(text);
  if (size) return *size;
  give_up(cat("'", text, "' is no size: expected stages,pipelines,micro-batches such as 8,4,32"));
}

// Deaths in different pipelines: all at the middle stage, or each one stage further.
std::vector<Mishap> deaths(const MixtureSize& size, int32_t count, bool same_stage) {
  std::vector<Mishap> troubles;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t stage = (size.stages / 2 + (same_stage ? 0 : i)) % size.stages;
    troubles.push_back({MishapKind::DeadWorker, 0, i, stage});
  }
  return troubles;
}

// A variant of running a step.
struct Running {
  const char* name;
  int32_t memory;  // in multiples of the stages
  bool split;
  Pace pace;
};
constexpr Running kRunnings[] = {
    {"re-routed 2x", 2, false, Pace::Barrier},
    {"split", 1, true, Pace::Barrier},
    {"staggered", 1, true, Pace::Joint},
    {"staggered 2x", 2, true, Pace::Joint},
};

Mesh mesh_of(const MixtureSize& size, const std::vector<Mishap>& troubles, const Running& how) {
  Mesh mesh = mesh_with(size, troubles, how.memory * size.stages, how.pace);
  for (auto& ways : mesh.ways) std::fill(ways.begin(), ways.end(), Way{});
  mesh.split_backward = how.split;
  for (auto& stage : mesh.stages) {
    for (Holder& holder : stage) {
      if (how.split) continue;
      holder.backward += holder.weight;
      holder.weight = {};
    }
  }
  return mesh;
}

double ops_of(Duration time) { return to_milliseconds(time) / to_milliseconds(kMixtureOp); }

// The time of the step and its bound, in ops.
Json time_of(const MixtureSize& size, const std::vector<Mishap>& troubles, const Running& how,
             const RouteEffort& effort) {
  const Routed routed = search_route(mesh_of(size, troubles, how), effort);
  return {{"time", ops_of(routed.best().time)}, {"bound", ops_of(routed.bound)}};
}

// With one dead worker: the step times, in ops, of the first answer and of the whole search, and
// the median time that each takes to find.
Json planning_of(const MixtureSize& size, const Running& how) {
  constexpr int kRounds = 5;
  const Mesh mesh = mesh_of(size, deaths(size, 1, true), how);
  Json row = {{"how", how.name}};
  for (const auto& [name, effort] : {std::pair("first", kFirstRoute), {"whole", RouteEffort{}}}) {
    std::vector<double> took;
    Duration time{};
    for (int round = 0; round < kRounds; ++round) {
      const Duration start = monotonic_clock().now();
      time = search_route(mesh, effort).best().time;
      took.push_back(to_milliseconds(monotonic_clock().now() - start));
    }
    std::sort(took.begin(), took.end());
    row[name] = {{"time", ops_of(time)}, {"ms", took[kRounds / 2]}};
  }
  return row;
}

Json row_of(const MixtureSize& size, int32_t count, bool same_stage, const RouteEffort& effort) {
  const std::vector<Mishap> troubles = deaths(size, count, same_stage);
  Json row = {{"dead", count}, {"where", count < 2 ? "any" : same_stage ? "same" : "different"}};
  for (const Running& how : kRunnings) row[how.name] = time_of(size, troubles, how, effort);
  return row;
}

Json steps_of(const MixtureSize& size, const RouteEffort& effort) {
  const Fleet fleet{size, size.stages};
  Json table = {{"stages", size.stages},
                {"pipelines", size.pipelines},
                {"micros", size.micros},
                {"fault_free_1f1b", fault_free(fleet)},
                {"rows", Json::array()}};
  for (const Running& how : kRunnings) table["planning"].push_back(planning_of(size, how));
  for (int32_t count = 0; count < size.pipelines; ++count) {
    table["rows"].push_back(row_of(size, count, true, effort));
    if (count > 1) table["rows"].push_back(row_of(size, count, false, effort));
  }
  return table;
}

Json speeds_of(const MixtureSize& size, int layers) {
  const Fleet fleet{size, size.stages * layers};
  Json rows = Json::array();
  for (int32_t count = 1; count < size.pipelines; ++count) {
    for (const bool same : {true, false}) {
      if (count == 1 && !same) continue;
      Dead dead = all_alive(fleet);
      for (const Mishap& it : deaths(size, count, same)) {
        dead[static_cast<size_t>(it.pipeline)][static_cast<size_t>(it.stage)] = true;
      }
      Json row = {{"dead", count}, {"where", count < 2 ? "any" : same ? "same" : "different"}};
      for (const Rival& rival : rivals()) {
        row[rival.name] = fault_free(fleet) / rival.step(fleet, dead);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Reads lines `hours,pipeline.stage,dies|returns`, in order of time; # begins a comment.
std::vector<FailureEvent> read_events(const std::string& path, const Fleet& fleet) {
  std::ifstream file(path);
  if (!file) give_up(cat("cannot read ", path));
  std::vector<FailureEvent> events;
  std::string line;
  Dead dead = all_alive(fleet);
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    FailureEvent event;
    char word[8] = {};
    double hours = 0;
    const int read = std::sscanf(line.c_str(), " %lf , %d.%d , %7[a-z]", &hours, &event.pipeline,
                                 &event.stage, word);
    event.at_seconds = hours * 3600;
    event.returns = std::string(word) == "returns";
    const bool known = event.returns || std::string(word) == "dies";
    if (read != 4 || !known || hours < 0) {
      give_up(cat(path, ":", number, ": expected hours,pipeline.stage,dies or returns, found \"",
                  line, "\""));
    }
    const bool there = event.pipeline >= 0 && event.pipeline < fleet.size.pipelines &&
                       event.stage >= 0 && event.stage < fleet.size.stages;
    if (!there)
      give_up(cat(path, ":", number, ": there is no worker ", event.pipeline, ".", event.stage));
    if (!events.empty() && events.back().at_seconds > event.at_seconds) {
      give_up(cat(path, ":", number, ": expected a time after the line before"));
    }
    auto gone = dead[static_cast<size_t>(event.pipeline)].begin() + event.stage;
    if (*gone != !event.returns) {
      *gone = !event.returns;
    } else {
      give_up(cat(path, ":", number, ": worker ", event.pipeline, ".", event.stage, " is ",
                  event.returns ? "there" : "dead", " already"));
    }
    events.push_back(event);
  }
  return events;
}

// The throughput as a share of fault-free 1F1B, mean over the runs.
Json shares_of(const Fleet& fleet, const std::vector<std::vector<FailureEvent>>& runs,
               double hours) {
  Json row;
  for (const Rival& rival : rivals()) {
    double sum = 0, capped = 0;
    for (const auto& events : runs) {
      sum += throughput(fleet, events, hours, rival);
      capped += throughput(fleet, events, hours, rival, 1);
    }
    row[rival.name] = sum / static_cast<double>(runs.size());
    if (rival.name == "spread") row["spread, capped"] = capped / static_cast<double>(runs.size());
  }
  return row;
}

Json processes_of(const Asked& asked) {
  Json rows = Json::array();
  for (const MixtureSize& size : kProcessSizes) {
    const Fleet fleet{size, size.stages * asked.layers};
    for (const double between : asked.hours_between) {
      std::vector<std::vector<FailureEvent>> runs;
      for (int run = 0; run < kRuns; ++run) {
        runs.push_back(draw_failures(
            fleet, {asked.hours, between * 3600, asked.repair_hours * 3600}, uint64_t(run)));
      }
      Json row = {{"stages", size.stages},
                  {"pipelines", size.pipelines},
                  {"micros", size.micros},
                  {"hours_between", between}};
      row.update(shares_of(fleet, runs, asked.hours));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string head_of(const Json& row) {
  return cat("(", row["stages"].get<int>(), ",", row["pipelines"].get<int>(), ",",
             row["micros"].get<int>(), ")");
}

void print_steps(const Json& table) {
  const double plain = table["fault_free_1f1b"];
  std::printf("\n%s, in ops; fault-free 1F1B %g; found (bound)\n| dead | where |",
              head_of(table).c_str(), plain);
  for (const Running& how : kRunnings) std::printf(" %s |", how.name);
  std::printf(" over 1F1B, 1x / 2x |\n|---|---|---|---|---|---|---|\n");
  for (const Json& row : table["rows"]) {
    std::printf("| %d | %s |", row["dead"].get<int>(), row["where"].get<std::string>().c_str());
    for (const Running& how : kRunnings) {
      const Json& cell = row[how.name];
      std::printf(" %g (%g) |", cell["time"].get<double>(), cell["bound"].get<double>());
    }
    std::printf(" %.3f / %.3f |\n", plain / row["staggered"]["time"].get<double>(),
                plain / row["staggered 2x"]["time"].get<double>());
  }
  std::printf(
      "\none dead worker | first plan | in ms | whole search | in ms |\n|---|---|---|---|---|\n");
  for (const Json& row : table["planning"]) {
    std::printf("| %s |", row["how"].get<std::string>().c_str());
    for (const char* name : {"first", "whole"}) {
      std::printf(" %g | %.2f |", row[name]["time"].get<double>(), row[name]["ms"].get<double>());
    }
    std::printf("\n");
  }
}

void print_shares(const Json& row, bool capped) {
  for (const Rival& rival : rivals()) {
    if (capped && rival.name == "spread") {
      std::printf(" %.3f |", row["spread, capped"].get<double>());
    }
    std::printf(" %.3f |", row[rival.name].get<double>());
  }
  std::printf("\n");
}

void print_names(bool capped) {
  for (const Rival& rival : rivals()) {
    if (capped && rival.name == "spread") std::printf(" spread, at most 1 |");
    std::printf(" %s |", rival.name.c_str());
  }
  std::printf("\n|---|---|");
  for (size_t i = 0; i < rivals().size() + (capped ? 1 : 0); ++i) std::printf("---|");
  std::printf("\n");
}

void print(const Json& result, const Asked& asked) {
  for (const Json& table : result.value("steps", Json::array())) print_steps(table);
  for (const Json& table : result["speeds"]) {
    std::printf("\n%s, by formulas, over fault-free 1F1B; %d layers a stage\n| dead | where |",
                head_of(table).c_str(), asked.layers);
    print_names(false);
    for (const Json& row : table["rows"]) {
      std::printf("| %d | %s |", row["dead"].get<int>(), row["where"].get<std::string>().c_str());
      print_shares(row, false);
    }
  }
  if (result.contains("trace")) {
    std::printf("\n%s over %g hours, share of fault-free 1F1B\n| size | trace |",
                asked.events.c_str(), asked.hours);
    print_names(true);
    for (const Json& row : result["trace"]) {
      std::printf("| %s | |", head_of(row).c_str());
      print_shares(row, true);
    }
    return;
  }
  std::printf("\n%g hours, %s, mean of %d random runs, share of fault-free 1F1B\n", asked.hours,
              asked.repair_hours > 0 ? cat("repaired after ", asked.repair_hours, " h").c_str()
                                     : "no repair",
              kRuns);
  std::printf("| size | a failure each |");
  print_names(true);
  for (const Json& row : result["processes"]) {
    std::printf("| %s | %g h |", head_of(row).c_str(), row["hours_between"].get<double>());
    print_shares(row, true);
  }
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  Asked asked;
  CLI::App app("Steps and hours without some of their workers, beside other systems' formulas");
  app.add_option("--size", asked.sizes, "stages,pipelines,micro-batches; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--layers", asked.layers, "of a stage (16)")->check(CLI::Range(1, 1000));
  app.add_option("--hours", asked.hours, "of a failure process (12)")
      ->check(CLI::Range(0.1, 100000.0));
  app.add_option("--hours-between", asked.hours_between, "failures; several at once (6 2 0.5)")
      ->check(CLI::Range(0.01, 100000.0));
  app.add_option("--repair-hours", asked.repair_hours, "until a worker is back; 0 = never (0)")
      ->check(CLI::Range(0.0, 100000.0));
  app.add_option("--events", asked.events,
                 "instead of random ones: lines hours,pipeline.stage,dies|returns");
  app.add_option(
         "--search", asked.search,
         "million ops that the search for a better routing may play for each figure, some 0.02 "
         "s each; 0 = what the planner does (0)")
      ->check(CLI::Range(0.0, 10000.0));
  app.add_flag("--rivals", asked.rivals_only, "the formulas alone");
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  Json result;
  for (const std::string& text : asked.sizes) {
    const MixtureSize size = size_of(text);
    if (!asked.rivals_only) result["steps"].push_back(steps_of(size, asked.effort()));
    Json row = {{"stages", size.stages}, {"pipelines", size.pipelines}, {"micros", size.micros}};
    Json speeds = row;
    speeds["rows"] = speeds_of(size, asked.layers);
    result["speeds"].push_back(std::move(speeds));
    if (asked.events.empty()) continue;
    const Fleet fleet{size, size.stages * asked.layers};
    row.update(shares_of(fleet, {read_events(asked.events, fleet)}, asked.hours));
    result["trace"].push_back(std::move(row));
  }
  if (asked.events.empty()) result["processes"] = processes_of(asked);
  if (asked.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    print(result, asked);
  }
  return 0;
}
