#include "run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/contains.h"
#include "base/file.h"
#include "base/text.h"
#include "run/checkpoint.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// The files that a run writes and that the next run of its name removes. The lock is not one of
// them; nor is coordinator.json, which the new run has already written by then.
constexpr std::array<std::string_view, 5> kFiles = {"config.toml", "metrics.jsonl", "events.jsonl",
                                                    "iterations.txt", "steps.svg"};
constexpr std::array<std::string_view, 3> kPrefixes = {"plan-", "trace-", "checkpoint-"};
// The second line of the lock, once the run has begun.
constexpr std::string_view kBegun = "begun\n";
// The pause between two checks of a lock whose holder is ending.
constexpr std::chrono::milliseconds kPause{10};

bool is_ours(const std::string& name) {
  const auto starts = [&](std::string_view prefix) { return name.rfind(prefix, 0) == 0; };
  return contains(kFiles, name) || std::any_of(kPrefixes.begin(), kPrefixes.end(), starts);
}

bool has_run_in(const std::string& path) {
  std::error_code failure;
  const auto size = fs::file_size(path + "/metrics.jsonl", failure);
  return (!failure && size > 0) || !list_checkpoints(path).empty();
}

// The text of the lock file: a line with the process that has taken the lock and, once its run has
// begun, the line kBegun.
std::string text_of(int lock) {
  char text[64] = {};
  const ssize_t count = pread(lock, text, sizeof(text) - 1, 0);
  return {text, count > 0 ? static_cast<size_t>(count) : 0};
}

// The process that has taken the lock; empty until it has written its number there.
std::string holder_of(int lock) {
  const std::string text = text_of(lock);
  return text.substr(0, text.find('\n'));
}

// True when no process of that number runs, though what it has started may still be ending.
bool has_ended(const std::string& process) {
  const Result<std::string> stat = read_file(cat("/proc/", process, "/stat"));
  if (!stat.ok()) return true;
  const size_t name_end = stat.value().rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return true;
  const char state = stat.value()[name_end + 2];
  return state == 'Z' || state == 'X';
}

Error refusal(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

// Takes the lock. If its holder has ended, waits, for `limit` at most, until the kernel has closed
// the files of all processes that had it open.
Status take_lock(int lock, const std::string& path, Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return refusal(cat("cannot lock ", path, "/lock: ", std::strerror(errno)));
    }
    const std::string holder = holder_of(lock);
    if (!holder.empty() && !has_ended(holder)) {
      return refusal(cat(path, " is in use by process ", holder,
                         ": wait for it, or give this run another name with --job.name=NAME"));
    }
    if (monotonic_clock().now() >= end) {
      return refusal(cat(path, " is still locked ", fixed(to_milliseconds(limit) / 1000, 1),
                         " s after process ", holder,
                         ", which held the lock, has ended: ", "`fuser ", path,
                         "/lock` names the process that holds it; if it is on another host, ",
                         "end it there, or give this run another name with --job.name=NAME"));
    }
    std::this_thread::sleep_for(kPause);
  }
  return ok();
}

// True when some run has worked in the folder.
bool is_run(const std::string& path) {
  std::error_code failure;
  return fs::exists(path + "/lock", failure) || fs::exists(path + "/config.toml", failure) ||
         has_run_in(path);
}

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

Result<RunDirectory> RunDirectory::open(const std::string& path, Beginning beginning,
                                        Duration limit, bool takes_up) {
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
  const Status taken = take_lock(run.lock_, path, limit);
  if (!taken.ok()) return taken.error();
  if (beginning == Beginning::Fresh && !takes_up && has_run_in(run.path_)) {
    const auto steps = list_checkpoints(run.path_);
    const std::string what = steps.empty() ? std::string("without a checkpoint): ")
                                           : cat("the checkpoint of step ", steps.back(),
                                                 "): continue it with --resume, ");
    return refusal(cat(path, " already holds a run (", what,
                       "replace it with --overwrite, or choose another name with --job.name=NAME"));
  }
  if (beginning == Beginning::Resume && !takes_up && list_checkpoints(run.path_).empty()) {
    return refusal(
        cat(path, " holds no checkpoint, so there is nothing to resume: ",
            has_run_in(run.path_) ? "begin again with --overwrite instead" : "leave --resume out"));
  }
  const std::string text = cat(getpid(), "\n", takes_up ? kBegun : std::string_view());
  if (ftruncate(run.lock_, 0) != 0 ||
      pwrite(run.lock_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return write_error(lock, errno);
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

bool RunDirectory::has_begun() const { return text_of(lock_).ends_with(kBegun); }

std::vector<int64_t> RunDirectory::checkpoints() const {
  if (beginning_ == Beginning::Overwrite && !has_begun()) return {};
  return list_checkpoints(path_);
}

bool RunDirectory::holds_run() const { return has_run_in(path_); }

bool RunDirectory::spares_earlier_run() const {
  return beginning_ == Beginning::Overwrite && !has_begun() && holds_run();
}

Status RunDirectory::clear(int64_t first_step) const {
  std::error_code failure;
  const auto size = static_cast<off_t>(text_of(lock_).size());
  const auto begun = static_cast<ssize_t>(kBegun.size());
  if (!has_begun() && pwrite(lock_, kBegun.data(), kBegun.size(), size) != begun) {
    return write_error(path_ + "/lock", errno);
  }
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
  if (name.empty()) {
    return invalid(
        "the name of the run is empty: give the folder that `tenuto train` has written, "
        "or its name under runs/");
  }
  std::error_code failure;
  const std::array<std::string, 2> paths = {name, cat("runs/", name)};
  for (const std::string& path : paths) {
    if (fs::is_directory(path, failure) && is_run(path)) {
      return fs::absolute(path, failure).lexically_normal().string();
    }
  }
  for (const std::string& path : paths) {
    if (!fs::is_directory(path, failure)) continue;
    return invalid(cat(path, " is not the folder of a run (it has no config.toml): give the one ",
                       "that `tenuto train` has written, such as ", path, "/NAME"));
  }
  return invalid(cat("there is no run at ", paths[0], " or ", paths[1],
                     ": give the folder that `tenuto train` has written"));
}

bool has_begun_in(const std::string& run) {
  const Result<std::string> lock = read_file(run + "/lock");
  return lock.ok() && lock.value().ends_with(kBegun);
}

bool is_held(const std::string& run) {
  const int lock = ::open((run + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return false;
  const bool is_free = flock(lock, LOCK_SH | LOCK_NB) == 0;
  ::close(lock);
  return !is_free;
}

std::string live_holder(const std::string& run) {
  const int lock = ::open((run + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return {};
  const bool is_free = flock(lock, LOCK_SH | LOCK_NB) == 0;
  const std::string holder = is_free ? std::string() : holder_of(lock);
  ::close(lock);
  return holder.empty() || has_ended(holder) ? std::string() : holder;
}

}  // namespace tenuto
