#include "app/plan_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include "adapt/layout/baseline.h"
#include "adapt/layout/frugal.h"
#include "adapt/layout/layout_bound.h"
#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"
#include "adapt/report/fit_advice.h"
#include "adapt/report/plan_page.h"
#include "adapt/report/plan_report.h"
#include "adapt/report/torch_plan.h"
#include "adapt/report/training_plan.h"
#include "app/commands.h"
#include "app/flags.h"
#include "app/output_files.h"
#include "app/waiting_line.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "ir/text.h"
#include "world/cluster_file.h"
#include "world/layer_chain.h"
#include "world/model_profile.h"

namespace tenuto {

namespace {

constexpr int32_t kMostMicros = 1'000'000, kMostRows = 1'000'000;
// Of a step: its ops are simulated, and held in memory as a list.
constexpr int64_t kMostOps = 100'000'000;

// The cluster of the options.
Result<Cluster> cluster_of_options(const PlanOptions& options) {
  const std::string duplex = options.duplex.value_or("");
  if (options.duplex && duplex != "full" && duplex != "half") {
    return invalid(cat("--duplex ", excerpt(duplex),
                       ": expected full, or half where both directions of a link share its rate"));
  }
  auto cluster = load_cluster(options.cluster);
  if (cluster.ok() && options.duplex) cluster.value().half_duplex = duplex == "half";
  return cluster;
}

// What a planner finds.
Result<LayoutSearch> planned(const LayoutProblem& problem, Planner planner, Watch& watch) {
  if (planner == Planner::Tenuto) return search_layout(problem, {}, &watch);
  watch.begin("making the layout");
  auto layout = baseline_layout(problem, planner);
  if (!layout.ok()) return layout.error();
  LayoutSearch search;
  search.best = std::move(layout).value();
  watch.begin("finding the lower bound");
  search.lower_bound = least_step(problem);
  search.priced = 1;
  return search;
}

// Refuses a step with too many ops.
Status check_ops(const LayerChain& chain, const Cluster& cluster, int32_t micros) {
  const auto stages = static_cast<int64_t>(std::min(chain.names.size(), cluster.workers.size()));
  if (2 * stages * micros <= kMostOps) return ok();
  return invalid(cat("--micros ", micros, ": with up to ", stages, " stages a step has ",
                     2 * stages * micros, " ops, expected ", kMostOps,
                     " at most; give fewer micro-batches"));
}

// What to plan; the number of micro-batches is given separately.
struct Task {
  PlannerCard planner;
  std::shared_ptr<const Cluster> cluster;
  bool trains = false;  // a plan that trains is wanted
  bool torch = false;   // and one that PyTorch runs
};

// Adds to the error of a search what would make the model fit.
Error with_advice(Error error, const UnfitModel& model, Planner planner) {
  if (error.code != Code::Infeasible) return error;
  MemoryCase now;
  now.recompute = true;
  if (planner != Planner::Tenuto && FrugalLayouts(model.problem).fits(now)) {
    error.message += "; planner tenuto finds a layout that fits";
  } else {
    error.message += fit_advice(model);
  }
  return error;
}

Result<PlanReport> report_at(const Task& task, LayerChain chain, int32_t micros, Watch& watch) {
  if (const Status status = check_ops(chain, *task.cluster, micros); !status.ok()) {
    return status.error();
  }
  LayoutSettings settings;
  settings.micros = micros;
  settings.optimizer = chain.optimizer;
  watch.begin("preparing the search");
  const LayoutProblem problem(chain.model, *task.cluster, settings);
  auto search = planned(problem, task.planner.planner, watch);
  if (!search.ok()) {
    const UnfitModel unfit{problem, chain.names, chain.rows, false};
    return with_advice(search.error(), unfit, task.planner.planner);
  }
  PlanReport report{task.planner, std::move(chain), problem, std::move(search).value()};
  report.cluster = task.cluster;
  if (task.trains) {
    InTurnSettings training;
    training.layout = settings;
    auto plan = training_plan(report.chain, *task.cluster, training, report.search, watch);
    const UnfitModel whole{report.problem, report.chain.names, report.chain.rows, true};
    if (!plan.ok()) return with_advice(plan.error(), whole, Planner::Tenuto);
    report.training = std::move(plan).value();
    if (task.torch) {
      training.pipelines = true;
      auto pipelines = training_plan(report.chain, *task.cluster, training, report.search, watch);
      if (!pipelines.ok()) return with_advice(pipelines.error(), whole, Planner::Tenuto);
      report.torch = std::move(pipelines).value();
    }
  }
  return report;
}

// A lower bound for the step of every plan that trains with these micro-batches, in milliseconds.
double least_step_ms(const LayerChain& chain, const Cluster& cluster, int32_t micros) {
  double work = 0, speeds = 0;
  for (const Layer& layer : chain.model.layers) {
    work += to_milliseconds(layer.forward + layer.backward_input + layer.backward_weight);
  }
  for (const Worker& worker : cluster.workers) speeds += worker.speed;
  return micros * work / speeds;
}

// Tries several ways to cut a step's rows and returns the one whose plan for training is fastest.
Result<PlanReport> best_cut(const Task& task, const ModelProfile& profile,
                            const std::vector<RowCut>& cuts, const std::string& source,
                            Watch& watch) {
  std::optional<PlanReport> best;
  std::optional<Error> refused;
  std::vector<RowAlternative> all;
  for (const RowCut& cut : cuts) {
    RowAlternative& it = all.emplace_back(RowAlternative{cut, {}, {}, {}});
    if (best && watch.is_over()) {
      it.why_not = "the time was over";
      continue;
    }
    auto chain = chain_at(profile, cut.micro_rows, source);
    if (!chain.ok()) return chain.error();
    const double least = least_step_ms(chain.value(), *task.cluster, cut.micros);
    if (best && least >= to_milliseconds(best->training->step)) {
      it.why_not = cat("at least ", fixed(least, 3), " ms in turn");
      continue;
    }
    auto report = report_at(task, std::move(chain).value(), cut.micros, watch);
    if (!report.ok()) {
      if (report.error().code != Code::Infeasible) return report.error();
      it.why_not = "does not fit into the memory";
      if (!refused) refused = report.error();
      continue;
    }
    it.in_turn_ms = to_milliseconds(report.value().training->step);
    it.rows_split_ms = report.value().search.best.schedule.makespan / 1e6;
    if (best && report.value().training->step >= best->training->step) continue;
    best.emplace(std::move(report).value());
    best->micro_rows = cut.micro_rows;
  }
  if (!best) {
    const int32_t rows = cuts.front().micro_rows;
    refused->message =
        cat("with micro-batches of ", rows, rows == 1 ? " row" : " rows", " (the smallest of the ",
            cuts.size(), " sizes that were tried), ", refused->message);
    return *refused;
  }
  best->cuts = std::move(all);
  return std::move(*best);
}

Result<PlanReport> report_of_model(const PlanOptions& options, Task task, Watch& watch) {
  const auto text = read_file(options.model);
  if (!text.ok()) return text.error();
  const auto profile = model_profile_from_json(text.value(), options.model);
  if (!profile.ok()) return profile.error();
  const auto cuts = cuts_of(profile.value(), options.cut);
  if (!cuts.ok()) return cuts.error();
  if (cuts.value().size() > 1) {
    task.trains = true;
    return best_cut(task, profile.value(), cuts.value(), options.model, watch);
  }
  const RowCut cut = cuts.value().front();
  auto chain = chain_at(profile.value(), cut.micro_rows, options.model);
  if (!chain.ok()) return chain.error();
  auto report = report_at(task, std::move(chain).value(), cut.micros, watch);
  if (report.ok()) report.value().micro_rows = cut.micro_rows;
  return report;
}

Result<PlanReport> report_of_chain(const PlanOptions& options, const Task& task, Watch& watch) {
  auto chain = load_chain(options.chain);
  if (!chain.ok()) return chain.error();
  return report_at(task, std::move(chain).value(), options.cut.micros.value_or(kDefaultMicros),
                   watch);
}

Status check_files(const PlanOptions& options) {
  if (options.chain.empty() == options.model.empty()) {
    return invalid("expected either --chain FILE or --model FILE");
  }
  if (!options.to.empty() && (options.to.size() != 2 || options.to[0] != "torch")) {
    return invalid(cat("--to ", options.to[0], ": expected torch and a folder"));
  }
  if (!options.chain.empty() && (options.cut.rows || options.cut.micro_rows)) {
    return invalid(
        cat(options.cut.rows ? "--rows" : "--micro-rows",
            " belongs to a model file, which has times for several numbers of rows: give "
            "--model FILE in place of --chain"));
  }
  const std::string folder = options.to.empty() ? std::string() : options.to[1];
  const auto inside = [&](const char* name) {
    return folder.empty() ? folder : (std::filesystem::path(folder) / name).string();
  };
  return check_names(
      {{"--chain", options.chain}, {"--model", options.model}, {"--cluster", options.cluster}},
      {{"--plan", options.plan},
       {"--html", options.html},
       {"--out", options.out},
       {"--to torch", inside(kTorchSchedule)},
       {"--to torch", inside(kTorchSettings)}});
}

// Writes what the flags ask for.
Status write_files(const PlanOptions& options, const PlanReport& report, OutputFiles& files) {
  if (report.torch) {
    const auto made = torch_plan(*report.torch, report.chain, report.micro_rows);
    if (!made.ok()) return made.error();
    const std::filesystem::path folder = options.to[1];
    if (const Status there = files.make_folder(folder.string()); !there.ok()) return there;
    for (const auto& [name, text] : {std::pair(kTorchSchedule, &made.value().csv),
                                     std::pair(kTorchSettings, &made.value().settings)}) {
      const Status written = files.write((folder / name).string(), *text);
      if (!written.ok()) return written;
    }
  }
  if (!options.plan.empty()) {
    const Status written = files.write(options.plan, to_json(report.training->plan) + "\n");
    if (!written.ok()) return written;
  }
  if (!options.html.empty()) {
    std::ostringstream page;
    write_plan_page(page, report);
    const Status written = files.write(options.html, page.str());
    if (!written.ok()) return written;
  }
  if (!options.out.empty()) {
    const Status written = files.write(options.out, plan_json(report));
    if (!written.ok()) return written;
  }
  return files.finish();
}

// Says what went wrong, and returns the exit code: 1 for files that cannot be written.
int told_error(const Error& error, std::ostream& errors) {
  errors << "tenuto plan: " << told(error.message) << "\n";
  const bool unwritten = error.reach == Reach::Job && error.code != Code::Infeasible;
  return unwritten ? 1 : exit_code_of_command(error);
}

Result<PlanReport> report_of(const PlanOptions& options, Watch& watch) {
  const Duration before = monotonic_clock().now();
  const auto card = find_planner(options.planner);
  if (!card.ok()) return card.error();
  watch.begin("reading the files");
  auto cluster = cluster_of_options(options);
  if (!cluster.ok()) return cluster.error();
  Task task{card.value(), std::make_shared<Cluster>(std::move(cluster).value()),
            !options.plan.empty() || !options.to.empty(), !options.to.empty()};
  auto report = options.model.empty() ? report_of_chain(options, task, watch)
                                      : report_of_model(options, std::move(task), watch);
  if (!report.ok()) return report;
  if (report.value().training) report.value().training_file = options.plan;
  if (report.value().torch) report.value().torch_folder = options.to[1];
  report.value().planning = monotonic_clock().now() - before;
  report.value().ended = watch.was_heeded();
  return report;
}

// The words of `text` in lines that begin at column `margin`; the first line stands there already.
std::string wrapped(const std::string& text, size_t margin) {
  constexpr size_t kWidth = 90;
  std::string out;
  size_t column = margin;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (column > margin && column + 1 + end - begin > kWidth) {
      out += "\n" + std::string(margin, ' ');
      column = margin;
    }
    if (column > margin) out += ' ';
    out += text.substr(begin, end - begin);
    column += 1 + end - begin;
    begin = end + 1;
  }
  return out;
}

// The planners with their summaries, for --help.
std::string planners_text() {
  constexpr size_t kMargin = 17;
  std::string text = "Planners:\n";
  for (const PlannerCard& card : planner_cards()) {
    std::string name = "  " + card.name;
    name.resize(std::max(name.size() + 1, kMargin), ' ');
    text += cat(name, wrapped(card.summary, kMargin), "\n");
  }
  return text;
}

}  // namespace

