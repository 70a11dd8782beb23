#include "run/governor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "run/descriptor.h"

namespace tenuto {

namespace {

constexpr std::string_view kPrefix = "tenuto-";
constexpr int64_t kPeriod = 100'000;    // microseconds
constexpr int64_t kLeastQuota = 1'000;  // that the kernel takes, in microseconds

// Writes a file of the kernel. Returns 0 or the errno. Where the kernel has no such file, it lets
// nobody make one.
int write_control(const std::string& path, const std::string& text, int how) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644));
  if (file.number() < 0) return errno;
  const ssize_t count = ::write(file.number(), text.data(), text.size());
  if (count < 0) return errno;
  return count == static_cast<ssize_t>(text.size()) ? 0 : EIO;
}

// 0 also for a process that has ended.
int move_process(int32_t process, const std::string& group) {
  const int failure = write_control(group + "/cgroup.procs", cat(process, "\n"), O_APPEND);
  return failure == ESRCH ? 0 : failure;
}

// The path of this process's group in the hierarchy with this controller; "" = version 2. A line is
// "NUMBER:CONTROLLERS:PATH". The root, if there is no such line.
std::string own_group(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string list = cat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string_view path = line.substr(second + 1);
    if (list.find(cat(",", controller, ",")) != std::string::npos && path != "/") {
      return std::string(path);
    }
  }
  return {};
}

bool is_folder(const std::string& path) {
  std::error_code failure;
  return std::filesystem::is_directory(path, failure);
}

}  // namespace

GovernorSettings governor_here(HostJob job, int64_t started,
                               std::function<std::optional<int64_t>(HostJob)> started_of) {
  GovernorSettings here;
  here.job = job;
  here.started = started;
  here.started_of = std::move(started_of);
  here.remove_folder = [](const std::string& path) { (void)::rmdir(path.c_str()); };
  return here;
}

Governor::Governor(GovernorSettings settings) : settings_(std::move(settings)) {
  remove_left_behind(places());
}

Governor::~Governor() { remove(); }

std::string Governor::group_of(const Place& place) const {
  return cat(place.folder, "/", kPrefix, settings_.job, "-", settings_.started);
}

// First the group of this process, which may be given to it to divide, then the root. A path that
// belongs to another view of the groups (a container's) is not there.
std::vector<Governor::Place> Governor::places() const {
  const auto own = read_file(settings_.own);
  const std::string text = own.ok() ? own.value() : std::string();
  std::vector<Place> all;
  const auto add = [&all](const std::string& root, const std::string& group, bool is_second) {
    if (!group.empty() && is_folder(root + group)) all.push_back({root + group, is_second});
    if (is_folder(root)) all.push_back({root, is_second});
  };
  std::error_code failure;
  if (std::filesystem::exists(settings_.groups + "/cgroup.controllers", failure)) {
    add(settings_.groups, own_group(text, ""), true);
    return all;
  }
  for (const char* name : {"/cpu", "/cpu,cpuacct"}) {
    add(settings_.groups + name, own_group(text, "cpu"), false);
  }
  return all;
}

// The groups of jobs whose processes have ended: "tenuto-PROCESS-START".
void Governor::remove_left_behind(const std::vector<Place>& all) const {
  for (const Place& place : all) {
    std::error_code failure;
    std::vector<std::string> dead;
    for (std::filesystem::directory_iterator each(place.folder, failure), end;
         !failure && each != end; each.increment(failure)) {
      const std::string name = each->path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      const std::string_view rest = std::string_view(name).substr(kPrefix.size());
      const size_t dash = rest.find('-');
      if (dash == std::string_view::npos) continue;
      const auto process = number_in<int32_t>(rest.substr(0, dash));
      const auto started = number_in<int64_t>(rest.substr(dash + 1));
      if (!process || !started) continue;
      if (settings_.started_of(HostJob{*process}) != started) dead.push_back(each->path().string());
    }
    for (const std::string& folder : dead) settings_.remove_folder(folder);
  }
}

bool Governor::limit(const Place& place, double cores) const {
  const std::string group = group_of(place);
  const auto quota =
      std::max<int64_t>(kLeastQuota, std::llround(cores * static_cast<double>(kPeriod)));
  if (place.is_second) {
    const std::string text = cores > 0 ? cat(quota, " ", kPeriod) : cat("max ", kPeriod);
    return write_control(group + "/cpu.max", text + "\n", O_TRUNC) == 0;
  }
  const std::string text = cores > 0 ? cat(quota) : std::string("-1");
  return write_control(group + "/cpu.cfs_period_us", cat(kPeriod, "\n"), O_TRUNC) == 0 &&
         write_control(group + "/cpu.cfs_quota_us", text + "\n", O_TRUNC) == 0;
}

// Makes the group, in the first place where this works. Tried once: rights do not change.
bool Governor::open() {
  if (was_tried_) return place_.has_value();
  was_tried_ = true;
  const std::vector<Place> all = places();
  std::string why = all.empty() ? cat(settings_.groups, " has no groups for processors") : "";
  for (const Place& place : all) {
    const std::string group = group_of(place);
    if (::mkdir(group.c_str(), 0755) != 0 && errno != EEXIST) {
      why = cat("cannot make ", group, ": ", std::strerror(errno));
      continue;
    }
    if (limit(place, 0)) {
      place_ = place;
      outcome_ = cat("the job is held to what the ledger allows it by the control group ", group);
      return true;
    }
    settings_.remove_folder(group);
    why = cat(group, " would have no limit of processors");
  }
  outcome_ =
      cat("the job is held to what the ledger allows it by pauses of its replicas, because "
          "no control group can be made: ",
          why);
  return false;
}

bool Governor::hold(double cores, const std::vector<int32_t>& processes) {
  if (!(cores > 0) && !place_) return true;  // nothing is limited
  if (!open()) return false;
  const std::string group = group_of(*place_);
  bool is_whole = true;
  for (const int32_t process : processes) {
    if (moved_.count(process) > 0) continue;
    if (move_process(process, group) == 0) {
      moved_.insert(process);
    } else {
      is_whole = false;
    }
  }
  std::erase_if(moved_, [&processes](int32_t process) {
    return std::find(processes.begin(), processes.end(), process) == processes.end();
  });
  if (cores_ != cores) {
    if (!limit(*place_, cores)) return false;
    cores_ = cores;
  }
  return is_whole;
}

void Governor::remove() {
  if (!place_) return;
  for (const int32_t process : moved_) (void)move_process(process, place_->folder);
  settings_.remove_folder(group_of(*place_));
  moved_.clear();
  place_.reset();
}

}  // namespace tenuto
