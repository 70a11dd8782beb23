// Sync modes on the virtual clock: how long until a small network reaches an accuracy, for every
// fixed mode, published systems, the published heuristic, the look-ahead and the learned chooser,
// over the scenarios of sync/scenario.h or those of files (sync/scenario_file.h). All modes have
// the same seeds: data, first parameters and the luck of every iteration. So each is compared with
// the best fixed one seed by seed in its time, and with the synchronous mode in its gradients; s.e.
// is the standard error of these ratios.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/quantile.h"
#include "base/text.h"
#include "bench/chooser_tables.h"
#include "bench/jobs_tables.h"
#include "bench/predict_tables.h"
#include "bench/sync_peer.h"
#include "bench/sync_processes.h"
#include "sync/baselines.h"
#include "sync/choose.h"
#include "sync/heuristic.h"
#include "sync/paired.h"
#include "sync/scenario_file.h"
#include "sync/trial.h"
#include "sync/trial_step.h"

namespace tenuto {
namespace {

struct Asked {
  int seeds = 20;
  std::optional<uint64_t> first_seed;       // none = kFirstSeed, with jobs kFirstJobsSeed
  std::vector<std::string> scenario_names;  // and files; empty = all that are built in
  std::vector<SyncScenario> scenarios;      // these
  std::vector<std::string> modes;           // empty = all
  std::string optimizer;                    // empty = the scenario's
  std::optional<double> rate;
  double kappa = 0.3, clip = 0;
  bool json = false, predictors = false, choosers = false;
  PredictorQuestion question;          // with predictors
  std::string chooser, write_chooser;  // chooser files
  int32_t jobs = 0;                    // above 0: jobs that share a host, instead of modes
  bool processes = false;              // real processes beside the virtual clock
  int32_t servers = 2;                 // with processes, and what follows
  double length = 20;                  // seconds of a run
  std::vector<std::string> kills;
};

constexpr uint64_t kFirstSeed = 100;

const std::vector<std::string>& fixed_modes() {
  static const std::vector<std::string> all = {
      "synchronous", "x:7",    "x:4",  "x:2",      "asynchronous", "grace:7",
      "grace:4",     "groups", "ring", "backup:7", "rebalanced",   "bounded:3"};
  return all;
}

// The mode for a scenario's number of replicas: 7 of 8 becomes 14 of 16; "ring" leaves out those
// that straggle on average.
std::string fitted(const std::string& mode, const SyncScenario& scenario) {
  if (mode == "ring") {
    const auto slow = static_cast<int32_t>(stragglers(mean_times(scenario, 1)).size());
    return cat("ring:", std::max(scenario.replicas / 2, scenario.replicas - std::max(slow, 1)));
  }
  const auto read = sync_mode_from_text(mode);
  if (!read.ok() || read.value().count == 0) return mode;  // refused where it is used
  SyncMode scaled = read.value();
  scaled.count = std::max(1, scaled.count * scenario.replicas / 8);
  return to_text(scaled);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double one : values) sum += one;
  return sum / static_cast<double>(values.size());
}

struct Cell {
  std::vector<double> seconds;    // per seed; the limit where the target was not reached
  std::vector<double> gradients;  // per seed; those until the limit where it was not reached
  double age = 0, rate = 0, changes = 0, dropped = 0, kappa = 0;
  int missed = 0, rising = 0;  // seeds that missed the target; in which the loss rose
};

// The look-ahead, with a kappa that it learns from the losses of the trial.
constexpr std::string_view kLearnsKappa = "kappa-learned";

// These are modes here, too.
bool is_chooser(const std::string& mode) {
  return mode == "look-ahead" || mode == "heuristic" || mode == "learned" || mode == kLearnsKappa;
}

// Ends the program: the sentence says why.
[[noreturn]] void fail(const Error& error) {
  std::fprintf(stderr, "sync_bench: %s\n", error.message.c_str());
  std::exit(2);
}

bool is_scenario_file(std::string_view name) { return name.ends_with(".toml"); }

// What is wrong with a value of --scenario; "" = nothing, as far as its name says.
std::string scenario_name_fault(const std::string& name) {
  if (is_scenario_file(name) || find_sync_scenario(name) != nullptr) return {};
  std::string all;
  for (const SyncScenario& scenario : sync_scenarios()) all += scenario.name + ", ";
  return cat("expected ", all, "or a file that ends in .toml, found '", name, "'");
}

SyncScenario scenario_of_file(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 20;  // people write these files by hand
  const auto text = read_file(path, kMostBytes);
  if (!text.ok()) fail(text.error());
  auto scenario = sync_scenario_from_toml(text.value(), path);
  if (!scenario.ok()) fail(scenario.error());
  return std::move(scenario).value();
}

// The built-in ones that are named, in the order of their list, and then those of the files; all
// built-in ones if nothing is named.
std::vector<SyncScenario> scenarios_of(const std::vector<std::string>& names) {
  if (names.empty()) return sync_scenarios();
  std::vector<SyncScenario> scenarios;
  for (const SyncScenario& scenario : sync_scenarios()) {
    const bool is_named = std::find(names.begin(), names.end(), scenario.name) != names.end();
    if (is_named) scenarios.push_back(scenario);
  }
  for (const std::string& name : names) {
    if (is_scenario_file(name)) scenarios.push_back(scenario_of_file(name));
  }
  return scenarios;
}

// The trial of one scenario under one mode with this seed, counted from 0.
TrialSetting setting_of(const Asked& asked, const SyncScenario& scenario, const std::string& mode,
                        int seed) {
  TrialSetting setting;
  setting.scenario = scenario;
  setting.scenario.optimizer = find_trial_optimizer(asked.optimizer).value_or(scenario.optimizer);
  setting.seed = asked.first_seed.value_or(kFirstSeed) + static_cast<uint64_t>(seed);
  setting.kappa = asked.kappa;
  setting.rate = asked.rate;
  setting.clip = asked.clip;
  if (mode == "look-ahead" || mode == kLearnsKappa) {
    setting.policy = SyncPolicy::LookAhead;
    setting.learns_kappa = mode == kLearnsKappa;
  } else if (mode == "heuristic") {
    setting.policy = SyncPolicy::Published;
  } else if (mode == "learned") {
    auto chooser = chooser_for(scenario.replicas, asked.chooser);
    if (!chooser.ok()) fail(chooser.error());
    setting.policy = SyncPolicy::Learned;
    setting.chooser = std::move(chooser).value();
  } else if (is_baseline(mode)) {
    if (const Status set = set_baseline(mode, setting); !set.ok()) fail(set.error());
  } else {
    const auto read = sync_mode_from_text(fitted(mode, scenario));
    if (!read.ok()) fail(read.error());
    setting.mode = read.value();
  }
  return setting;
}

// One scenario under one mode.
Cell measure(const Asked& asked, const SyncScenario& scenario, const std::string& mode) {
  Cell cell;
  for (int i = 0; i < asked.seeds; ++i) {
    const TrialSetting setting = setting_of(asked, scenario, mode, i);
    const auto result = run_trial(setting);
    if (!result.ok()) fail(result.error());
    const TrialResult& of = result.value();
    cell.seconds.push_back(to_milliseconds(of.reached.value_or(setting.limit)) / 1000);
    cell.missed += !of.reached;
    cell.rising += of.rises > 0;
    cell.gradients.push_back(of.gradients);
    cell.age += of.measure.mean_age / asked.seeds;
    cell.rate += of.measure.gradients_per_second / asked.seeds;
    cell.kappa += of.kappa / asked.seeds;
    cell.changes += static_cast<double>(of.changes) / asked.seeds;
    cell.dropped += of.measure.dropped_fraction / asked.seeds;
  }
  return cell;
}

// Milliseconds of one decision, the median of a few.
double decision_ms(int32_t replicas) {
  ChooseInput input;
  SyncScenario scenario = *find_sync_scenario("random");
  scenario.replicas = replicas;
  const IterationTimes times = times_of(scenario, 1);
  for (int32_t replica = 0; replica < replicas; ++replica) {
    input.samples.emplace_back();
    for (size_t i = 0; i < kKeptSamples; ++i) {
      input.samples.back().push_back(times(replica, static_cast<int64_t>(i), Duration{}));
    }
  }
  input.apply = scenario.apply;
  input.micros = 16;
  std::vector<Duration> taken;
  for (int i = 0; i < 5; ++i) {
    const Duration before = monotonic_clock().now();
    if (!choose_by_look_ahead(input).ok()) return -1;
    taken.push_back(monotonic_clock().now() - before);
  }
  return to_milliseconds(quantile(taken, 0.5));
}

// The times of the fixed mode with the least mean; nullptr = no mode is fixed.
const std::vector<double>* best_of(const std::vector<std::string>& modes,
                                   const std::vector<Cell>& cells) {
  const Cell* best = nullptr;
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool is_fixed = !is_chooser(modes[i]) && !is_baseline(modes[i]);
    const bool is_better = best == nullptr || mean_of(cells[i].seconds) < mean_of(best->seconds);
    if (is_fixed && is_better) best = &cells[i];
  }
  return best == nullptr ? nullptr : &best->seconds;
}