int run_plan(const PlanOptions& options, std::ostream& out, std::ostream& errors) {
  Watch watch;
  std::optional<WaitingLine> waiting;
  waiting.emplace(&errors == &std::cerr ? stderr : nullptr, watch, options.seconds);
  OutputFiles files;
  Status ready = check_files(options);
  for (const std::string& path : {options.plan, options.html, options.out}) {
    if (ready.ok()) ready = files.open(path);
  }
  const Result<PlanReport> report = ready.ok() ? report_of(options, watch) : ready.error();
  waiting.reset();  // what follows has the terminal to itself
  if (!report.ok()) return told_error(report.error(), errors);
  if (const Status written = write_files(options, report.value(), files); !written.ok()) {
    return told_error(written.error(), errors);
  }
  out << (options.json ? plan_json(report.value()) : plan_text(report.value()));
  return 0;
}

void add_plan_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Finds the layers and devices of each stage of a pipeline");
  command->footer(planners_text() +
                  "Example: tenuto plan --chain examples/planner/gpt.chain --cluster "
                  "examples/planner/two-nodes.json --micros 16\n"
                  "docs/planning.md describes the files, the planners and the output.");
  path_flag(*command, "--chain", options->chain,
            "layers, one per line: forward_ms backward_ms activation_bytes parameter_bytes name;\n"
            "or a profiled graph of operators");
  path_flag(*command, "--model", options->model,
            "in place of --chain: a model file with times for several numbers of rows");
  path_flag(*command, "--cluster", options->cluster,
            "devices and their rates: {\"devices\": N, \"bandwidth_gbps\": ...} as JSON")
      ->required();
  number_flag(*command, "--micros", options->cut.micros, whole_numbers(1, kMostMicros),
              "micro-batches of a step (8)");
  number_flag(*command, "--rows", options->cut.rows, whole_numbers(1, kMostRows),
              "with --model: rows of a step; their division into micro-batches is chosen by the\n"
              "step of the plan that trains");
  number_flag(*command, "--micro-rows", options->cut.micro_rows, whole_numbers(1, kMostRows),
              "with --model: rows of a micro-batch (with --rows: chosen; else the most measured)");
  command->add_option("--planner", options->planner,
                      "tenuto, or a simpler or published rule to compare with (tenuto)");
  number_flag(*command, "--seconds", options->seconds, NumberRange{1e-6, 1e6},
              "time limit of the search; the best layout until then is printed");
  command->add_option(
      "--duplex", options->duplex,
      "full, or half: both directions of a link share its rate (as the cluster file\n"
      "says, else full)");
  command->add_flag("--json", options->json, "one JSON object on stdout");
  path_flag(*command, "--out", options->out, "write the JSON object to this file, too");
  path_flag(
      *command, "--html,--page", options->html,
      "write an HTML page to this file: which devices run which stages, and the links between "
      "them");
  path_flag(*command, "--plan", options->plan,
            "write a plan with whole micro-batches in turn, which parallel.plan trains and\n"
            "tenuto simulate prices");
  command
      ->add_option(
          "--to", options->to,
          "torch DIR: write split points and PyTorch's schedule CSV of the best plan that\n"
          "PyTorch can run into this folder")
      ->expected(2)
      ->type_name("FORM DIR");
  command->callback(
      [options, chosen = std::move(chosen)] { chosen([options] { return run_plan(*options); }); });
}

}  // namespace tenuto
