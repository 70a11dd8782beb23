#include "app/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/plan_file.h"
#include "base/contains.h"
#include "base/text.h"
#include "plan/make_plan.h"
#include "world/fit.h"
#include "world/keys.h"

namespace tenuto {

namespace {

// Takes from a schedule file what otherwise follows from the order.
Status take_schedule(LoadedJob& loaded) {
  ParallelSettings& parallel = loaded.job.parallel;
  const auto file = lists_from_file(parallel.schedule);
  if (!file.ok()) return file.error();
  const std::string from = cat("schedule ", parallel.schedule);
  const Schedule& lists = file.value().lists.schedule;
  struct Number {
    const char* key;
    int32_t* value;
    int32_t found;
    const char* what;
  };
  for (const Number& number :
       {Number{"parallel.stages", &parallel.stages, static_cast<int32_t>(lists.lists.size()),
               "workers"},
        Number{"parallel.micros", &parallel.micros, lists.micro_count, "micro-batches"}}) {
    std::string& origin = loaded.origin[number.key];
    if (origin != "default" && *number.value != number.found) {
      return invalid(cat(origin == "flag" ? "--" : origin + ": ", number.key, " = ", *number.value,
                         ": ", parallel.schedule, " has ", number.found, " ", number.what,
                         ": leave the key out or make them equal"));
    }
    *number.value = number.found;
    origin = from;
  }
  // Settings that the file gives and the job does not.
  if (std::string& origin = loaded.origin["parallel.split_backward"]; origin == "default") {
    parallel.split_backward = file.value().splits;
    origin = from;
  }
  if (std::string& origin = loaded.origin["parallel.dispatch"]; origin == "default") {
    parallel.dispatch = file.value().dispatch == Dispatch::Ready ? "ready" : "listed";
    origin = from;
  }
  return ok();
}

}  // namespace

Result<LoadedJob> load_effective_job(const std::string& path,
                                     const std::vector<std::string>& overrides) {
  Result<LoadedJob> loaded = load_job(path, overrides);
  if (!loaded.ok()) return loaded;
  ParallelSettings& parallel = loaded.value().job.parallel;
  std::map<std::string, std::string>& origin = loaded.value().origin;
  if (!parallel.plan.empty()) return loaded;
  if (!parallel.schedule.empty()) {
    const Status status = take_schedule(loaded.value());
    if (!status.ok()) return status.error();
    const auto misfit = find_misfit_of_workers(loaded.value().job);
    if (!misfit) return loaded;
    const auto from = origin.find(misfit->key.substr(0, misfit->key.find('.')));
    return invalid(cat(from == origin.end() ? std::string() : from->second + ": ", misfit->key, " ",
                       misfit->sentence));
  }
  std::vector<std::string_view> names{kAutoOrder};
  for (const OrderCard& card : order_cards()) names.push_back(card.name);
  if (contains(names, parallel.order)) {
    std::string& from = origin["parallel.split_backward"];
    if (from != "default") return loaded;
    parallel.split_backward = splits_by_default(parallel.order);
    from = "order " + parallel.order;
    return loaded;
  }
  const std::string& from = origin["parallel.order"];
  const std::string near = nearest(parallel.order, names.data(), names.size());
  return invalid(cat(from == "flag" ? cat("--parallel.order=", parallel.order) : from,
                     ": parallel.order \"", parallel.order, "\" is unknown",
                     near.empty() ? std::string() : cat(", did you mean ", near, "?"),
                     "; tenuto schedule list shows all"));
}

std::string config_text(const LoadedJob& loaded) { return to_toml(loaded.job, &loaded.origin); }

std::string config_json(const LoadedJob& loaded) {
  Job job = loaded.job;
  auto all = nlohmann::ordered_json::object();
  for (const Key& key : job_keys()) {
    const std::string name(key.name);
    const auto origin = loaded.origin.find(name);
    std::visit([&](const auto* value) { all[name]["value"] = *value; }, key.slot(job));
    if (name == kSecretKey) all[name]["value"] = nullptr;
    all[name]["origin"] = origin == loaded.origin.end() ? "default" : origin->second;
  }
  for (const Fault& fault : loaded.job.faults) {
    Job one;
    one.faults = {fault};
    auto table = nlohmann::ordered_json::object();
    for (const Key& key : fault_keys()) {
      const std::string name(key.name.substr(key.name.find('.') + 1));
      std::visit([&](const auto* value) { table[name] = *value; }, key.slot(one));
    }
    all["fault"].push_back(table);
  }
  return all.dump();
}

std::string key_help() {
  const Job defaults;
  size_t width = 0;
  for (const Key& key : job_keys()) width = std::max(width, key.name.size());
  std::string text;
  for (const Key& key : job_keys()) {
    std::string name(key.name);
    name.resize(width, ' ');
    text += cat("  --", name, "  ", key.help, " (", value_text(key, defaults), ")\n");
  }
  return text;
}

}  // namespace tenuto
