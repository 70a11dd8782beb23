#include "app/schedule.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/page.h"
#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "plan/make_plan.h"
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

}  // namespace

Result<Plan> plan_of_options(const ScheduleOptions& options) {
  if (!options.file.empty()) {
    if (!options.split_backward || !options.to.empty()) return plan_from_file(options.file);
    return invalid("--split-backward: the file says it: leave the flag out");
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
  return make_plan(shape);
}

int refuse_schedule(const Error& error, std::ostream& errors) {
  errors << "tenuto schedule: " << error.message << "\n";
  return error.code == Code::Invalid && error.reach == Reach::Call ? 2 : 3;
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
  const auto plan = plan_of_options(options);
  if (!plan.ok()) return refuse_schedule(plan.error(), errors);
  if (const Status status = check(plan.value()); !status.ok()) {
    return refuse_schedule(status.error(), errors);
  }
  const Cluster cluster =
      uniform_cluster(static_cast<int32_t>(plan.value().schedule.lists.size()), {});
  PriceOptions price_options;
  price_options.spans = true;
  price_options.update = false;
  const auto timeline = price(plan.value(), unit_model(plan.value()), cluster, price_options);
  if (!timeline.ok()) return refuse_schedule(timeline.error(), errors);
  if (!options.page.empty()) {
    const std::string file = options.file.substr(options.file.rfind('/') + 1);
    const PageContent content{cat("Tenuto: ", file.empty() ? plan.value().order : file),
                              "Each op one unit of 1 ms",
                              plan.value(),
                              timeline.value(),
                              {},
                              ""};
    if (const Status status = write_page_file(options.page, content); !status.ok()) {
      errors << "tenuto schedule: " << status.error().message << "\n";
      return 1;
    }
  }
  const std::string picture = gantt(timeline.value().spans, plan.value());
  if (options.json) {
    out << nlohmann::ordered_json{{"order", plan.value().order},
                                  {"schedule", to_text(plan.value().schedule)},
                                  {"gantt", picture},
                                  {"ops", timeline.value().ops}}
               .dump()
        << "\n";
    return 0;
  }
  out << to_text(plan.value().schedule) << "\n" << picture;
  return 0;
}

int run_schedule_check(const ScheduleOptions& options, std::ostream& out, std::ostream& errors) {
  const auto plan = plan_from_file(options.file);
  if (!plan.ok()) return refuse_schedule(plan.error(), errors);
  const Status status = check(plan.value());
  if (!status.ok()) {
    Error error = status.error();
    error.message = cat(options.file, " is refused: ", error.message);
    if (options.json) {
      out << nlohmann::ordered_json{{"ok", false}, {"reason", error.message}}.dump(
                 -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
          << "\n";
      return 3;
    }
    errors << "tenuto schedule: " << error.message << "\n";
    return 3;
  }
  size_t ops = 0;
  for (const auto& list : plan.value().schedule.lists) ops += list.size();
  if (options.json) {
    out << nlohmann::ordered_json{{"ok", true}, {"ops", ops}, {"notices", notices(plan.value())}}
               .dump()
        << "\n";
    return 0;
  }
  out << cat(options.file, " is right: ", plan.value().stages.size(), " stages, ",
             plan.value().schedule.lists.size(), " workers, ", plan.value().schedule.micro_count,
             " micro-batches, ", ops, " ops\n");
  for (const std::string& notice : notices(plan.value())) out << cat("Note: ", notice, "\n");
  return 0;
}

void add_source_options(CLI::App& command, ScheduleOptions& options) {
  CLI::Option* file =
      command.add_option("file", options.file, "a schedule's text, PLAN.json or PyTorch's CSV");
  for (CLI::Option* flag :
       {command.add_option("--order", options.order, "a name from tenuto schedule list (1f1b)"),
        command.add_option("--stages", options.stages, "workers of a pipeline (4)"),
        command.add_option("--pipelines", options.pipelines, "pipelines side by side (1)"),
        command.add_option("--micros", options.micros, "micro-batches of a pipeline (8)"),
        command.add_option("--chunks", options.chunks, "stages of one worker (as the order wants)"),
        command.add_option("--dispatch", options.dispatch, "listed or ready (listed)")}) {
    flag->excludes(file);
  }
  command.add_option("--split-backward", options.split_backward, "yes or no");
}

void add_schedule_command(CLI::App& app, std::function<void(std::function<int()>)> chosen) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command =
      app.add_subcommand("schedule", "Orders and schedules to look at and to check");
  command->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "every known order");
  list->footer("Example: tenuto schedule list");
  list->add_flag("--json", options->json, "one JSON object on stdout");
  list->callback([options, chosen] { chosen([options] { return run_schedule_list(*options); }); });

  CLI::App* show = command->add_subcommand("show", "a schedule as text and as picture");
  show->footer("Example: tenuto schedule show --order zb-h1 --stages 4 --micros 6");
  add_source_options(*show, *options);
  show->add_option("--page", options->page, "write an HTML page to look at to this file");
  show->add_flag("--json", options->json, "one JSON object on stdout");
  show->callback([options, chosen] { chosen([options] { return run_schedule_show(*options); }); });

  CLI::App* check = command->add_subcommand("check", "is it right? exit code 3 when it is refused");
  check->footer("Example: tenuto schedule check my.sched");
  check->add_option("file", options->file, "a schedule's text, PLAN.json or PyTorch's CSV")
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
  convert->add_option("--out", options->out, "write to this file instead of stdout");
  convert->add_option("--pipeline", options->pipeline, "csv: which of several pipelines");
  convert->add_flag("--json", options->json, "one JSON object on stdout");
  convert->callback(
      [options, chosen] { chosen([options] { return run_schedule_convert(*options); }); });
}

}  // namespace tenuto
