#include "app/plan_file.h"

#include <algorithm>
#include <cstdint>

#include "base/file.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "ir/torch_csv.h"

namespace tenuto {

namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A schedule or a plan is held in memory several times over while it is read.
constexpr int64_t kMostPlanBytes = int64_t{256} << 20;

Result<Plan> plan_from_text(std::string_view text, const std::string& source) {
  auto schedule = schedule_from_text(text, source);
  if (!schedule.ok()) return schedule.error();
  return plan_of_schedule(std::move(schedule).value(), source);
}

Result<PlanFile> plan_from_csv(std::string_view text, const std::string& source) {
  auto read = schedule_from_csv(text, source);
  if (!read.ok()) return read.error();
  CsvSchedule& csv = read.value();
  Shape shape;
  shape.layers = csv.schedule.stage_count;
  shape.order = base_name(source);
  shape.split_backward = csv.splits;
  auto plan = make_given_plan({std::move(csv.schedule), csv.messages}, shape);
  if (plan.ok()) {
    return PlanFile{std::move(plan).value(), std::move(csv.notes), std::move(csv.torch)};
  }
  Error error = plan.error();
  error.message = cat(source, ": ", error.message);
  return error;
}

// The forms that a schedule can be written in.
enum class PlanForm : uint8_t { Text, Json, Csv };

// What `text` is, by its first letters; JSON begins with {, a CSV with an action such as 0F0 or a
// blank cell, everything else is our text.
PlanForm form_of(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return PlanForm::Json;
  return looks_like_csv(text) ? PlanForm::Csv : PlanForm::Text;
}

}  // namespace

Result<PlanFile> plan_from(std::string_view text, const std::string& source) {
  const PlanForm form = form_of(text);
  if (form == PlanForm::Csv) return plan_from_csv(text, source);
  auto plan = form == PlanForm::Json ? plan_from_json(text, source) : plan_from_text(text, source);
  if (!plan.ok()) return plan.error();
  return PlanFile{std::move(plan).value(), {}, {}};
}

Result<PlanFile> read_plan_file(const std::string& path) {
  const auto text = read_file(path, kMostPlanBytes);
  if (!text.ok()) return text.error();
  return plan_from(text.value(), path);
}

Result<Plan> plan_from_file(const std::string& path) {
  auto file = read_plan_file(path);
  if (!file.ok()) return file.error();
  return std::move(file.value().plan);
}

Result<FileLists> lists_from_file(const std::string& path) {
  auto plan = plan_from_file(path);
  if (!plan.ok()) return plan.error();
  if (const Status status = check(plan.value()); !status.ok()) {
    Error error = status.error();
    error.message = cat(path, " is refused: ", error.message);
    return error;
  }
  for (size_t s = 0; s < plan.value().stages.size(); ++s) {
    const size_t holders = plan.value().stages[s].holders.size();
    if (holders == 1) continue;
    return Error{Code::Infeasible, Reach::Job,
                 cat(path, ": stage ", s, " has ", holders,
                     " holders: a schedule for training must have "
                     "one pipeline, which parallel.pipelines then copies: write one pipeline")};
  }
  FileLists result;
  result.order = base_name(path);
  result.splits = plan.value().split_backward;
  result.dispatch = plan.value().dispatch;
  result.lists.messages = true;
  result.lists.schedule = std::move(plan.value().schedule);
  Schedule& schedule = result.lists.schedule;
  schedule.groups.clear();
  schedule.collectives.clear();
  for (auto& list : schedule.lists) {
    list.erase(
        std::remove_if(list.begin(), list.end(), [](const Op& op) { return !has_micro(op); }),
        list.end());
  }
  return result;
}

}  // namespace tenuto
