#include "adapt/report/plan_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "adapt/report/figures.h"
#include "adapt/report/torch_plan.h"
#include "adapt/report/training_plan.h"
#include "base/text.h"

namespace tenuto {

namespace {

using Json = nlohmann::ordered_json;

// The share of the step in which the devices of the stages run no forward and no backward.
double bubble_fraction(const PricedLayout& layout) {
  double busy = 0, devices = 0;
  for (size_t n = 0; n < layout.layout.size(); ++n) {
    const auto replicas = static_cast<double>(layout.layout[n].holders.size());
    busy += replicas * layout.loads.micros * layout.loads.stages[n].both();
    devices += replicas;
  }
  return 1 - std::min(1.0, share_of(busy, devices * layout.schedule.makespan));
}

std::string order_of(const BlockSchedule& schedule) {
  return cat(tenuto::name_of(schedule.policy), schedule.improved ? "+search" : "");
}

// Why a layout has a longer step than another one.
std::string why_longer(const PricedLayout& longer, const PricedLayout& best) {
  const double difference = longer.schedule.makespan - best.schedule.makespan;
  if (difference <= 1e-9 * best.schedule.makespan) {
    return "its step is as long; the layout that was found first is kept";
  }
  const Busy its = busiest(longer.loads), here = busiest(best.loads);
  const double rest = longer.schedule.makespan - its.time,
               best_rest = best.schedule.makespan - here.time;
  if (its.time - here.time >= rest - best_rest) {
    return cat("its ", name_of(its), " is busy for ", ms_text(its.time),
               " ms of a step; the busiest part of the chosen layout, for ", ms_text(here.time),
               " ms");
  }
  return cat("besides the work of its busiest part, its step has ", ms_text(rest),
             " ms in which the pipeline fills, drains or waits; the chosen layout has ",
             ms_text(best_rest), " ms");
}

std::vector<int32_t> numbers_of(const std::vector<WorkerId>& workers) {
  std::vector<int32_t> numbers;
  for (const WorkerId worker : workers) numbers.push_back(worker.value);
  return numbers;
}

// "FFBFBB": the order of a stage's forwards and backwards.
std::string ops_text(const std::vector<bool>& order) {
  std::string ops;
  for (const bool backward : order) ops += backward ? 'B' : 'F';
  return ops;
}

// Rows of cells as lines; columns as wide as their widest cell, text to the left and numbers to the
// right.
std::string table_text(const TextRows& rows, const std::string& left_columns) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += left_columns[i] == 'l' ? row[i] + blanks : blanks + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// "3 stages on 4, 2, 2 devices".
std::string shape_text(const Layout& layout) {
  constexpr size_t kMost = 16;
  std::string text = cat(counted(layout.size(), "stage"), " on ");
  for (size_t n = 0; n < std::min(layout.size(), kMost); ++n) {
    text += cat(n == 0 ? "" : ", ", layout[n].holders.size());
  }
  const bool one = layout.size() == 1 && layout[0].holders.size() == 1;
  return cat(text, layout.size() > kMost ? ", ..." : "", one ? " device" : " devices");
}

// "host 0 (devices 0-3, 12.5 GB/s), host 1 (devices 4-7, 12.5 GB/s)".
std::string ports_text(const std::vector<Port>& ports) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ports.size(), kMost); ++i) {
    const Port& port = ports[i];
    text +=
        cat(i == 0 ? "" : ", ", port.name, port.devices.size() == 1 ? " (device " : " (devices ",
            ranges_text(numbers_of(port.devices)), ", ", port.bytes_per_second / 1e9, " GB/s",
            port.half_duplex ? " in both directions together)" : ")");
  }
  return cat(text, ports.size() > kMost ? cat(" and ", ports.size() - kMost, " more") : "");
}

Json stages_json(const PlanReport& report, const PricedLayout& layout) {
  Json stages = Json::array();
  for (size_t n = 0; n < layout.layout.size(); ++n) {
    const Stage& stage = layout.layout[n];
    const StageLoad& load = layout.loads.stages[n];
    const int32_t in_flight = layout.schedule.in_flight[n];
    const auto& names = report.chain.names;
    stages.push_back(
        {{"first_layer", stage.layer_first},
         {"end_layer", stage.layer_end},
         {"devices", numbers_of(stage.holders)},
         {"first_name", names[static_cast<size_t>(stage.layer_first)]},
         {"last_name", names[static_cast<size_t>(stage.layer_end) - 1]},
         {"forward_ms", milliseconds(load.forward)},
         {"backward_ms", milliseconds(load.backward)},
         {"reduction_ms", milliseconds(load.reduction)},
         {"busy_ms", milliseconds(busy_time(layout.loads, load))},
         {"memory_bytes", std::llround(stage_memory(report.problem, stage, in_flight))},
         {"in_flight", in_flight},
         {"ops", ops_text(layout.schedule.order[n])}});
    if (stage.recompute) stages.back()["recompute"] = true;
  }
  return stages;
}

