#include "app/plan_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "adapt/layout/baseline.h"
#include "adapt/layout/layout_bound.h"
#include "adapt/layout/problem.h"
#include "adapt/layout/search.h"
#include "app/commands.h"
#include "app/flags.h"
#include "app/plan_report.h"
#include "app/plan_training.h"
#include "app/waiting_line.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "ir/text.h"
#include "world/cluster_file.h"
#include "world/layer_chain.h"

namespace tenuto {

namespace {

constexpr int32_t kMostMicros = 1'000'000;
// Of a step: its ops are simulated, and held in memory as a list.
constexpr int64_t kMostOps = 100'000'000;

Result<bool> half_duplex_of(const PlanOptions& options) {
  if (options.duplex == "full" || options.duplex == "half") return options.duplex == "half";
  return invalid(cat("--duplex ", shown(options.duplex),
                     ": expected full, or half where both directions of a link share its rate"));
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

Result<PlanReport> report_of(const PlanOptions& options, Watch& watch) {
  const Duration before = monotonic_clock().now();
  const auto card = find_planner(options.planner);
  if (!card.ok()) return card.error();
  const auto half = half_duplex_of(options);
  if (!half.ok()) return half.error();
  watch.begin("reading the files");
  auto chain = load_chain(options.chain);
  if (!chain.ok()) return chain.error();
  const auto cluster = load_cluster(options.cluster);
  if (!cluster.ok()) return cluster.error();
  const int64_t stages =
      static_cast<int64_t>(std::min(chain.value().names.size(), cluster.value().workers.size()));
  if (2 * stages * options.micros > kMostOps) {
    return invalid(cat("--micros ", options.micros, ": with up to ", stages, " stages a step has ",
                       2 * stages * options.micros, " ops, expected ", kMostOps,
                       " at most; give fewer micro-batches"));
  }
  LayoutSettings settings;
  settings.micros = options.micros;
  settings.half_duplex = half.value();
  watch.begin("preparing the search");
  const LayoutProblem problem(chain.value().model, cluster.value(), settings);
  auto search = planned(problem, card.value().planner, watch);
  if (!search.ok()) return search.error();
  PlanReport report{card.value(), std::move(chain).value(), problem, std::move(search).value()};
  if (!options.plan.empty()) {
    InTurnSettings training;
    training.layout = settings;
    auto plan = training_plan(report.chain, cluster.value(), training, report.search, watch);
    if (!plan.ok()) return plan.error();
    report.training = std::move(plan).value();
    report.training_file = options.plan;
  }
  report.planning = monotonic_clock().now() - before;
  report.ended = watch.was_heeded();
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
  const auto report = report_of(options, watch);
  waiting.reset();  // what follows has the terminal to itself
  if (!report.ok()) {
    errors << "tenuto plan: " << told(report.error().message) << "\n";
    return exit_code_of_command(report.error());
  }
  if (report.value().training) {
    const std::string plan = to_json(report.value().training->plan) + "\n";
    if (const Status written = write_file(options.plan, plan); !written.ok()) {
      errors << "tenuto plan: " << told(written.error().message) << "\n";
      return 1;
    }
  }
  const std::string json = options.json || !options.out.empty() ? plan_json(report.value()) : "";
  if (!options.out.empty()) {
    if (const Status written = write_file(options.out, json); !written.ok()) {
      errors << "tenuto plan: " << told(written.error().message) << "\n";
      return 1;
    }
  }
  out << (options.json ? json : plan_text(report.value()));
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
            "or a profiled graph of operators")
      ->required();
  path_flag(*command, "--cluster", options->cluster,
            "devices and their rates: {\"devices\": N, \"bandwidth_gbps\": ...} as JSON")
      ->required();
  number_flag(*command, "--micros", options->micros, whole_numbers(1, kMostMicros),
              "micro-batches of a step (8)");
  command->add_option("--planner", options->planner,
                      "tenuto, or a simpler or published rule to compare with (tenuto)");
  number_flag(*command, "--seconds", options->seconds, NumberRange{1e-6, 1e6},
              "time limit of the search; the best layout until then is printed");
  command->add_option("--duplex", options->duplex,
                      "full, or half: both directions of a link share its rate (full)");
  command->add_flag("--json", options->json, "one JSON object on stdout");
  path_flag(*command, "--out", options->out, "write the JSON object to this file, too");
  path_flag(*command, "--plan", options->plan,
            "write a plan with whole micro-batches in turn, which parallel.plan trains and\n"
            "tenuto simulate prices");
  command->callback(
      [options, chosen = std::move(chosen)] { chosen([options] { return run_plan(*options); }); });
}

}  // namespace tenuto