// The gradients of the synchronous mode; nullptr = it is not among these, or has applied none.
const std::vector<double>* synchronous_of(const std::vector<std::string>& modes,
                                          const std::vector<Cell>& cells) {
  const auto found = std::find(modes.begin(), modes.end(), "synchronous");
  if (found == modes.end()) return nullptr;
  const Cell& cell = cells[static_cast<size_t>(found - modes.begin())];
  return mean_of(cell.gradients) > 0 ? &cell.gradients : nullptr;
}

// The ratio to these values; none without them.
std::optional<PairedRatio> ratio_to(const std::vector<double>& of, const std::vector<double>* to) {
  return to == nullptr ? std::nullopt : std::optional(paired_ratio(of, *to));
}

// The ratio and its standard error, in two columns.
std::string ratio_text(const std::optional<PairedRatio>& ratio) {
  const auto column = [&](double number, size_t width) {
    const std::string text = ratio ? fixed(number, 2) : std::string("-");
    return std::string(width - std::min(width, text.size()), ' ') + text;
  };
  const PairedRatio shown = ratio.value_or(PairedRatio{});
  return cat(column(shown.value, 7), " ", column(shown.error, 6));
}

// A line for each mode in which most trials show that the learning rate is too high.
void print_rising(const std::vector<std::string>& modes, const std::vector<Cell>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto seeds = static_cast<int>(cells[i].seconds.size());
    if (2 * cells[i].rising <= seeds) continue;
    std::printf("the learning rate is too high for %s: the loss rose in %d of %d trials\n",
                modes[i].c_str(), cells[i].rising, seeds);
  }
}

