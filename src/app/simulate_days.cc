#include "app/simulate_days.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "app/flags.h"
#include "app/output_files.h"
#include "app/simulate.h"
#include "base/file.h"
#include "base/longest_time.h"
#include "base/sentence.h"
#include "base/text.h"
#include "outlook/process.h"
#include "outlook/report.h"
#include "outlook/trouble_file.h"

namespace tenuto {

namespace {

constexpr double kMostDays = 3650;
constexpr double kOpMilliseconds = 10;
// Stages times micro-batches of all pipelines: a run that has one pipeline left prices so many.
constexpr int64_t kMostCells = 30'000'000;
// Troubles that are drawn, on average.
constexpr int64_t kMostTroubles = 10'000'000;

Duration from_seconds(double seconds) { return from_nanoseconds(seconds * 1e9); }

// The one number of a flag that may have several.
Result<Duration> op_time_of(const char* flag, const std::vector<double>& given) {
  if (given.size() > 1) {
    return invalid(cat(flag, " has ", given.size(), " numbers: expected one with --days"));
  }
  return from_milliseconds(given.empty() ? kOpMilliseconds : given.front());
}

Result<outlook::StepSetup> step_of(const SimulateOptions& options) {
  outlook::StepSetup step;
  step.micros = options.micros.value_or(8);
  const auto forward = op_time_of("--forward-ms", options.forward_ms);
  if (!forward.ok()) return forward.error();
  const auto input = op_time_of("--backward-input-ms", options.backward_input_ms);
  if (!input.ok()) return input.error();
  const auto weight = op_time_of("--backward-weight-ms", options.backward_weight_ms);
  if (!weight.ok()) return weight.error();
  step.forward = forward.value();
  step.backward_input = input.value();
  step.backward_weight = weight.value();
  step.link = from_milliseconds(options.link_ms.value_or(0));
  step.cross = from_milliseconds(options.days.cross_ms);
  step.spare = options.days.spare_micros;
  step.layers = options.days.layers;
  if (step.forward + step.backward_input + step.backward_weight == Duration{}) {
    return invalid("a step takes no time: give one of its ops a time, as with --forward-ms");
  }
  return step;
}

// Refuses what takes too much memory or more time than is counted.
Status check_size(const outlook::Question& question) {
  const int64_t micros = int64_t{question.step.micros} * question.shape.pipelines;
  // In this order, so that no product overflows.
  if (question.shape.workers() > kMostCells || micros > kMostCells / question.shape.stages) {
    return invalid(cat("stages x pipelines x micro-batches: expected at most ", kMostCells,
                       ", found ", question.shape.stages, " x ", question.shape.pipelines, " x ",
                       question.step.micros, "; give fewer micro-batches"));
  }
  // No way through a step has more ops than this, nor more messages.
  const auto ops = static_cast<double>(3 * (micros + question.shape.stages));
  const Duration longest =
      std::max({question.step.forward, question.step.backward_input, question.step.backward_weight,
                question.step.link, question.step.cross});
  const double most = 2 * ops * static_cast<double>(longest.count()) * outlook::kMostFactor;
  if (most > static_cast<double>(kLongestTime.count())) {
    return invalid(cat("a step may last longer than 73 years when ops and messages are ",
                       outlook::kMostFactor,
                       " times slower: give shorter times or fewer micro-batches"));
  }
  return ok();
}

outlook::Processes processes_of(const DaysQuestion& asked) {
  outlook::Processes processes;
  processes.deaths.hours_between = asked.mtbf_hours;
  processes.deaths.hours.mean = asked.repair_hours;
  processes.slow_workers.hours_between = asked.straggler_hours;
  processes.slow_workers.hours.mean = asked.straggler_minutes / 60;
  processes.slow_workers.excess.mean = asked.straggler_factor - 1;
  processes.slow_links.hours_between = asked.slow_link_hours;
  processes.slow_links.hours.mean = asked.slow_link_minutes / 60;
  processes.slow_links.excess.mean = asked.slow_link_factor - 1;
  return processes;
}

// Refuses rates that would draw more troubles than fit into memory.
Status check_rates(const DaysQuestion& asked, const outlook::ClusterShape& shape) {
  double each = 0;  // of a worker in an hour
  for (const double hours : {asked.mtbf_hours, asked.straggler_hours, asked.slow_link_hours}) {
    if (hours > 0) each += 1 / hours;
  }
  const double all = each * static_cast<double>(shape.workers()) * asked.days * 24;
  if (all <= static_cast<double>(kMostTroubles)) return ok();
  return invalid(cat("expected at most ", kMostTroubles, " troubles on average, found ", all,
                     ": give more hours between them or fewer days"));
}

Result<outlook::Question> question_of(const SimulateOptions& options) {
  const DaysQuestion& asked = options.days;
  if (!(asked.days > 0 && asked.days <= kMostDays)) {
    return invalid(cat("--days ", asked.days, ": expected more than 0 and up to ", kMostDays));
  }
  outlook::Question question;
  question.shape = {options.stages.value_or(4), options.pipelines.value_or(1)};
  const auto step = step_of(options);
  if (!step.ok()) return step.error();
  question.step = step.value();
  if (const Status fits = check_size(question); !fits.ok()) return fits.error();
  question.week.length = from_seconds(asked.days * 86400);
  question.week.pauses = {from_seconds(asked.death_seconds), from_seconds(asked.join_seconds),
                          from_seconds(asked.layers_seconds), from_seconds(asked.restart_seconds)};
  question.week.checkpoint_steps = asked.checkpoint_steps;
  using outlook::Stepping;
  question.stepping = asked.step_by_step ? Stepping::EachStep : Stepping::Changes;
  if (asked.failures.empty()) {
    const Status rates = check_rates(asked, question.shape);
    if (!rates.ok()) return rates.error();
    question.troubles = draw_troubles(question.shape, processes_of(asked), question.week.length,
                                      static_cast<uint64_t>(options.seed));
    return question;
  }
  const auto text = read_file(asked.failures);
  if (!text.ok()) return text.error();
  auto troubles = outlook::read_troubles(text.value(), asked.failures, question.shape);
  if (!troubles.ok()) return troubles.error();
  question.troubles = std::move(troubles).value();
  return question;
}

}  // namespace

int run_days(const SimulateOptions& options, std::ostream& out, std::ostream& errors) {
  const auto fail = [&](const Error& error, int code) {
    errors << "tenuto simulate: " << told(error.message) << "\n";
    return code;
  };
  const DaysQuestion& asked = options.days;
  const Status names =
      check_names({{"--failures", asked.failures}}, {{"--picture", asked.picture}});
  if (!names.ok()) return fail(names.error(), exit_code_of_command(names.error()));
  const auto question = question_of(options);
  if (!question.ok()) return fail(question.error(), exit_code_of_command(question.error()));
  OutputFiles files;
  if (const Status opened = files.open(asked.picture); !opened.ok()) {
    return fail(opened.error(), 1);
  }
  const outlook::Report report = outlook::report_of(question.value());
  if (!asked.picture.empty()) {
    Status written = files.write(asked.picture, outlook::picture_of(report));
    if (written.ok()) written = files.finish();
    if (!written.ok()) return fail(written.error(), 1);
  }
  out << (options.json ? outlook::to_json(report).dump() + "\n" : outlook::to_text(report));
  return 0;
}

void add_days_flags(CLI::App& command, DaysQuestion& question) {
  const std::vector<CLI::Option*> before = command.get_options();
  CLI::Option* days = number_flag(
      command, "--days", question.days, {1e-6, kMostDays},
      "price days of training with deaths, slow workers and slow links instead of a step, and\n"
      "what each remedy is worth (docs/weeks.md)");
  constexpr std::array<const char*, 10> kShared = {"--help",
                                                   "--json",
                                                   "--seed",
                                                   "--stages",
                                                   "--pipelines",
                                                   "--micros",
                                                   "--forward-ms",
                                                   "--backward-input-ms",
                                                   "--backward-weight-ms",
                                                   "--link-ms"};
  for (CLI::Option* option : before) {
    const bool shared = std::any_of(kShared.begin(), kShared.end(), [&](const char* name) {
      return command.get_option(name) == option;
    });
    // An option that needs --sync is refused by that.
    if (!shared) days->excludes(option);
  }
  const NumberRange hours{0, 1e9}, factor{1.05, 1000}, seconds{0, 1e6};
  const NumberRange milliseconds{0, 1e9};
  std::vector<CLI::Option*> own = {
      number_flag(command, "--mtbf-hours", question.mtbf_hours, hours,
                  "mean hours between deaths of one worker; 0 = never (50000)"),
      number_flag(command, "--repair-hours", question.repair_hours, hours,
                  "mean hours until a dead worker is repaired; 0 = it stays dead (4)"),
      number_flag(command, "--straggler-hours", question.straggler_hours, hours,
                  "mean hours from one slow time of a worker to the next; 0 = never (200000)"),
      number_flag(command, "--straggler-minutes", question.straggler_minutes, hours,
                  "mean length of a slow time; 0 = for ever (10)"),
      number_flag(command, "--straggler-factor", question.straggler_factor, factor,
                  "how many times longer a slow worker's ops take, on average (1.5)"),
      number_flag(command, "--slow-link-hours", question.slow_link_hours, hours,
                  "mean hours from one slow time of a link to the next; 0 = never (300000)"),
      number_flag(command, "--slow-link-minutes", question.slow_link_minutes, hours,
                  "mean length of a slow time; 0 = for ever (24)"),
      number_flag(command, "--slow-link-factor", question.slow_link_factor, factor,
                  "how many times longer a slow link's messages take, on average (5)"),
      path_flag(command, "--failures", question.failures,
                "troubles from a CSV file: time_s,kind,target,factor,duration_s"),
      number_flag(command, "--cross-ms", question.cross_ms, milliseconds,
                  "one-way latency between pipelines, at least that of --link-ms (0)"),
      number_flag(command, "--spare-micros", question.spare_micros, whole_numbers(0, 1e6),
                  "micro-batches that a worker can hold beyond those of 1F1B (0)"),
      number_flag(command, "--layers", question.layers, whole_numbers(1, 1000),
                  "layers of a stage (4)"),
      number_flag(command, "--death-seconds", question.death_seconds, seconds,
                  "pause at a death that others make up for (5)"),
      number_flag(command, "--join-seconds", question.join_seconds, seconds,
                  "pause when a repaired worker comes back (1)"),
      number_flag(command, "--layers-seconds", question.layers_seconds, seconds,
                  "pause while layers move (10)"),
      number_flag(command, "--restart-seconds", question.restart_seconds, seconds,
                  "pause of a restart from a checkpoint (600)"),
      number_flag(command, "--checkpoint-steps", question.checkpoint_steps, whole_numbers(1, 1e9),
                  "steps from one checkpoint to the next (100)"),
      command.add_flag("--step-by-step", question.step_by_step,
                       "simulate every step, to check the result: it is the same"),
      path_flag(command, "--picture", question.picture,
                "write the goodput over time as SVG to this file")};
  for (CLI::Option* option : own) option->needs(days);
}

}  // namespace tenuto