Json links_json(const LayoutLoads& loads) {
  Json links = Json::array();
  for (const LinkLoad& load : loads.links) {
    links.push_back({{"transfer_ms", milliseconds(load.forward)},
                     {"backward_transfer_ms", milliseconds(load.backward)},
                     {"busy_ms", milliseconds(busy_time(loads, load))}});
  }
  return links;
}

Json runner_up_json(const PlanReport& report) {
  if (!report.search.runner_up) return nullptr;
  const PricedLayout& runner = *report.search.runner_up;
  Json stages = Json::array();
  for (const Stage& stage : runner.layout) {
    stages.push_back({{"first_layer", stage.layer_first},
                      {"end_layer", stage.layer_end},
                      {"devices", numbers_of(stage.holders)}});
  }
  return {{"makespan_ms", milliseconds(runner.schedule.makespan)},
          {"stages", std::move(stages)},
          {"order", order_of(runner.schedule)},
          {"why", why_longer(runner, report.search.best)}};
}

Json cuts_json(const std::vector<RowAlternative>& cuts) {
  Json all = Json::array();
  for (const RowAlternative& it : cuts) {
    Json& entry =
        all.emplace_back(Json{{"micro_rows", it.cut.micro_rows}, {"micros", it.cut.micros}});
    if (it.in_turn_ms) entry["micros_in_turn_ms"] = *it.in_turn_ms;
    if (it.rows_split_ms) entry["rows_split_ms"] = *it.rows_split_ms;
    if (!it.why_not.empty()) entry["why_not"] = it.why_not;
  }
  return all;
}

}  // namespace

std::vector<int32_t> idle_devices(const PlanReport& report) {
  std::vector<bool> used(static_cast<size_t>(report.problem.device_count()));
  for (const Stage& stage : report.search.best.layout) {
    for (const WorkerId holder : stage.holders) {
      used[static_cast<size_t>(report.problem.device(holder))] = true;
    }
  }
  std::vector<int32_t> idle;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) idle.push_back(report.problem.worker(static_cast<int32_t>(i)).value);
  }
  return idle;
}

std::string headline_of(const PlanReport& report) {
  const PricedLayout& best = report.search.best;
  const size_t idle = idle_devices(report).size();
  const auto devices = static_cast<size_t>(report.problem.device_count());
  return cat(report.planner.name, ": ", counted(best.layout.size(), "stage"), " on ",
             idle == 0 ? counted(devices, "device")
                       : cat(devices - idle, " of ", counted(devices, "device")),
             ", ", counted(report.chain.names.size(), "layer"), ", ", best.loads.micros,
             best.loads.micros == 1 ? " micro-batch" : " micro-batches",
             " a step, rows split over replicas");
}

std::vector<Fact> facts_of(const PlanReport& report) {
  const LayoutSearch& search = report.search;
  const PricedLayout& best = search.best;
  const double makespan = best.schedule.makespan;
  const std::vector<int32_t> idle = idle_devices(report);
  const Busy busy = busiest(best.loads);
  std::vector<Fact> facts = {
      {"makespan", cat(ms_text(makespan), " ms by order ", order_of(best.schedule))},
      {"lower bound",
       cat(ms_text(search.lower_bound), " ms of all layouts",
           search.lower_bound > 0 ? cat(" (", fixed(makespan / search.lower_bound, 3), "x)")
                                  : std::string())},
      {"bottleneck", cat(name_of(busy), ", busy for ", ms_text(busy.time), " ms of the step (",
                         percent(share_of(busy.time, makespan)), ")")},
      {"bubble", percent(bubble_fraction(best))}};
  for (Fact& fact : recomputing_facts(best.layout)) facts.push_back(std::move(fact));
  if (!idle.empty()) facts.push_back({"idle", cat("devices ", ranges_text(idle))});
  if (report.cluster && !report.cluster->ports.empty()) {
    facts.push_back({"ports", cat(ports_text(report.cluster->ports),
                                  "; here each two devices have them for themselves, in turn all "
                                  "messages share them")});
  }
  if (!search.how.empty()) {
    facts.push_back(
        {"found by", cat(search.how, "; ", search.priced,
                         search.priced == 1 ? " layout was simulated" : " layouts were simulated",
                         report.ended ? " before the time limit ended the search" : "")});
  }
  if (search.runner_up) {
    const PricedLayout& runner = *search.runner_up;
    const double more = share_of(runner.schedule.makespan - makespan, makespan);
    facts.push_back(
        {"runner-up", cat(shape_text(runner.layout), ", ", ms_text(runner.schedule.makespan),
                          " ms (+", percent(more), "): ", why_longer(runner, best))});
  }
  return facts;
}

