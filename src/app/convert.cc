// tenuto schedule convert: run_schedule_convert of app/schedule.h.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/schedule.h"
#include "base/file.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "ir/torch_csv.h"

namespace tenuto {

namespace {

bool is_csv(const std::string& form) { return form == "csv" || form == "csv-comms"; }

// What the plan has and the form cannot express.
std::string losses(const Plan& plan, const std::string& form) {
  if (form == "json") return {};
  std::string lost;
  const auto lose = [&](bool loses, const char* what) {
    if (loses) lost += cat(lost.empty() ? "" : ", ", what);
  };
  const auto one_layer = [](const Stage& stage) {
    return stage.layer_end - stage.layer_first == 1;
  };
  lose(plan.dispatch == Dispatch::Ready, "ready dispatch");
  lose(!plan.limits.empty(), "its limits");
  lose(plan.evaluation.micro_count > 0, "the held-out pass");
  lose(!std::all_of(plan.stages.begin(), plan.stages.end(), one_layer), "its layers");
  lose(!recomputing(plan.stages).empty(), "which stages recompute");
  lose(form == "text" && !plan.split_backward, "that its backward is one op");
  return lost;
}

// How the CSV shows backwards: as the flag `split` says; without the flag, as the plan has them.
Result<CsvBackward> backward_of(const Plan& plan, const std::optional<std::string>& split) {
  if (!split) return plan.split_backward ? CsvBackward::Split : CsvBackward::Whole;
  if (*split == "yes") return CsvBackward::Split;
  if (*split == "no") return CsvBackward::Whole;
  if (*split == "apart") return CsvBackward::Apart;
  return invalid(cat("--split-backward ", *split,
                     ": expected yes (writes I and W), no (writes B) or apart (writes B where W "
                     "follows I directly)"));
}

Result<std::string> written(Plan& plan, const ScheduleOptions& options) {
  const auto backward = backward_of(plan, options.split_backward);
  if (!backward.ok()) return backward.error();
  if (options.split_backward) plan.split_backward = *options.split_backward != "no";
  if (options.to == "text") return to_text(plan.schedule);
  if (options.to == "json") return to_json(plan);
  return to_csv(plan, {options.to == "csv-comms", backward.value(), options.pipeline});
}

}  // namespace

int run_schedule_convert(const ScheduleOptions& options, std::ostream& out, std::ostream& errors) {
  if (options.to != "text" && options.to != "json" && !is_csv(options.to)) {
    return refuse_schedule(
        invalid(cat("--to ", options.to, ": expected text, json, csv or csv-comms")), errors);
  }
  if (options.pipeline >= 0 && !is_csv(options.to)) {
    return refuse_schedule(
        invalid("--pipeline: only a CSV holds one pipeline: leave it out or take --to csv"),
        errors);
  }
  auto file = plan_of_options(options);
  if (!file.ok()) return refuse_schedule(file.error(), errors);
  Plan& plan = file.value().plan;
  if (const Status status = check(plan); !status.ok()) {
    Error error = status.error();
    if (!options.file.empty()) error.message = cat(options.file, " is refused: ", error.message);
    return refuse_schedule(error, errors);
  }
  const std::string lost = losses(plan, options.to);
  const auto text = written(plan, options);
  if (!text.ok()) return refuse_schedule(text.error(), errors);
  if (!lost.empty()) {
    errors << "tenuto schedule: note: the form " << options.to << " leaves out " << lost << "\n";
  }
  const std::optional<TorchRun>& torch = file.value().torch;
  for (const std::string& note : file.value().notes) {
    errors << "tenuto schedule: note: " << note << "\n";
  }
  if (torch && torch->ending != TorchEnding::Runs) {
    errors << "tenuto schedule: note: " << options.file << ": PyTorch " << torch->sentence << "\n";
  }
  if (!options.out.empty()) {
    if (const Status status = write_file(options.out, text.value()); !status.ok()) {
      errors << "tenuto schedule: " << status.error().message << "\n";
      return 1;
    }
  }
  if (options.json) {
    nlohmann::ordered_json json = {{"to", options.to}};
    if (options.out.empty()) {
      json["text"] = text.value();
    } else {
      json["file"] = options.out;
    }
    json["left_out"] = lost;
    json["notices"] = file.value().notes;
    if (torch) json["runtimes"] = runtimes_json(*torch, "");
    out << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  } else if (options.out.empty()) {
    out << text.value();
  }
  return 0;
}

}  // namespace tenuto
