#include "app/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "app/checkpoint.h"
#include "base/contains.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// What a run writes; the lock stays.
constexpr std::array<std::string_view, 5> kFiles = {"config.toml", "metrics.jsonl", "events.jsonl",
                                                    "steps.svg", "coordinator.json"};
constexpr std::array<std::string_view, 3> kPrefixes = {"plan-", "trace-", "checkpoint-"};

bool is_ours(const std::string& name) {
  const auto starts = [&](std::string_view prefix) { return name.rfind(prefix, 0) == 0; };
  return contains(kFiles, name) || std::any_of(kPrefixes.begin(), kPrefixes.end(), starts);
}

bool holds_run(const std::string& path) {
  std::error_code failure;
  const auto size = fs::file_size(path + "/metrics.jsonl", failure);
  return (!failure && size > 0) || !list_checkpoints(path).empty();
}

std::string holder_of(int lock) {
  char text[32] = {};
  const ssize_t count = pread(lock, text, sizeof(text) - 1, 0);
  const std::string pid(text, count > 0 ? static_cast<size_t>(count) : 0);
  return pid.substr(0, pid.find('\n'));
}

Error refusal(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

// -1 when the name is not PREFIXnumberSUFFIX.
int64_t number_in(const std::string& name, std::string_view prefix, std::string_view suffix) {
  if (name.rfind(prefix, 0) != 0) return -1;
  const char* end = name.data() + name.size();
  int64_t number = -1;
  const auto parsed = std::from_chars(name.data() + prefix.size(), end, number);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr, end) != suffix) return -1;
  return number;
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const std::string& path, Beginning beginning) {
  std::error_code failure;
  RunDirectory run;
  run.path_ = fs::absolute(path, failure).lexically_normal().string();
  run.beginning_ = beginning;
  if (beginning == Beginning::Resume && !fs::is_directory(run.path_, failure)) {
    return refusal(cat(path, " does not exist, so there is nothing to resume: leave --resume out"));
  }
  fs::create_directories(run.path_, failure);
  if (failure) return refusal(cat("cannot make the folder ", path, ": ", failure.message()));
  const std::string lock = run.path_ + "/lock";
  run.lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (run.lock_ < 0) return refusal(cat("cannot write ", lock, ": ", std::strerror(errno)));
  if (flock(run.lock_, LOCK_EX | LOCK_NB) != 0) {
    return refusal(cat(path, " is in use by process ", holder_of(run.lock_),
                       ": wait for it, or give this run another name with --job.name=NAME"));
  }
  const std::string pid = cat(getpid(), "\n");
  if (ftruncate(run.lock_, 0) != 0 ||
      pwrite(run.lock_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return write_error(lock, errno);
  }
  if (beginning == Beginning::Fresh && holds_run(run.path_)) {
    const auto steps = list_checkpoints(run.path_);
    const std::string what =
        steps.empty() ? std::string("metrics") : cat("the checkpoint of step ", steps.back());
    return refusal(cat(path, " already holds a run (", what,
                       "): continue it with --resume, replace it with --overwrite, or choose "
                       "another name with --job.name=NAME"));
  }
  if (beginning == Beginning::Resume && list_checkpoints(run.path_).empty()) {
    return refusal(cat(path,
                       " holds no checkpoint, so there is nothing to resume: leave --resume "
                       "out, or begin again with --overwrite"));
  }
  return run;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      beginning_(other.beginning_),
      lock_(std::exchange(other.lock_, -1)) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

int64_t RunDirectory::next_epoch() const {
  int64_t newest = 0;
  std::error_code failure;
  if (beginning_ != Beginning::Resume) return 1;
  for (const auto& entry : fs::directory_iterator(path_, failure)) {
    newest = std::max(newest, number_in(entry.path().filename().string(), "plan-", ".json"));
  }
  return newest + 1;
}

Status RunDirectory::clear(int64_t first_step) const {
  std::error_code failure;
  if (beginning_ == Beginning::Overwrite) {
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(path_, failure)) {
      if (is_ours(entry.path().filename().string())) old.push_back(entry.path());
    }
    for (const fs::path& of : old) {
      fs::remove_all(of, failure);
      if (failure) return refusal(cat("cannot remove ", of.string(), ": ", failure.message()));
    }
  }
  remove_unfinished(path_, std::numeric_limits<int64_t>::max());
  return beginning_ == Beginning::Resume ? drop_metrics(first_step) : ok();
}

Status RunDirectory::drop_metrics(int64_t first_step) const {
  std::error_code failure;
  const std::string metrics = path_ + "/metrics.jsonl";
  if (!fs::exists(metrics, failure)) return ok();
  const Result<std::string> text = read_file(metrics);
  if (!text.ok()) return text.error();
  std::istringstream lines(text.value());
  std::string line, kept;
  while (std::getline(lines, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() < first_step) kept += line + "\n";
  }
  return kept == text.value() ? ok() : write_file(metrics, kept);
}

Result<std::string> find_run(const std::string& name) {
  std::error_code failure;
  for (const std::string& path : {name, cat("runs/", name)}) {
    if (fs::is_directory(path, failure) && !list_checkpoints(path).empty()) {
      return fs::absolute(path, failure).lexically_normal().string();
    }
  }
  return invalid(cat("there is no run with a checkpoint at ", name, " or runs/", name,
                     ": give the folder that `tenuto train` has written"));
}

}  // namespace tenuto