TextRows stage_rows(const PlanReport& report) {
  const PricedLayout& best = report.search.best;
  TextRows rows = {{"stage", "devices", "layers", "forward ms", "backward ms", "reduction ms",
                    "busy", "memory", "in flight"}};
  for (size_t n = 0; n < best.layout.size(); ++n) {
    const Stage& stage = best.layout[n];
    const StageLoad& load = best.loads.stages[n];
    const int32_t in_flight = best.schedule.in_flight[n];
    rows.push_back({cat(n), ranges_text(numbers_of(stage.holders)),
                    layers_text(report.chain.names, stage), ms_text(load.forward),
                    ms_text(load.backward), ms_text(load.reduction),
                    percent(share_of(busy_time(best.loads, load), best.schedule.makespan)),
                    bytes_text(stage_memory(report.problem, stage, in_flight)), cat(in_flight)});
  }
  return rows;
}

TextRows link_rows(const PlanReport& report) {
  const PricedLayout& best = report.search.best;
  TextRows rows = {{"link", "forward ms", "backward ms", "busy"}};
  for (size_t n = 0; n < best.loads.links.size(); ++n) {
    const LinkLoad& load = best.loads.links[n];
    rows.push_back({cat(n, "-", n + 1), ms_text(load.forward), ms_text(load.backward),
                    percent(share_of(busy_time(best.loads, load), best.schedule.makespan))});
  }
  return rows;
}

std::vector<Fact> training_facts(const PlanReport& report) {
  std::vector<Fact> facts =
      training_facts(*report.training, report.training_file, report.search.best.schedule.makespan);
  if (report.micro_rows > 0) {
    facts.push_back({"job", cat("parallel.micro_rows = ", report.micro_rows)});
  }
  return facts;
}

std::string plan_json(const PlanReport& report) {
  const PricedLayout& best = report.search.best;
  const Busy busy = busiest(best.loads);
  Json tree = {
      {"makespan_ms", milliseconds(best.schedule.makespan)},
      {"lower_bound_ms", milliseconds(report.search.lower_bound)},
      {"stages", stages_json(report, best)},
      {"plan_ms", to_milliseconds(report.planning)},
      {"planner", report.planner.name},
      {"order", order_of(best.schedule)},
      {"micros", best.loads.micros},
      {"duplex", best.loads.half_duplex ? "half" : "full"},
      {"execution_model", "rows-split"},
      {"links", links_json(best.loads)},
      {"bottleneck",
       {{"kind", busy.link ? "link" : "stage"},
        {"index", busy.index},
        {"busy_ms", milliseconds(busy.time)},
        {"share", share_of(busy.time, best.schedule.makespan)}}},
      {"bubble_fraction", bubble_fraction(best)},
      {"idle_devices", idle_devices(report)},
      {"found_by", report.search.how},
      {"layouts_simulated", report.search.priced},
      {"ended_by_limit", report.ended},
      {"runner_up", runner_up_json(report)},
  };
  if (report.micro_rows > 0) tree["micro_rows"] = report.micro_rows;
  if (!report.cuts.empty()) tree["cuts"] = cuts_json(report.cuts);
  if (report.training) tree["plan"] = training_json(*report.training, report.training_file);
  if (report.torch) {
    tree["torch"] = torch_json(*report.torch, report.torch_folder, *report.training);
  }
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string plan_text(const PlanReport& report) {
  std::string text;
  if (!report.cuts.empty()) {
    text = alternatives_text(report.cuts, {report.micro_rows, report.search.best.loads.micros});
  }
  text += cat(headline_of(report), "\n", lines_of(facts_of(report)), "\n",
              table_text(stage_rows(report), "lllrrrrrr"));
  if (!report.search.best.loads.links.empty()) {
    text += cat("\n", table_text(link_rows(report), "lrrr"));
  }
  if (report.training) {
    text += "\n" + lines_of(training_facts(report));
  }
  if (report.torch) text += torch_text(*report.torch, report.torch_folder, *report.training);
  return text;
}

}  // namespace tenuto
