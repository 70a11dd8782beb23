#include "app/simulate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "adapt/report/training_plan.h"
#include "app/commands.h"
#include "app/flags.h"
#include "app/iterations.h"
#include "app/page.h"
#include "app/plan_file.h"
#include "app/simulate_case.h"
#include "app/simulate_days.h"
#include "app/simulate_remedies.h"
#include "app/waiting_line.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "sim/causes.h"
#include "sim/price.h"
#include "sim/timeline.h"
#include "sim/trace.h"
#include "sync/report.h"

namespace tenuto {

namespace {

constexpr double kMostSeed = 9007199254740991;  // of what a flag gives

// From the first iteration's start to the last one's end, in milliseconds: a billion steps may be
// longer than a Duration.
double total_of(const SimulateOptions& options, const SimulationCase& it,
                const Timeline& timeline) {
  __extension__ using Wide = __int128;
  Wide total = 0;
  for (const Stretch& stretch : it.stretches) {
    total += Wide{stretch.end - stretch.first} * stretch.time.count();
  }
  if (it.stretches.empty()) {
    total = timeline.makespan.count() + Wide{options.iterations - 1} * timeline.period.count();
  }
  return static_cast<double>(total) / 1e6;
}

void print_json(const SimulateOptions& options, const SimulationCase& it, const Timeline& timeline,
                Duration planning, std::ostream& out) {
  nlohmann::ordered_json tree = {
      {"makespan_ms", to_milliseconds(timeline.makespan)},
      {"period_ms", to_milliseconds(timeline.period)},
      {"lower_bound_ms", to_milliseconds(timeline.lower_bound)},
      {"bubble_fraction", timeline.bubble_fraction},
      {"peak_micros", timeline.peak_micros},
      {"order", it.plan.order},
      {"plan_ms", to_milliseconds(planning)},
      {"ops", timeline.ops},
      {"reason", it.reason},
      {"dispatch", it.plan.dispatch == Dispatch::Ready ? "ready" : "listed"},
      {"send", it.send},
      {"optimizer", options.optimizer.value_or("barrier")},
      {"split_backward", it.plan.split_backward},
      {"recompute", nlohmann::ordered_json::array()},
      {"update", it.update},
      {"iterations", options.iterations},
      {"total_ms", total_of(options, it, timeline)},
      {"seed", options.seed},
  };
  for (const StageId stage : recomputing(it.plan.stages)) {
    tree["recompute"].push_back(stage.value);
  }
  for (const StageMove& move : it.moves) {
    tree["moves"].push_back(
        {{"worker", move.worker.value}, {"from", move.from.value}, {"to", move.to.value}});
  }
  for (const Stretch& stretch : it.stretches) {
    tree["stretches"].push_back({{"first_step", stretch.first},
                                 {"end_step", stretch.end},
                                 {"step_ms", to_milliseconds(stretch.time)},
                                 {"faults", stretch.faults}});
  }
  if (it.rehearsed) {
    tree["with_remedies"] = {{"total_ms", it.rehearsed->run.total_ms},
                             {"lower_bound_ms", it.rehearsed->bound_ms}};
    for (size_t i = 0; i < it.rehearsed->run.parts.size(); ++i) {
      const RehearsedSteps& part = it.rehearsed->run.parts[i];
      tree["with_remedies"]["parts"].push_back(
          {{"first_step", part.first},
           {"end_step", part.end},
           {"step_ms", to_milliseconds(part.step)},
           {"lower_bound_ms", to_milliseconds(it.rehearsed->bounds[i])},
           {"change_ms", to_milliseconds(part.change)},
           {"remedy", part.remedy},
           {"reason", part.reason}});
    }
  }
  if (!timeline.peak_bytes.empty()) {
    for (const Bytes peak : timeline.peak_bytes) tree["peak_bytes"].push_back(peak.count);
  }
  if (!it.memory.empty()) {
    tree["fits"] = shortage_text(it.memory).empty();
    for (const WorkerMemory& of : it.memory) {
      tree["memory"].push_back({{"worker", of.worker.value},
                                {"needed_bytes", std::llround(of.needed)},
                                {"memory_bytes", std::llround(of.has)}});
    }
  }
  if (!timeline.spans.empty()) {
    tree["critical_path"] = nlohmann::ordered_json::array();
    for (const Share& share : critical_path(timeline.spans).shares) {
      tree["critical_path"].push_back({{"what", share.what}, {"ms", to_milliseconds(share.time)}});
    }
  }
  out << tree.dump() << "\n";
}

// What would help most: the largest parts of the critical path.
void print_path(const Timeline& timeline, std::ostream& out) {
  const std::vector<Share> shares = critical_path(timeline.spans).shares;
  if (shares.empty()) return;
  constexpr size_t kMost = 4;
  out << "critical    ";
  for (size_t i = 0; i < std::min(shares.size(), kMost); ++i) {
    out << cat(i == 0 ? "" : ", ", shares[i].what, " ", to_milliseconds(shares[i].time), " ms");
  }
  out << (shares.size() > kMost ? cat(" and ", shares.size() - kMost, " more\n")
                                : std::string("\n"));
}

void print_remedies(const RehearsedJob& rehearsed, std::ostream& out) {
  const Rehearsed& run = rehearsed.run;
  for (size_t i = 0; i < run.parts.size(); ++i) {
    const RehearsedSteps& part = run.parts[i];
    out << cat(i == 0 ? "remedies    " : "            ", part.first, " to ", part.end - 1, ": ",
               to_milliseconds(part.step), " ms each, ", part.remedy);
    if (part.change > Duration{}) out << cat(", which costs ", to_milliseconds(part.change), " ms");
    out << "\n";
  }
  out << cat("            in all ", fixed(run.total_ms, 1), " ms",
             rehearsed.bound_ms > 0 ? cat(" (", fixed(run.total_ms / rehearsed.bound_ms, 3),
                                          "x of the lower bounds of these steps)")
                                    : std::string(),
             "\n");
}

void print_text(const SimulateOptions& options, const SimulationCase& it, const Timeline& timeline,
                std::ostream& out) {
  const double bound = to_milliseconds(timeline.lower_bound);
  const double period = to_milliseconds(timeline.period);
  const auto peak = std::max_element(timeline.peak_micros.begin(), timeline.peak_micros.end());
  out << cat(it.reason, ": ", it.plan.stages.size(), " stages, ", it.plan.schedule.lists.size(),
             " workers, ", it.plan.schedule.micro_count, " micro-batches, ", timeline.ops,
             " ops\n");
  out << cat("makespan    ", to_milliseconds(timeline.makespan), " ms",
             it.update ? " with reductions and update" : " to the last weight gradient", "\n");
  if (timeline.period != timeline.makespan) {
    out << cat("period      ", period, " ms, one iteration among many\n");
  }
  if (options.iterations > 1) {
    out << cat("in all      ", total_of(options, it, timeline), " ms for ", options.iterations,
               " iterations\n");
  }
  for (const Stretch& stretch : it.stretches) {
    std::string faults;
    for (const std::string& fault : stretch.faults) faults += (faults.empty() ? "" : "; ") + fault;
    out << cat("steps       ", stretch.first, " to ", stretch.end - 1, ": ",
               to_milliseconds(stretch.time), " ms each", faults.empty() ? "" : ", with ", faults,
               "\n");
  }
  if (it.rehearsed) print_remedies(*it.rehearsed, out);
  out << cat("lower bound ", bound, " ms",
             bound > 0 ? cat(" (", fixed(period / bound, 3), "x)") : std::string(),
             it.routed ? " of all routings\n" : "\n");
  out << cat("bubble      ", fixed(100 * timeline.bubble_fraction, 1), " %\n");
  out << cat("held        ", *peak, " micro-batches at most, at worker ",
             peak - timeline.peak_micros.begin(), "\n");
  if (!timeline.peak_bytes.empty()) {
    const auto most = std::max_element(timeline.peak_bytes.begin(), timeline.peak_bytes.end());
    out << cat("memory      ", fixed(static_cast<double>(most->count) / 1048576.0, 1),
               " MiB of activations and messages at most, at worker ",
               most - timeline.peak_bytes.begin(), "\n");
  }
  if (const std::string shortage = shortage_text(it.memory); !shortage.empty()) {
    out << "lacks       the plan does not fit into memory: " << shortage << "\n";
  }
  out << recomputing_text(it.plan.stages);
  print_path(timeline, out);
  if (options.gantt) out << gantt(timeline.spans, it.plan);
}

// If a job has several steps, or injects faults: prices all steps, under its plan and with what the
// run would do about the faults, and applies those of the first step to the cluster.
Status price_iterations(const SimulateOptions& options, SimulationCase& it) {
  if (it.faults.empty() && (options.iterations == 1 || !it.remedies)) return ok();
  auto rehearsed = rehearse_job(it, options.iterations);
  if (!rehearsed.ok()) return rehearsed.error();
  it.rehearsed = std::move(rehearsed).value();
  auto stretches =
      price_steps(it.plan, it.model, it.cluster, {it.faults, it.seats, options.iterations},
                  stretch_options_of(options, it));
  if (!stretches.ok()) return stretches.error();
  it.stretches = std::move(stretches).value();
  it.cluster = with_faults(it.cluster, it.faults, 0, it.seats);
  for (const int64_t step : change_steps(it.faults)) {
    if (step < options.iterations) continue;
    it.reason +=
        cat(", whose faults change at step ", step, " (--iterations prices more of its steps)");
    break;
  }
  return ok();
}

// Returns the exit code.
int write_page_of(const SimulateOptions& options, const SimulationCase& it,
                  const Timeline& timeline, std::ostream& errors) {
  const std::string file = options.file.substr(options.file.rfind('/') + 1);
  PageContent content{cat("Tenuto: ", file, file.empty() ? "" : ", ", it.plan.order),
                      it.reason,
                      it.plan,
                      timeline,
                      {},
                      ""};
  if (!options.measured.empty()) {
    auto measured = read_measured(options.measured, it.plan);
    if (!measured.ok()) {
      errors << "tenuto simulate: " << told(measured.error().message) << "\n";
      return exit_code_of_command(measured.error());
    }
    content.measured = std::move(measured.value().spans);
    content.measured_source = measured.value().path;
  }
  const Status written = write_page_file(options.page, content);
  if (written.ok()) return 0;
  errors << "tenuto simulate: " << told(written.error().message) << "\n";
  return 1;
}

// --sync MODE: another question, with flags of its own. Returns the exit code.
int run_sync(const SimulateOptions& options, std::ostream& out, std::ostream& errors) {
  SyncQuestion question = options.sync;
  question.seconds = options.seconds.value_or(question.seconds);
  question.seed = static_cast<uint64_t>(options.seed);
  const auto report = answer(question);
  if (!report.ok()) {
    errors << "tenuto simulate: " << told(report.error().message) << "\n";
    return exit_code_of_command(report.error());
  }
  out << (options.json ? to_json(report.value()).dump() + "\n" : to_text(report.value()));
  return 0;
}

// What a sync mode is priced from. Called last: it excludes the flags that describe a plan.
void add_sync_flags(CLI::App& command, SyncQuestion& question) {
  std::vector<CLI::Option*> others;
  for (const char* shared : {"--help", "--json", "--seconds", "--seed"}) {
    others.push_back(command.get_option(shared));
  }
  CLI::Option* sync = path_flag(  // it is never empty, either
      command, "--sync", question.mode,
      "price a sync mode instead of a plan: synchronous, asynchronous, x:K, grace:K, groups,\n"
      "ring:K, backup:K, rebalanced, bounded:S, or auto (docs/sync-modes.md)");
  for (CLI::Option* plan : command.get_options()) {
    const bool both = plan == sync || std::count(others.begin(), others.end(), plan) > 0;
    if (!both) sync->excludes(plan);
  }
  for (CLI::Option* with_sync :
       {number_flag(command, "--replicas", question.replicas, whole_numbers(1, kMostReplicas),
                    "replicas of the model (8)"),
        numbers_flag(command, "--iteration-ms", question.iteration_ms, NumberRange{1e-3, 1e6},
                     "compute time of an iteration, one or one per replica (100)"),
        number_flag(command, "--apply-ms", question.apply_ms, NumberRange{0, 1e5},
                    "time of applying one update (0)"),
        number_flag(command, "--jitter-percent", question.jitter_percent, NumberRange{0, 1000},
                    "deviation of an iteration's time (0)"),
        number_flag(command, "--kappa", question.kappa, NumberRange{0, 100},
                    "what a gradient's age costs (0.3; give 0.6 for momentum, 2 for AdamW)"),
        number_flag(command, "--target-gradients", question.target_gradients, NumberRange{1, 1e15},
                    "gradients of age 0 that reach the accuracy (1000)"),
        number_flag(command, "--gradient-mb", question.gradient_mb, NumberRange{1e-6, 1e6},
                    "size of a gradient: prices trees that sum gradients on their way to a shard"),
        numbers_flag(command, "--port-mb-per-second", question.port_mb_per_second,
                     NumberRange{1e-3, 1e6}, "rate of a replica's port, one or one each (1000)"),
        number_flag(command, "--shard-mb-per-second", question.shard_mb_per_second,
                    NumberRange{1e-3, 1e6}, "rate of the shard's port (as the first replica's)")}) {
    with_sync->needs(sync);
  }
}

// What a model and its devices are made from, apart from a job.
void add_model_flags(CLI::App& command, SimulateOptions& options) {
  const NumberRange milliseconds{0, 1e9};
  numbers_flag(command, "--forward-ms", options.forward_ms, milliseconds,
               "time of a forward: one number, or one per stage (10)");
  numbers_flag(command, "--backward-input-ms", options.backward_input_ms, milliseconds,
               "time of an input gradient (10)");
  numbers_flag(command, "--backward-weight-ms", options.backward_weight_ms, milliseconds,
               "time of a weight gradient (10)");
  list_flag(command, "--times", options.times,
            "traces with the op times, of Tenuto or PyTorch: one, or one per worker");
  path_flag(command, "--chain", options.chain,
            "with a plan's file: the layers that it was made for, as tenuto plan reads them");
  number_flag(command, "--micro-rows", options.micro_rows, whole_numbers(1, 1'000'000),
              "with a model file as --chain: rows of a micro-batch (the most measured)");
  path_flag(command, "--cluster", options.cluster,
            "with a plan's file: the devices, as tenuto plan reads them");
}

}  // namespace

int run_simulate(const SimulateOptions& options, std::ostream& out, std::ostream& errors) {
  if (options.days.days != 0) return run_days(options, out, errors);
  if (!options.sync.mode.empty()) return run_sync(options, out, errors);
  const Duration before = monotonic_clock().now();
  Watch watch;
  std::optional<WaitingLine> waiting;
  waiting.emplace(&errors == &std::cerr ? stderr : nullptr, watch, options.seconds);
  auto found = case_of(options, watch);
  const Duration planning = monotonic_clock().now() - before;
  watch.begin("pricing the plan");
  const Status faulty =
      found.ok() ? price_iterations(options, found.value()) : Status(found.error());
  const auto timeline =
      faulty.ok() ? priced(options, found.value()) : Result<Timeline>(faulty.error());
  waiting.reset();  // what follows has the terminal to itself
  if (!timeline.ok()) {
    errors << "tenuto simulate: " << told(timeline.error().message) << "\n";
    return exit_code_of_command(timeline.error());
  }
  if (found.value().kept) {
    const LayoutProblem problem(found.value().model, found.value().cluster, *found.value().kept);
    found.value().memory =
        memory_of_workers(problem, found.value().plan, found.value().cluster, timeline.value());
  }
  const SimulationCase& it = found.value();
  if (!options.trace.empty()) {
    std::ostringstream text;
    write_trace(text, timeline.value().spans, it.plan);
    if (const Status written = write_file(options.trace, text.str()); !written.ok()) {
      errors << "tenuto simulate: " << told(written.error().message) << "\n";
      return 1;
    }
  }
  if (!options.page.empty()) {
    const int code = write_page_of(options, it, timeline.value(), errors);
    if (code != 0) return code;
  }
  if (options.json) {
    print_json(options, it, timeline.value(), planning, out);
  } else {
    print_text(options, it, timeline.value(), out);
  }
  return 0;
}

void add_simulate_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Predicts how long a step of a plan takes");
  command->footer(
      "Example: tenuto simulate --stages 4 --micros 12 --order zb-h1 --slow-link 0:20 --gantt");
  path_flag(*command, "file", options->file,
            "JOB.toml, or a schedule's file; without a file the flags describe the job");
  const auto whole = whole_numbers(1);
  const NumberRange milliseconds{0, 1e9};
  number_flag(*command, "--stages", options->stages, whole, "stages of a pipeline (4)");
  number_flag(*command, "--pipelines", options->pipelines, whole, "pipelines side by side (1)");
  number_flag(*command, "--micros", options->micros, whole, "micro-batches of a pipeline (8)");
  command->add_option("--order", options->order, "a name from tenuto schedule list (1f1b)");
  add_model_flags(*command, *options);
  number_flag(*command, "--link-ms", options->link_ms, milliseconds,
              "one-way latency of every link (0)");
  list_flag(*command, "--slow-link", options->slow_links,
            "I:X adds X ms of latency between stages I and I+1");
  list_flag(*command, "--slow-worker", options->slow_workers,
            "P.S:FACTOR, the worker's speed; 0.5 = half speed");
  list_flag(*command, "--lost", options->lost,
            "P.S, dead workers; other holders run their micro-batches");
  number_flag(*command, "--memory", options->memory, whole,
              "micro-batches a worker may hold (unlimited)");
  number_flag(*command, "--weight-memory", options->weight_memory, {0, 1},
              "share of a micro-batch held until its weight gradient (1)");
  command->add_option("--dispatch", options->dispatch, "listed or ready (listed)");
  command->add_option("--split-backward", options->split_backward,
                      "yes or no (default: the order's)");
  command->add_option("--recompute", options->recompute,
                      "yes: every stage runs its forward again before its backward, and keeps\n"
                      "only its input until then (no)");
  command->add_option("--send", options->send,
                      "offloaded or blocking, through the device's queue (offloaded)");
  command->add_option(
      "--optimizer", options->optimizer,
      "barrier: each step starts with an empty pipeline; in-turn: each worker starts the next\n"
      "step when its own is done, as in a run; staggered: the same without waiting for the norm\n"
      "(barrier; for the --iterations of a job in-turn)");
  command->add_option("--all-reduce", options->all_reduce,
                      "how gradients are summed: ring, halving, tree, direct, late-one, or auto:\n"
                      "the fastest of ring, halving and late-one (ring, or as the job says)");
  number_flag(*command, "--chunks", options->chunks, whole,
              "stages of a worker, for orders that have several (2)");
  command->add_option(
      "--duplex", options->duplex,
      "full, or half: both directions of a link share its rate (as the cluster file\n"
      "says, else full)");
  number_flag(*command, "--per-op-ms", options->per_op_ms, milliseconds,
              "constant cost of every compute op (0)");
  command->add_option("--update", options->update,
                      "yes or no: price reductions, norm and update too (yes for a job, else no)");
  number_flag(*command, "--iterations", options->iterations, whole_numbers(1, 1e9), "steps (1)");
  number_flag(*command, "--seconds", options->seconds, NumberRange{1e-6, 1e6},
              "time limit of searches; making and pricing a plan takes its own time. With --sync:\n"
              "the simulated time (100)");
  number_flag(*command, "--seed", options->seed, whole_numbers(0, kMostSeed),
              "seed of the jitter with --sync, and of the troubles with --days");
  path_flag(*command, "--trace", options->trace, "write a Chrome trace to this file");
  path_flag(*command, "--page", options->page, "write an HTML page to this file");
  path_flag(*command, "--measured", options->measured,
            "a run's folder or trace, shown on the page beside the prediction");
  command->add_flag("--json", options->json, "one JSON object on stdout");
  command->add_flag("--gantt", options->gantt, "draw the compute lanes");
  add_sync_flags(*command, options->sync);
  add_days_flags(*command, options->days);
  command->callback([options, chosen = std::move(chosen)] {
    chosen([options] { return run_simulate(*options); });
  });
}

}  // namespace tenuto