// A line that says what was learned.
void print_kappa(const std::vector<std::string>& modes, const std::vector<Cell>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (modes[i] != kLearnsKappa) continue;
    std::printf("kappa is %.2f at the end of the trials of %s, on average\n", cells[i].kappa,
                modes[i].c_str());
  }
}

void print_row(const std::string& name, const std::vector<std::string>& modes,
               const std::vector<Cell>& cells) {
  const std::vector<double>* best = best_of(modes, cells);
  const std::vector<double>* synchronous = synchronous_of(modes, cells);
  std::printf("\n%s\n%-17s %8s %7s %6s %10s %7s %6s %6s %8s %7s %7s %6s %s\n", name.c_str(), "mode",
              "seconds", "/ best", "s.e.", "gradients", "/ sync", "s.e.", "age", "grad/s",
              "dropped", "changes", "rising", "missed");
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    std::printf("%-17s %8.2f %s %10.0f %s %6.2f %8.1f %5.1f %% %7.1f %6d %d\n", modes[i].c_str(),
                mean_of(cell.seconds), ratio_text(ratio_to(cell.seconds, best)).c_str(),
                mean_of(cell.gradients), ratio_text(ratio_to(cell.gradients, synchronous)).c_str(),
                cell.age, cell.rate, 100 * cell.dropped, cell.changes, cell.rising, cell.missed);
  }
  print_rising(modes, cells);
  print_kappa(modes, cells);
  std::fflush(stdout);
}

// What is printed as JSON of one scenario, mode by mode.
void add_cells(nlohmann::ordered_json& tree, const std::string& name,
               const std::vector<std::string>& modes, const std::vector<Cell>& cells) {
  const std::vector<double>* synchronous = synchronous_of(modes, cells);
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    tree.push_back({{"scenario", name},
                    {"mode", modes[i]},
                    {"seconds", cell.seconds},
                    {"gradients", mean_of(cell.gradients)},
                    {"mean_age", cell.age},
                    {"gradients_per_second", cell.rate},
                    {"dropped_fraction", cell.dropped},
                    {"rising", cell.rising},
                    {"missed", cell.missed}});
    if (modes[i] == kLearnsKappa) tree.back()["kappa"] = cell.kappa;
    const auto ratio = ratio_to(cell.gradients, synchronous);
    if (!ratio) continue;
    tree.back()["gradients_to_synchronous"] = ratio->value;
    tree.back()["gradients_error"] = ratio->error;
  }
}

