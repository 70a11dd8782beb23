#include "run/coordinator_address.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "run/record.h"
#include "run/run_directory.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kFile = "/coordinator.json";

// How a run has ended, by the last line of its events.
std::string end_of(const std::string& run) {
  const Result<std::string> events = read_file(run + "/events.jsonl");
  if (!events.ok() || events.value().empty()) return "it has not begun its first step";
  std::istringstream lines(events.value());
  Json last;
  for (std::string line; std::getline(lines, line);) {
    Json json = Json::parse(line, nullptr, false);
    const bool whole = json.is_object() && json.contains("event") && json.contains("step") &&
                       json.contains("reason") && json["reason"].is_string();
    if (whole) last = std::move(json);
  }
  if (last.is_null()) return "its events.jsonl is damaged";
  if (last["event"] == "end") {
    return cat("it ended at step ", last["step"].dump(), ": ", last["reason"].get<std::string>());
  }
  const Result<Figures> figures = read_figures(run, 0);
  return cat("it has not finished, and it has no coordinator, after ",
             figures.ok() ? figures.value().steps_done : 0,
             " steps: if its workers still wait, start `tenuto coordinator` with the same command "
             "line; otherwise continue it from its newest checkpoint with `tenuto train` or "
             "`tenuto coordinator` and --resume");
}

}  // namespace

Error not_live(const std::string& run, const std::string& otherwise) {
  const std::string holder = live_holder(run);
  if (!holder.empty()) return {Code::Disconnected, Reach::Call, otherwise};
  return invalid(cat(run, " is not a live run: ", end_of(run)));
}

Result<CoordinatorAddress> read_coordinator_address(const std::string& run) {
  const std::string path = run + kFile;
  const Result<std::string> file = read_file(path);
  std::error_code failure;
  if (!file.ok() && fs::exists(path, failure)) {
    return invalid(cat(file.error().message, ": only the user who started a run may query it"));
  }
  if (!file.ok()) {
    return not_live(run, cat(run, " is beginning or ending: process ", live_holder(run),
                             " runs it, but cannot answer now; try again soon"));
  }
  const Json json = Json::parse(file.value(), nullptr, false);
  const auto field = [&](const char* key) {
    const bool has = json.is_object() && json.contains(key) && json[key].is_string();
    return has ? json[key].get<std::string>() : std::string();
  };
  for (const char* key : {"address", "job", "token"}) {
    if (!field(key).empty()) continue;
    return not_live(
        run, cat(path, " is damaged: expected a JSON object with address, ",
                 "job and token, found no ", key, ": the run continues, but cannot be queried"));
  }
  return CoordinatorAddress{field("address"), field("job"), field("token"), field("tls")};
}

Status write_coordinator_address(const std::string& run, const CoordinatorAddress& where) {
  const Json json = {{"address", where.address},
                     {"job", where.job},
                     {"token", where.token},
                     {"tls", where.tls.empty() ? "" : fs::absolute(where.tls).string()}};
  return write_file(run + kFile, json.dump() + "\n", 0600);  // the token is a secret
}

void remove_coordinator_address(const std::string& run) {
  std::error_code failure;
  fs::remove(run + kFile, failure);
}

}  // namespace tenuto
