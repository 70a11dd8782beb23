#include "app/schedule.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/flags.h"
#include "app/page.h"
#include "base/check.h"
#include "base/file.h"
#include "base/sentence.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "plan/stage_plan.h"
#include "sim/price.h"
#include "sim/timeline.h"

namespace tenuto {

namespace {

// One unit for every op, so that the picture shows the order and nothing else.
Model unit_model(const Plan& plan) {
  Layer layer;
  layer.forward = layer.backward_input = layer.backward_weight = from_milliseconds(1);
  Model model;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (const Stage& stage : plan.stages) {
    model.layers[static_cast<size_t>(stage.layer_first)] = layer;
  }
  return model;
}

// What `list` shows beside each order.
struct Example {
  double makespan_ms = 0, bubble_fraction = 0, peak_micros = 0;
};

// The example's shape; every order can be made for it.
const Shape kExample = [] {
  Shape shape;
  shape.stages = 4;
  shape.micros = 8;
  return shape;
}();

Example example_of(const OrderCard& card) {
  Shape shape = kExample;
  shape.order = card.name;
  shape.split_backward = card.splits_backward;
  const auto plan = make_plan(shape);
  CHECK(plan.ok(), "an order that cannot be made for the example");
  Layer layer;
  layer.forward = layer.backward_input = layer.backward_weight =
      from_milliseconds(1.0 / card.chunks);
  Model model;
  model.layers.assign(plan.value().stages.size(), layer);
  PriceOptions price_options;
  price_options.update = price_options.lower_bound = false;
  const auto timeline =
      price(plan.value(), model, uniform_cluster(shape.stages, {}), price_options);
  CHECK(timeline.ok(), "an order that cannot be priced");
  Example example{to_milliseconds(timeline.value().makespan), timeline.value().bubble_fraction, 0};
  const OrderShape own{shape.stages, shape.micros, card.chunks, 0};
  for (int32_t w = 0; w < shape.stages; ++w) {
    example.peak_micros = std::max(example.peak_micros, card.peak_micros(own, w));
  }
  return example;
}

// On one line; bytes that are no text are replaced.
std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// What runtimes_json says of Tenuto, beside the sentence about PyTorch.
constexpr const char* kRunsHere =
    "runs it: sends, receives and compute ops of a worker wait for their values, not for each "
    "other, and messages have names";

const char* name_of(Placement placement) {
  switch (placement) {
    case Placement::Linear:
      return "linear";
    case Placement::Loop:
      return "loop";
    default:
      return "v";
  }
}

// Adds FILE and the flags of an order and its shape, which exclude each other, to a subcommand.
void add_source_options(CLI::App& command, ScheduleOptions& options) {
  CLI::Option* file =
      path_flag(command, "file", options.file, "a schedule's text, PLAN.json or PyTorch's CSV");
  const auto whole = whole_numbers(1);
  for (CLI::Option* flag :
       {command.add_option("--order", options.order, "a name from tenuto schedule list (1f1b)"),
        number_flag(command, "--stages", options.stages, whole, "workers of a pipeline (4)"),
        number_flag(command, "--pipelines", options.pipelines, whole, "pipelines side by side (1)"),
        number_flag(command, "--micros", options.micros, whole, "micro-batches of a pipeline (8)"),
        number_flag(command, "--chunks", options.chunks, whole,
                    "stages of one worker (default: the order's)"),
        command.add_option("--dispatch", options.dispatch, "listed or ready (listed)"),
        numbers_flag(command, "--holders", options.holders, whole,
                     "workers of each stage, such as 5,3: instead of --stages and --pipelines; "
                     "--micros is then of the whole step"),
        numbers_flag(command, "--layers", options.layers, whole,
                     "with --holders: layers of each stage (one each)")}) {
    flag->excludes(file);
  }
  command.add_option("--split-backward", options.split_backward, "yes or no");
}

}  // namespace

namespace {

// Stages with so many holders each; workers are numbered stage by stage.
Result<PlanFile> plan_of_holders(const ScheduleOptions& options) {
  if (!options.layers.empty() && options.layers.size() != options.holders.size()) {
    return invalid(cat("--layers has ", options.layers.size(), " numbers: expected ",
                       options.holders.size(), ", one for each stage of --holders"));
  }
  if (options.order != ScheduleOptions().order || options.dispatch) {
    return invalid(
        "--holders makes a plan in 1F1B order under ready dispatch: leave --order and --dispatch "
        "out");
  }
  std::vector<Stage> stages;
  StageShape shape;
  shape.workers = 0;
  shape.micros = options.micros;
  shape.split_backward = options.split_backward.value_or("no") != "no";
  int32_t layer = 0;
  for (size_t s = 0; s < options.holders.size(); ++s) {
    Stage stage{layer, layer, {}};
    stage.layer_end += options.layers.empty() ? 1 : static_cast<int32_t>(options.layers[s]);
    layer = stage.layer_end;
    const auto end = static_cast<int32_t>(shape.workers + options.holders[s]);
    while (shape.workers < end) stage.holders.push_back({shape.workers++});
    stages.push_back(std::move(stage));
  }
  auto plan = make_stage_plan(stages, shape);
  if (!plan.ok()) return plan.error();
  return PlanFile{std::move(plan).value(), {}, {}};
}

}  // namespace

Result<PlanFile> plan_of_options(const ScheduleOptions& options) {
  if (!options.file.empty()) {
    if (!options.split_backward || !options.to.empty()) return read_plan_file(options.file);
    return invalid(
        "--split-backward: the schedule's file already determines it: leave the flag out");
  }
  if (!options.holders.empty()) return plan_of_holders(options);
  if (!options.layers.empty()) {
    return invalid("--layers gives the layers of the stages of --holders: give that, too");
  }
  Shape shape;
  shape.stages = options.stages;
  shape.chunks = options.chunks;
  shape.pipelines = options.pipelines;
  shape.micros = options.micros;
  shape.order = options.order;
  const std::string dispatch =
      options.dispatch.value_or(shape.order == kAutoOrder ? "ready" : "listed");
  if (dispatch != "listed" && dispatch != "ready") {
    return invalid(cat("--dispatch ", dispatch, ": expected listed or ready"));
  }
  shape.dispatch = dispatch == "ready" ? Dispatch::Ready : Dispatch::Listed;
  shape.split_backward = splits_by_default(shape.order);
  if (options.split_backward) {
    const std::string& split = *options.split_backward;
    if (split != "yes" && split != "no" && (split != "apart" || options.to.empty())) {
      return invalid(cat("--split-backward ", split, ": expected yes or no"));
    }
    shape.split_backward = split != "no";
  }
  auto plan = make_plan(shape);
  if (!plan.ok()) return plan.error();
  return PlanFile{std::move(plan).value(), {}, {}};
}

nlohmann::ordered_json runtimes_json(const TorchRun& torch, const std::string& refused) {
  return {
      {"tenuto", {{"runs", refused.empty()}, {"sentence", refused.empty() ? kRunsHere : refused}}},
      {"pytorch",
       {{"runs", torch.ending == TorchEnding::Runs},
        {"ending", name_of(torch.ending)},
        {"sentence", torch.sentence}}}};
}

int refuse_schedule(const Error& error, std::ostream& errors) {
  errors << "tenuto schedule: " << told(error.message) << "\n";
  return exit_code_of_command(error);
}

int run_schedule_list(const ScheduleOptions& options, std::ostream& out) {
  nlohmann::ordered_json orders = nlohmann::ordered_json::array();
  std::string text;
  for (const OrderCard& card : order_cards()) {
    const Example example = example_of(card);
    orders.push_back({{"name", card.name},
                      {"summary", card.summary},
                      {"placement", name_of(card.placement)},
                      {"chunks", card.chunks},
                      {"splits_backward", card.splits_backward},
                      {"bubble", card.bubble},
                      {"memory", card.memory},
                      {"source", card.source},
                      {"example",
                       {{"stages", kExample.stages},
                        {"micros", kExample.micros},
                        {"makespan_ms", example.makespan_ms},
                        {"bubble_fraction", example.bubble_fraction},
                        {"peak_micros", example.peak_micros}}}});
    std::string name = card.name;
    name.resize(std::max<size_t>(name.size(), 16), ' ');
    const std::string margin(16, ' ');
    text +=
        cat(name, card.summary, "\n", margin, name_of(card.placement), " placement, ", card.chunks,
            card.chunks == 1 ? " chunk" : " chunks", " a worker; backward ",
            card.splits_backward ? "split" : "whole", "\n", margin, "idle ", card.bubble, "\n",
            margin, "holds ", card.memory, "\n", margin, "example: ", fixed(example.makespan_ms, 1),
            " ms, ", fixed(100 * example.bubble_fraction, 1), " % idle, holds up to ",
            fixed(example.peak_micros, 1), "\n", margin, card.source, "\n");
  }
  if (options.json) {
    out << nlohmann::ordered_json{{"orders", std::move(orders)}}.dump() << "\n";
    return 0;
  }
  out << text
      << cat("S workers of a pipeline, M micro-batches of it, V chunks of a worker, i the worker; ",
             "tF, tB, tW times of forward, input and weight gradient, t their sum. Example: S = ",
             kExample.stages, ", M = ", kExample.micros, ", each time 1 ms.\n");
  return 0;
}

int run_schedule_show(const ScheduleOptions& options, std::ostream& out, std::ostream& errors) {
  const auto file = plan_of_options(options);
  if (!file.ok()) return refuse_schedule(file.error(), errors);
  const Plan& plan = file.value().plan;
  if (const Status status = check(plan); !status.ok()) {
    return refuse_schedule(status.error(), errors);
  }
  const Cluster cluster = uniform_cluster(static_cast<int32_t>(plan.schedule.lists.size()), {});
  PriceOptions price_options;
  price_options.spans = true;
  price_options.update = false;
  const auto timeline = price(plan, unit_model(plan), cluster, price_options);
  if (!timeline.ok()) return refuse_schedule(timeline.error(), errors);
  if (!options.page.empty()) {
    const std::string name = options.file.substr(options.file.rfind('/') + 1);
    const PageContent content{cat("Tenuto: ", name.empty() ? plan.order : name),
                              "Each op one unit of 1 ms",
                              plan,
                              timeline.value(),
                              {},
                              ""};
    if (const Status status = write_page_file(options.page, content); !status.ok()) {
      errors << "tenuto schedule: " << status.error().message << "\n";
      return 1;
    }
  }
  const std::string picture = gantt(timeline.value().spans, plan);
  if (options.json) {
    out << nlohmann::ordered_json{{"order", plan.order},
                                  {"schedule", to_text(plan.schedule)},
                                  {"gantt", picture},
                                  {"ops", timeline.value().ops}}
               .dump()
        << "\n";
    return 0;
  }
  out << to_text(plan.schedule) << "\n" << picture;
  return 0;
}

int run_schedule_check(const ScheduleOptions& options, std::ostream& out, std::ostream& errors) {
  const auto file = read_plan_file(options.file);
  if (!file.ok()) return refuse_schedule(file.error(), errors);
  const Plan& plan = file.value().plan;
  const std::optional<TorchRun>& torch = file.value().torch;
  const Status status = check(plan);
  nlohmann::ordered_json json = {{"ok", status.ok()}};
  std::vector<std::string> notes = file.value().notes;
  if (!status.ok()) {
    const std::string reason = cat(options.file, " is refused: ", status.error().message);
    if (options.json) {
      json["reason"] = reason;
      if (torch) json["runtimes"] = runtimes_json(*torch, reason);
      out << dumped(json) << "\n";
      return 3;
    }
    errors << "tenuto schedule: " << told(reason) << "\n";
    if (torch) errors << "tenuto schedule: PyTorch " << torch->sentence << "\n";
    return 3;
  }
  for (std::string& notice : notices(plan)) notes.push_back(std::move(notice));
  size_t ops = 0;
  for (const auto& list : plan.schedule.lists) ops += list.size();
  if (options.json) {
    json["ops"] = ops;
    json["notices"] = notes;
    if (torch) json["runtimes"] = runtimes_json(*torch, "");
    out << dumped(json) << "\n";
    return 0;
  }
  out << cat(options.file, " is right: ", plan.stages.size(), " stages, ",
             plan.schedule.lists.size(), " workers, ", plan.schedule.micro_count,
             " micro-batches, ", ops, " ops\n");
  if (torch) out << cat("Tenuto ", kRunsHere, "\nPyTorch ", torch->sentence, "\n");
  for (const std::string& note : notes) out << cat("Note: ", note, "\n");
  return 0;
}

void add_schedule_command(CLI::App& app, Chosen chosen) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command =
      app.add_subcommand("schedule", "Shows, checks and converts orders and schedules");
  command->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "every known order");
  list->footer("Example: tenuto schedule list");
  list->add_flag("--json", options->json, "one JSON object on stdout");
  list->callback([options, chosen] { chosen([options] { return run_schedule_list(*options); }); });

  CLI::App* show = command->add_subcommand("show", "a schedule as text and as picture");
  show->footer("Example: tenuto schedule show --order zb-h1 --stages 4 --micros 6");
  add_source_options(*show, *options);
  path_flag(*show, "--page", options->page, "write an HTML page to this file");
  show->add_flag("--json", options->json, "one JSON object on stdout");
  show->callback([options, chosen] { chosen([options] { return run_schedule_show(*options); }); });

  CLI::App* check = command->add_subcommand(
      "check", "checks that a schedule is correct; exit code 3 if it is not");
  check->footer("Example: tenuto schedule check my.sched");
  path_flag(*check, "file", options->file, "a schedule's text, PLAN.json or PyTorch's CSV")
      ->required();
  check->add_flag("--json", options->json, "one JSON object on stdout");
  check->callback(
      [options, chosen] { chosen([options] { return run_schedule_check(*options); }); });

  CLI::App* convert = command->add_subcommand("convert", "the same schedule in another form");
  convert->footer(
      "csv is PyTorch's form, compute only; csv-comms has the messages too.\n"
      "Example: tenuto schedule convert torch.csv --to text\n"
      "Example: tenuto schedule convert --order zb-h1 --stages 4 --micros 8 --to csv --out zb.csv");
  add_source_options(*convert, *options);
  convert->add_option("--to", options->to, "text, json, csv or csv-comms")->required();
  path_flag(*convert, "--out", options->out, "write to this file instead of stdout");
  number_flag(*convert, "--pipeline", options->pipeline, whole_numbers(0),
              "csv: which pipeline to write, if there are several");
  convert->add_flag("--json", options->json, "one JSON object on stdout");
  convert->callback(
      [options, chosen] { chosen([options] { return run_schedule_convert(*options); }); });
}

}  // namespace tenuto