// The program's exit status.
int ended(const Status& printed) {
  if (!printed.ok()) fail(printed.error());
  return 0;
}

int run_predictors(const Asked& asked) {
  PredictorQuestion question = asked.question;
  question.scenarios = asked.scenarios;
  question.first_seed = asked.first_seed.value_or(kFirstSeed);
  question.seeds = asked.seeds;
  return ended(print_predictors(question));
}

int run_jobs(const Asked& asked) {
  JobsQuestion question;
  question.jobs = asked.jobs;
  question.seeds = asked.seeds;
  question.first_seed = asked.first_seed.value_or(JobsQuestion::kFirstJobsSeed);
  question.kappa = asked.kappa;
  question.json = asked.json;
  return ended(print_jobs(question));
}

int run_choosers(const Asked& asked) {
  return ended(print_choosers({asked.scenarios, asked.first_seed.value_or(kFirstSeed), asked.seeds,
                               asked.kappa, asked.chooser, asked.write_chooser}));
}

// Exits with 1 if a run fails or its audit does.
int run_processes(const Asked& asked) {
  ProcessesQuestion question;
  question.servers = asked.servers;
  for (const std::string& text : asked.kills) {
    const auto kill = process_kill_from_text(text);
    if (!kill.ok()) fail(kill.error());
    question.kills.push_back(kill.value());
  }
  std::vector<std::string> modes = asked.modes;
  if (modes.empty()) modes = {"synchronous", "asynchronous", "look-ahead"};
  for (const SyncScenario& scenario : asked.scenarios) {
    for (const std::string& mode : modes) {
      TrialSetting setting = setting_of(asked, scenario, mode, 0);
      setting.limit = from_milliseconds(1000 * asked.length);
      question.cases.push_back({mode, setting});
    }
  }
  const Status printed = print_processes(question);
  if (printed.ok()) return 0;
  if (printed.error().reach == Reach::Call) fail(printed.error());
  std::fprintf(stderr, "sync_bench: %s\n", printed.error().message.c_str());
  return 1;
}

// A chooser file that does not fit is refused before the first trial.
void check_chooser(const Asked& asked) {
  if (asked.chooser.empty()) return;
  for (const SyncScenario& scenario : asked.scenarios) {
    const auto chooser = chooser_for(scenario.replicas, asked.chooser);
    if (!chooser.ok()) fail(chooser.error());
  }
}

int run(const Asked& asked) {
  check_chooser(asked);
  std::vector<std::string> modes = asked.modes;
  if (modes.empty()) {
    modes = fixed_modes();
    modes.insert(modes.end(), usual_baselines().begin(), usual_baselines().end());
    modes.insert(modes.end(), {"heuristic", "look-ahead", std::string(kLearnsKappa), "learned"});
  }
  nlohmann::ordered_json tree = nlohmann::ordered_json::array();
  for (const SyncScenario& scenario : asked.scenarios) {
    std::vector<Cell> cells;
    for (const std::string& mode : modes) cells.push_back(measure(asked, scenario, mode));
    if (asked.json) add_cells(tree, scenario.name, modes, cells);
    if (!asked.json) print_row(scenario.name, modes, cells);
  }
  const double eight = decision_ms(8), many = decision_ms(64);
  if (asked.json) {
    std::printf(
        "%s\n",
        nlohmann::ordered_json{{"trials", tree}, {"decision_ms_8", eight}, {"decision_ms_64", many}}
            .dump()
            .c_str());
  } else {
    std::printf("\na decision of the look-ahead: %.2f ms for 8 replicas, %.1f ms for 64\n", eight,
                many);
  }
  return 0;
}

