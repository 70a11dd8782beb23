#include "bench/runs.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "ir/text.h"

namespace tenuto {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<Json> lines_of(const fs::path& path) {
  std::istringstream lines(read_all(path));
  std::vector<Json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

}  // namespace

void give_up(const std::string& sentence) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, sentence.c_str());
  std::exit(1);
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) give_up(cat("cannot read ", path.string()));
  return text.str();
}

WorkFolder::WorkFolder() {
  char name[] = "/tmp/tenuto-bench-XXXXXX";
  if (mkdtemp(name) == nullptr) give_up("cannot make a folder in /tmp");
  path_ = name;
}

WorkFolder::~WorkFolder() {
  std::error_code failure;
  fs::remove_all(path_, failure);
}

fs::path write_job(const fs::path& folder, int64_t steps, const std::vector<int64_t>& trace_steps,
                   const std::string& job) {
  const fs::path runs = folder / "runs", file = folder / "job.toml";
  std::string traced;
  for (const int64_t step : trace_steps) traced += cat(traced.empty() ? "" : ", ", step);
  std::ofstream(file) << "[job]\nname = \"run\"\nsteps = " << steps << "\ndirectory = \""
                      << runs.string() << "\"\ncheckpoint_every = 0\nvalidate_every = 0\n"
                      << "validate_micros = 0\ntrace_steps = [" << traced << "]\n"
                      << job;
  return file;
}

fs::path train(const std::string& tenuto, const fs::path& folder, int64_t steps,
               const std::vector<int64_t>& trace_steps, const std::string& job) {
  const fs::path runs = folder / "runs", log = folder / "log";
  const fs::path file = write_job(folder, steps, trace_steps, job);
  fs::remove_all(runs);
  const std::string command =
      cat("'", tenuto, "' train '", file.string(), "' --json > '", log.string(), "' 2>&1");
  if (std::system(command.c_str()) != 0) give_up(cat("a run failed: ", read_all(log)));
  return runs / "run";
}

Plan plan_of(const fs::path& run, int64_t serial) {
  const auto file = [&](int64_t of) {
    return run / (of < 2 ? std::string("plan-1.json") : cat("plan-1-", of, ".json"));
  };
  if (serial == 0) {
    for (serial = 1; fs::exists(file(serial + 1));) ++serial;
  }
  auto plan = plan_from_json(read_all(file(serial)), file(serial).string());
  if (!plan.ok()) give_up(plan.error().message);
  return std::move(plan).value();
}

std::vector<StepFigures> figures_of(const fs::path& run) {
  std::vector<StepFigures> figures;
  for (const Json& line : lines_of(run / "metrics.jsonl")) {
    StepFigures step;
    step.iteration_ms = line.value("iteration_ms", 0.0);
    step.period_ms = line.value("period_ms", 0.0);
    step.step_ms = line["step_ms"];
    step.loss = line["loss"];
    step.lag_valid = line.value("lag_valid", true);
    figures.push_back(step);
  }
  return figures;
}

std::vector<PlanChange> changes_of(const fs::path& run) {
  static const std::regex in_force("plan (\\d+) \\(.*\\) is in force from step (\\d+)");
  std::vector<PlanChange> changes = {{}};
  for (const Json& line : lines_of(run / "events.jsonl")) {
    const std::string reason = line["reason"];
    std::smatch found;
    if (line["event"] != "decision" || !std::regex_search(reason, found, in_force)) continue;
    changes.push_back({std::stoll(found[1].str()), std::stoll(found[2].str())});
  }
  return changes;
}

}  // namespace tenuto
