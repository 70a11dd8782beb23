#include "world/plan_settings.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"
#include "world/seats.h"

namespace tenuto {

namespace {

// Sets one setting of a job to the value of a plan.
class Setter {
 public:
  explicit Setter(LoadedJob& loaded)
      : loaded_(loaded),
        from_(cat("plan ", loaded.job.parallel.plan)),
        by_flag_(loaded.origin["parallel.plan"] == "flag") {}

  // A setting that the plan decides: the job may give it only if it is the same.
  template <class Value>
  void decide(const char* key, Value& value, Value found) {
    if (!status_.ok()) return;
    std::string& origin = loaded_.origin[key];
    if (origin != "default" && value != found && !is_replaced(origin)) {
      status_ =
          invalid(cat(place(origin), key, " = ", value, ": the plan ", loaded_.job.parallel.plan,
                      " has ", found, ": leave the key out or make them equal"));
      return;
    }
    value = std::move(found);
    origin = from_;
  }
  // A setting that the job may give in another way than the plan.
  void suggest(const char* key, std::string& value, std::string found) {
    std::string& origin = loaded_.origin[key];
    if (origin != "default") return;
    value = std::move(found);
    origin = from_;
  }
  // A setting that has no meaning beside a plan: the job may give its default only, as a printed
  // configuration does.
  template <class Value>
  void refuse(const char* key, Value& value, const Value& standard) {
    std::string& origin = loaded_.origin[key];
    if (!status_.ok() || value == standard) return;
    if (is_replaced(origin)) {
      value = standard;
      origin = from_;
      return;
    }
    status_ = invalid(cat(place(origin), key, ": parallel.plan = \"", loaded_.job.parallel.plan,
                          "\" already decides this: leave one out"));
  }
  const Status& status() const { return status_; }

 private:
  // A plan given by a flag replaces settings of the job file, but not settings given by flags.
  bool is_replaced(const std::string& origin) const { return by_flag_ && origin != "flag"; }
  static std::string place(const std::string& origin) {
    return origin == "flag" ? "--" : origin + ": ";
  }

  LoadedJob& loaded_;
  const std::string from_;
  const bool by_flag_;
  Status status_ = ok();
};

std::vector<std::string> texts_of(const std::vector<std::vector<WorkerId>>& places) {
  std::vector<std::string> texts;
  for (const std::vector<WorkerId>& workers : places) {
    std::string text;
    for (const WorkerId worker : workers) text += cat(text.empty() ? "" : " ", worker);
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace

Result<Plan> read_plan_of_job(const Job& job) {
  const std::string& path = job.parallel.plan;
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  auto plan = plan_from_json(text.value(), path);
  if (!plan.ok()) return plan;
  if (const Status right = check(plan.value()); !right.ok()) {
    Error error = right.error();
    error.message = cat(path, " is refused: ", error.message);
    return error;
  }
  return plan;
}

Status take_plan(LoadedJob& loaded) {
  ParallelSettings& parallel = loaded.job.parallel;
  if (parallel.plan.empty()) return ok();
  const auto read = read_plan_of_job(loaded.job);
  if (!read.ok()) return read.error();
  const Plan& plan = read.value();
  const auto places = places_of(plan.stages);
  const auto pipelines = static_cast<int32_t>(places.front().size());
  const int32_t micros = plan.schedule.micro_count;
  const bool grid = is_grid(places) && micros % pipelines == 0;
  Setter set(loaded);
  const ParallelSettings plain;
  const std::vector<std::string> holders = grid ? plain.holders : texts_of(places);
  set.refuse("parallel.schedule", parallel.schedule, plain.schedule);
  set.refuse("parallel.order", parallel.order, plain.order);
  set.refuse("parallel.chunks", parallel.chunks, plain.chunks);
  set.refuse("parallel.memory", parallel.memory, plain.memory);
  set.refuse("parallel.recompute", parallel.recompute, plain.recompute);
  set.refuse("parallel.holders", parallel.holders,
             parallel.holders.empty() ? plain.holders : holders);
  set.decide("parallel.stages", parallel.stages, static_cast<int32_t>(places.size()));
  set.decide("parallel.pipelines", parallel.pipelines, grid ? pipelines : 1);
  set.decide("parallel.micros", parallel.micros, grid ? micros / pipelines : micros);
  set.decide("parallel.split_backward", parallel.split_backward, plan.split_backward);
  set.decide("parallel.dispatch", parallel.dispatch,
             std::string(plan.dispatch == Dispatch::Ready ? "ready" : "listed"));
  set.suggest("parallel.optimizer", parallel.optimizer,
              plan.update.staggered ? "staggered" : "barrier");
  set.suggest("parallel.all_reduce", parallel.all_reduce, plan.schedule.all_reduce);
  if (!set.status().ok()) return set.status();
  if (!grid) {
    parallel.holders = holders;
    loaded.origin["parallel.holders"] = cat("plan ", parallel.plan);
  }
  return ok();
}

}  // namespace tenuto