void add_process_options(CLI::App& app, Asked& asked) {
  CLI::Option* processes =
      app.add_flag("--processes", asked.processes,
                   "real processes beside the virtual clock, with the first seed: synchronous, "
                   "asynchronous and look-ahead, or the modes that are asked for");
  for (const char* other :
       {"--seeds", "--clip", "--json", "--predictors", "--jobs", "--choosers", "--chooser"}) {
    processes->excludes(app.get_option(other));
  }
  app.add_option("--servers", asked.servers, "server processes (2)")->needs(processes);
  app.add_option("--length", asked.length, "seconds of a run (20)")
      ->check(CLI::Range(1, 3600))
      ->needs(processes);
  app.add_option("--kill", asked.kills,
                 "shard, standby, replica or decider, and :SECONDS after which its process is "
                 "killed, to come back 2 s later")
      ->delimiter(',')
      ->needs(processes);
}

}  // namespace
}  // namespace tenuto

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "--peer") return tenuto::run_sync_peer();
  tenuto::Asked asked;
  CLI::App app("Time to an accuracy under every sync mode, on the virtual clock");
  app.add_option("--seeds", asked.seeds, "seeds of each cell (20)")->check(CLI::Range(1, 1000));
  app.add_option("--first-seed", asked.first_seed, "the first of them (100; with --jobs 300)");
  app.add_option("--scenario", asked.scenario_names,
                 "only these scenarios: names, or files that end in .toml")
      ->delimiter(',')
      ->check(tenuto::scenario_name_fault);
  app.add_option(
         "--mode", asked.modes,
         "only these modes, for 8 replicas, and baselines, look-ahead, kappa-learned, heuristic, "
         "learned (all)")
      ->delimiter(';');
  app.add_option("--kappa", asked.kappa, "of the choosers (0.3)")->check(CLI::NonNegativeNumber);
  app.add_option("--optimizer", asked.optimizer, "sgd, momentum, nesterov or adamw (sgd)")
      ->check([](const std::string& name) {
        return tenuto::find_trial_optimizer(name)
                   ? std::string()
                   : tenuto::cat("there is no optimizer '", name, "'");
      });
  app.add_option("--rate", asked.rate,
                 "learning rate (sgd: 1.2, momentum and nesterov: 0.15, adamw: 0.01)");
  app.add_option("--clip", asked.clip, "longest mean gradient of an update, 0 = any (0)")
      ->check(CLI::NonNegativeNumber);
  CLI::Option* json = app.add_flag("--json", asked.json, "one JSON object");
  CLI::Option* predictors =
      app.add_flag("--predictors", asked.predictors,
                   "predictors of iteration times and stragglers instead of modes");
  predictors->excludes(json);
  for (const char* of_modes : {"--mode", "--kappa", "--optimizer", "--rate", "--clip"}) {
    predictors->excludes(app.get_option(of_modes));
  }
  CLI::Option* jobs =
      app.add_option("--jobs", asked.jobs,
                     "how much jobs slow each other that share a host, so many of them, with a "
                     "ledger and without, instead of modes")
          ->check(CLI::Range(1, 12))
          ->excludes(predictors);
  for (const char* of_modes : {"--scenario", "--mode", "--optimizer", "--rate", "--clip"}) {
    jobs->excludes(app.get_option(of_modes));
  }
  app.add_option("--recordings", asked.question.recordings,
                 "files of recorded iterations to predict instead of scenarios")
      ->delimiter(',')
      ->needs(predictors);
  app.add_option("--record", asked.question.record, "writes the last recording to this file")
      ->needs(predictors);
  CLI::Option* choosers = app.add_flag("--choosers", asked.choosers,
                                       "errors of choosers on recorded decisions instead of modes");
  choosers->excludes(json)->excludes(predictors)->excludes(jobs);
  for (const char* of_modes : {"--mode", "--optimizer", "--rate", "--clip"}) {
    choosers->excludes(app.get_option(of_modes));
  }
  app.add_option("--chooser", asked.chooser, "chooser file of the learned one (it is trained)")
      ->excludes(predictors)
      ->excludes(jobs);
  app.add_option("--write-chooser", asked.write_chooser, "writes the chooser to this file")
      ->needs(choosers);
  tenuto::add_process_options(app, asked);
  CLI11_PARSE(app, count, words);
  asked.scenarios = tenuto::scenarios_of(asked.scenario_names);
  if (asked.processes) return tenuto::run_processes(asked);
  if (asked.predictors) return tenuto::run_predictors(asked);
  if (asked.choosers) return tenuto::run_choosers(asked);
  return asked.jobs > 0 ? tenuto::run_jobs(asked) : tenuto::run(asked);
}
