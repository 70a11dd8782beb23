#include "run/status_lines.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "monitor/verdict.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLinksShown = 8;  // whose network is printed

std::string text_of(const Json& status, const char* key) { return status[key].get<std::string>(); }

std::string number_of(const Json& status, const char* key) { return status[key].dump(); }

// The first line of every run.
std::string first_line(const Json& status) {
  return cat(text_of(status, "job"), ": step ", number_of(status, "step"), " of ",
             number_of(status, "steps"), ", ", text_of(status, "situation"), "\n");
}

// What is done about troubles, of what can be changed while the run goes on.
std::string treatment_line(const Json& status) {
  constexpr std::array<std::array<const char*, 2>, 4> kShown = {{{"treatment", "all troubles"},
                                                                 {"slow_links", "slow links"},
                                                                 {"slow_workers", "slow workers"},
                                                                 {"layers", "layers"}}};
  std::string line;
  for (const auto& [key, what] : kShown) {
    // Absent in the answer of an older coordinator.
    const std::string how = status.contains(key) ? text_of(status, key) : std::string();
    if (!how.empty()) line += cat(line.empty() ? "" : ", ", what, ": ", how);
  }
  return line + "\n";
}

std::string network_lines(const Json& network) {
  std::string lines;
  for (size_t i = 0; i < std::min(network.size(), kLinksShown); ++i) {
    lines += cat("network ", number_of(network[i], "first"), "-", number_of(network[i], "second"),
                 ": round trip ", number_of(network[i], "round_trip_ms"), " ms, varies by ",
                 number_of(network[i], "variation_ms"), " ms, ", number_of(network[i], "repeated"),
                 " packets sent again\n");
  }
  if (network.size() > kLinksShown) {
    lines += cat("network: ", network.size() - kLinksShown, " more links; --json lists them\n");
  }
  return lines;
}

// Empty for a worker of which there is nothing to say.
std::string worker_line(const Json& worker) {
  const std::string joining = text_of(worker, "joining");
  const bool alive = worker["alive"].get<bool>();
  if (alive && joining == "no" && !worker["slow"].get<bool>()) return {};
  const char* what = joining == "receiving"       ? "receives the state"
                     : joining == "invited"       ? "is preparing to join"
                     : alive                      ? "is slow"
                     : worker["came"].get<bool>() ? "is dead"
                                                  : "has not connected yet";
  const std::string reason = alive && joining == "no" ? worker.value("reason", "") : "";
  return cat("worker ", number_of(worker, "worker"), " ", what, reason.empty() ? "" : ": ", reason,
             "\n");
}

std::string synchronous_lines(const Json& status) {
  std::string lines = first_line(status);
  lines += cat("epoch ", number_of(status, "epoch"), ": ", number_of(status, "members"), " of ",
               status["workers"].size(), " workers\n");
  lines += cat("plan ", number_of(status, "plan_serial"), ": ", text_of(status, "plan"),
               ", in force from step ", number_of(status, "plan_from"), "\n");
  lines += treatment_line(status);
  for (const Json& link : status["links"]) {
    lines += cat("link ", number_of(link, "first"), "-", number_of(link, "second"),
                 " is slow: round trip ", number_of(link, "round_trip_ms"), " ms");
    const std::string scope = scope_text(link.value("scope", ""));
    lines += cat(scope.empty() ? "" : "; ", scope, "\n");
  }
  // Absent from the answer of an older coordinator.
  lines += network_lines(status.value("network", Json::array()));
  for (const Json& worker : status["workers"]) lines += worker_line(worker);
  return lines;
}

std::string served_lines(const Json& status) {
  const Json& processes = status["processes"];
  const auto alive = std::count_if(processes.begin(), processes.end(), [](const Json& process) {
    return process["alive"].get<bool>();
  });
  std::string lines = first_line(status);
  lines += cat("epoch ", number_of(status, "epoch"), ": ", alive, " of ", processes.size(),
               " processes\n");
  lines += cat("mode ", text_of(status, "mode"), ": the newest works were ",
               fixed(status["age"].get<double>(), 2), " gradients old; ", number_of(status, "mass"),
               " micro-batches are in updates\n");
  std::string keepers;
  for (const Json& process : processes) {
    if (process.value("ranges", 0) == 0) continue;
    keepers += cat(keepers.empty() ? "" : ", ", "worker ", number_of(process, "worker"));
  }
  if (!keepers.empty()) lines += cat("parameters are kept by ", keepers, "\n");
  for (const Json& process : processes) {
    if (process["alive"].get<bool>()) continue;
    lines += cat("worker ", number_of(process, "worker"), " (", text_of(process, "kind"),
                 ") is not connected\n");
  }
  return lines;
}

}  // namespace

std::string status_lines(const std::string& status) {
  const Json json = Json::parse(status);
  return json.contains("processes") ? served_lines(json) : synchronous_lines(json);
}

}  // namespace tenuto
