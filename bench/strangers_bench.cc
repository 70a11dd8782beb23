// What strangers cost a run: 2 x 2 worker processes with paced devices, in real time, whose ports
// and whose coordinator's port are attacked by those who are no part of the job. Three kinds of
// runs take turns: quiet ones; ones beside an attack on the ports of a decoy, which takes the
// processor time of the attack and leaves the run alone; and attacked ones. An attack begins after
// a few steps and lasts until a few steps before the end; times of steps are medians over the steps
// between.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "bench/live_run.h"
#include "bench/program.h"
#include "bench/runs.h"
#include "bench/strangers.h"
#include "run/coordinator_address.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double kMostOver = 0.02;          // an attacked step, over one beside a decoy's attack
constexpr int64_t kBefore = 4, kAfter = 3;  // steps without an attack
constexpr int32_t kWorkers = 4, kMicros = 4;
constexpr Duration kStart = std::chrono::seconds(60);  // for a run to begin and to end
enum Way : size_t { Quiet, Beside, Attacked, kWays };
constexpr const char* kNames[] = {"quiet", "beside a decoy", "attacked"};

struct Asked {
  std::string tenuto;
  int rounds = 3;
  int64_t steps = 100, a_second = 1000, silent = 10000;
  double op_ms = 5;
  bool json = false;
};

// One run.
struct Outcome {
  double step_ms = 0;            // median, while it is attacked
  double seconds = 0;            // how long that was
  double worker_mib = 0;         // memory of the largest worker, the most at any time
  double coordinator_mib = 0;    // the same of the coordinator
  double workers = 0;            // their processor time then, as a share of one processor
  double attack = 0, decoy = 0;  // the same of the attack, and of its decoy
  double lines = 0;              // log lines a second then
  StrangerCounts strangers;
  std::vector<double> losses;
};

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

// On a machine that is busy with something else links and workers look slow, and even silent. A
// change of plan would change the time of a step, so there is none.
std::string job_text(const Asked& asked) {
  std::string times;
  for (const char* op : {"forward", "backward_input", "backward_weight"}) {
    times += cat(op, "_ms = ", asked.op_ms, "\n");
  }
  return cat("[optimizer]\nkind = \"sgd\"\n[parallel]\nstages = 2\npipelines = 2\nmicros = ",
             kMicros, "\n[device]\nkind = \"paced\"\nclock = \"real\"\n", times,
             "[resilience]\nslow_links = \"off\"\nslow_workers = \"observe\"\n",
             "silence_seconds = 60.0\n");
}

// The ports of the workers and of the coordinator.
std::vector<std::string> ports_of(const LiveRun& run, const std::vector<pid_t>& workers,
                                  const CoordinatorAddress& coordinator) {
  std::vector<std::string> found{coordinator.address};
  for (const pid_t each : workers) {
    const auto ports = LiveRun::ports_of(each);
    found.insert(found.end(), ports.begin(), ports.end());
  }
  if (workers.size() != kWorkers || found.size() <= workers.size()) {
    give_up(cat(run.folder().string(), " has ", workers.size(), " workers, expected ", kWorkers,
                ", each with a port"));
  }
  return found;
}

double processor_of(const std::vector<pid_t>& workers) {
  double seconds = 0;
  for (const pid_t each : workers) seconds += LiveRun::figures_of(each).processor;
  return seconds;
}

double most_memory(const std::vector<pid_t>& processes) {
  double most = 0;
  for (const pid_t each : processes) most = std::max(most, LiveRun::figures_of(each).memory_mib);
  return most;
}

Outcome measure(const Asked& asked, Way way, uint64_t seed) {
  const WorkFolder folder;
  write_job(folder.path(), asked.steps, {}, job_text(asked));
  const double step_ms = 3 * asked.op_ms * (kMicros + 1);
  const Duration limit = kStart + 20 * asked.steps * from_milliseconds(step_ms);
  LiveRun run(asked.tenuto, folder.path());
  run.wait_for(kBefore, kStart);
  const std::vector<pid_t> workers = run.workers();
  const auto coordinator = read_coordinator_address(run.folder().string());
  if (!coordinator.ok()) give_up(coordinator.error().message);
  const std::vector<std::string> ports = ports_of(run, workers, coordinator.value());

  std::optional<Decoy> decoy;
  std::optional<Attack> attack;
  if (way == Beside) decoy.emplace(ports.size());
  if (way != Quiet) {
    attack.emplace(StrangerSettings{way == Beside ? decoy->targets() : ports,
                                    coordinator.value().job, coordinator.value().token,
                                    asked.a_second, asked.silent, seed});
  }
  const Duration begin = monotonic_clock().now();
  const double before = processor_of(workers);
  const int64_t lines_before = run.log_lines();
  const auto first = static_cast<size_t>(run.steps());
  run.wait_for(asked.steps - kAfter, limit);
  const auto last = static_cast<size_t>(run.steps());

  Outcome outcome;
  outcome.seconds = to_milliseconds(monotonic_clock().now() - begin) / 1000;
  outcome.workers = (processor_of(workers) - before) / outcome.seconds;
  outcome.worker_mib = most_memory(workers);
  outcome.coordinator_mib = most_memory(run.coordinators());
  if (attack) outcome.strangers = attack->stop();
  outcome.attack = outcome.strangers.processor / outcome.seconds;
  if (decoy) outcome.decoy = decoy->stop() / outcome.seconds;
  outcome.lines = static_cast<double>(run.log_lines() - lines_before) / outcome.seconds;
  run.finish(kStart);
  const std::vector<StepFigures> figures = figures_of(run.folder());
  if (figures.size() != static_cast<size_t>(asked.steps)) give_up("a run lacks steps");
  std::vector<double> times;
  for (size_t i = 0; i < figures.size(); ++i) {
    outcome.losses.push_back(figures[i].loss);
    if (i > first && i < last) times.push_back(figures[i].step_ms);
  }
  if (times.empty()) give_up("no step was attacked: ask for more --steps");
  outcome.step_ms = median(times);
  return outcome;
}

