#include "base/process_stat.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/number.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Where the figures stand behind the name of the program.
constexpr size_t kState = 0, kParent = 1, kUserTicks = 11, kSystemTicks = 12, kStarted = 19;
constexpr int64_t kMostTicks = int64_t{1} << 40;  // so that nanoseconds fit

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \n";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    if (text.empty()) return words;
    words.push_back(text.substr(0, text.find_first_of(kBlank)));
    text.remove_prefix(words.back().size());
  }
}

std::optional<int64_t> ticks_in(std::string_view word) {
  const auto ticks = number_in<int64_t>(word);
  if (!ticks || *ticks < 0 || *ticks > kMostTicks) return std::nullopt;
  return ticks;
}

Duration time_of(int64_t ticks) {
  static const int64_t per_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  constexpr int64_t kSecond = 1'000'000'000;
  return Duration(ticks / per_second * kSecond + ticks % per_second * kSecond / per_second);
}

}  // namespace

// The name of the program is in brackets, and may have blanks and brackets itself.
std::optional<ProcessStat> process_stat_in(std::string_view stat) {
  const size_t name = stat.find(" ("), behind = stat.rfind(')');
  if (name == std::string_view::npos || behind == std::string_view::npos || behind < name) {
    return std::nullopt;
  }
  const std::vector<std::string_view> words = words_of(stat.substr(behind + 1));
  const auto process = number_in<int32_t>(stat.substr(0, name));
  if (!process || words.size() <= kStarted) return std::nullopt;
  const auto parent = number_in<int32_t>(words[kParent]);
  const auto own = ticks_in(words[kUserTicks]), of_kernel = ticks_in(words[kSystemTicks]);
  const auto started = ticks_in(words[kStarted]);
  if (!parent || !own || !of_kernel || !started) return std::nullopt;
  ProcessStat one;
  one.process = *process;
  one.parent = *parent;
  one.started = *started;
  one.has_ended = words[kState] == "Z" || words[kState] == "X";
  one.cpu = time_of(*own + *of_kernel);
  return one;
}

std::optional<ProcessStat> process_stat(int32_t process, const std::string& proc) {
  const auto text = read_file(cat(proc, "/", process, "/stat"));
  return text.ok() ? process_stat_in(text.value()) : std::nullopt;
}

std::vector<ProcessStat> descendants_of(int32_t process, const std::string& proc) {
  std::vector<ProcessStat> others;
  std::error_code failure;
  for (std::filesystem::directory_iterator each(proc, failure), end; !failure && each != end;
       each.increment(failure)) {
    const auto number = number_in<int32_t>(each->path().filename().string());
    // A process may end while this is read.
    const auto one = number ? process_stat(*number, proc) : std::nullopt;
    if (one) others.push_back(*one);
  }
  std::set<int32_t> family = {process};
  std::vector<ProcessStat> found;
  for (bool grows = true; grows;) {
    grows = false;
    for (const ProcessStat& one : others) {
      if (family.count(one.parent) == 0 || !family.insert(one.process).second) continue;
      found.push_back(one);
      grows = true;
    }
  }
  return found;
}

}  // namespace tenuto
