#include "base/memory_left.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kSmall = 64 * kMebibyte;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number after `name` in a file of the kernel; without a name, the first word of the file.
std::optional<int64_t> number_in(const char* path, const std::string& name = "") {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!name.empty() && word != name) continue;
    if (!name.empty() && !(file >> word)) return {};
    char* end = nullptr;
    const long long number = std::strtoll(word.c_str(), &end, 10);
    return end == word.c_str() ? std::nullopt : std::optional<int64_t>(number);
  }
  return {};
}

int64_t left_of_machine() {
  const auto kibibytes = number_in("/proc/meminfo", "MemAvailable:");
  return kibibytes ? *kibibytes * 1024 : kUnlimited;
}

int64_t left_of_process() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto kibibytes = number_in("/proc/self/status", "VmSize:");
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited));
  return std::max<int64_t>(0, most - kibibytes.value_or(0) * 1024);
}

// The kernel drops the control group's cached files before it refuses memory, so their bytes count
// as free.
int64_t left_of_group() {
  const auto most = number_in("/sys/fs/cgroup/memory.max");  // "max" is no number
  const auto taken = number_in("/sys/fs/cgroup/memory.current");
  if (!most || !taken) return kUnlimited;
  const int64_t files = number_in("/sys/fs/cgroup/memory.stat", "file").value_or(0);
  return std::max<int64_t>(0, *most - std::max<int64_t>(0, *taken - files));
}

std::string words_of(double bytes) {
  constexpr double kGibibyte = 1024 * kMebibyte;
  return bytes < 10 * kGibibyte ? cat(fixed(bytes / kMebibyte, 0), " MiB")
                                : cat(fixed(bytes / kGibibyte, 1), " GiB");
}

}  // namespace

Bytes memory_left() { return {std::min({left_of_machine(), left_of_process(), left_of_group()})}; }

Status check_memory(const std::string& what, double bytes) {
  if (bytes <= kSmall) return ok();
  const auto left = static_cast<double>(memory_left().count);
  if (bytes <= left) return ok();
  return Error{Code::Exhausted, Reach::Call,
               cat(what, " needs ", words_of(bytes), " of memory, and ", words_of(left),
                   " are free: use a smaller job, or give it more memory")};
}

}  // namespace tenuto