// The outcomes of all rounds, by way.
using Outcomes = std::vector<Outcome>[kWays];

double median_of(const std::vector<Outcome>& outcomes, double Outcome::*figure) {
  std::vector<double> numbers;
  for (const Outcome& each : outcomes) numbers.push_back(each.*figure);
  return median(numbers);
}

// The median, over the rounds, of how many times as long a step of the one is as of the other.
double ratio(const std::vector<Outcome>& upper, const std::vector<Outcome>& lower) {
  std::vector<double> ratios;
  for (size_t i = 0; i < upper.size(); ++i) ratios.push_back(upper[i].step_ms / lower[i].step_ms);
  return median(ratios);
}

bool same_losses(const Outcomes& all) {
  const std::vector<double>& first = all[Quiet].front().losses;
  for (const auto& way : all) {
    for (const Outcome& each : way) {
      if (each.losses != first) return false;
    }
  }
  return true;
}

void print(const Asked& asked, const Outcomes& all) {
  std::printf("steps of 2 x 2 workers, ops of %g ms in real time, medians of %d rounds of %.1f s\n",
              asked.op_ms, asked.rounds, median_of(all[Attacked], &Outcome::seconds));
  std::printf("%-15s %8s %10s %9s %9s %9s %11s %16s %8s\n", "", "step ms", "over quiet",
              "workers %", "attack %", "decoy %", "worker MiB", "coordinator MiB", "lines/s");
  for (size_t way = 0; way < kWays; ++way) {
    const auto& rows = all[way];
    std::printf("%-15s %8.3f %10.4f %9.1f %9.1f %9.1f %11.1f %16.1f %8.2f\n", kNames[way],
                median_of(rows, &Outcome::step_ms), ratio(rows, all[Quiet]),
                100 * median_of(rows, &Outcome::workers), 100 * median_of(rows, &Outcome::attack),
                100 * median_of(rows, &Outcome::decoy), median_of(rows, &Outcome::worker_mib),
                median_of(rows, &Outcome::coordinator_mib), median_of(rows, &Outcome::lines));
  }
  for (const Outcome& each : all[Attacked]) {
    std::printf(
        "attacked by %lld connections, %lld of them silent, and %.1f MB; %lld greetings "
        "were refused, %lld let in\n",
        static_cast<long long>(each.strangers.opened),
        static_cast<long long>(each.strangers.silent),
        static_cast<double>(each.strangers.sent) / 1e6,
        static_cast<long long>(each.strangers.refused),
        static_cast<long long>(each.strangers.let_in));
  }
}

int run(const Asked& asked) {
  Outcomes all;
  for (int round = 0; round < asked.rounds; ++round) {
    for (size_t i = 0; i < kWays; ++i) {
      const auto way = static_cast<Way>((i + static_cast<size_t>(round)) % kWays);
      all[way].push_back(measure(asked, way, static_cast<uint64_t>(round) + 1));
    }
  }
  const double over = ratio(all[Attacked], all[Beside]);
  int64_t let_in = 0, refused = 0;
  for (const Outcome& each : all[Attacked]) {
    let_in += each.strangers.let_in;
    refused += each.strangers.refused;
  }
  const bool same = same_losses(all);
  const bool kept = over - 1 <= kMostOver && same && let_in == 0 && refused > 0;
  if (asked.json) {
    Json rows = Json::object();
    for (size_t way = 0; way < kWays; ++way) {
      rows[kNames[way]] = {{"step_ms", median_of(all[way], &Outcome::step_ms)},
                           {"workers", median_of(all[way], &Outcome::workers)},
                           {"attack", median_of(all[way], &Outcome::attack)},
                           {"decoy", median_of(all[way], &Outcome::decoy)},
                           {"worker_mib", median_of(all[way], &Outcome::worker_mib)},
                           {"coordinator_mib", median_of(all[way], &Outcome::coordinator_mib)},
                           {"log_lines_a_second", median_of(all[way], &Outcome::lines)}};
    }
    rows["attacked_over_beside"] = over;
    rows["same_losses"] = same;
    rows["let_in"] = let_in;
    rows["kept"] = kept;
    std::printf("%s\n", rows.dump().c_str());
    return kept ? 0 : 1;
  }
  print(asked, all);
  std::printf(
      "a step under attack over one beside a decoy's: %.4f (at most %.2f); the losses are "
      "%s in all runs\n",
      over, 1 + kMostOver, same ? "the same to the last bit" : "DIFFERENT");
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  CLI::App app{"What strangers at the ports of a run cost it", "strangers_bench"};
  tenuto::Asked asked;
  asked.tenuto = tenuto::tenuto_of_this_build();
  app.add_option("--rounds", asked.rounds, "runs of each kind (3)")->check(CLI::Range(1, 1000));
  app.add_option("--steps", asked.steps, "of each run (100)")->check(CLI::Range(20, 100000));
  app.add_option("--op-ms", asked.op_ms, "length of each op (5)")->check(CLI::Range(1.0, 1000.0));
  app.add_option("--a-second", asked.a_second, "connections that say something (1000)")
      ->check(CLI::Range(1, 100000));
  app.add_option("--silent", asked.silent, "connections that say nothing and stay (10000)")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--tenuto", asked.tenuto, "the program that trains");
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  return tenuto::run(asked);
}
