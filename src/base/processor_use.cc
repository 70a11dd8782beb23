#include "base/processor_use.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"

namespace tenuto {

namespace {

// What a short file of the kernel says, or the errno.
struct ShortText {
  std::string text;
  int failure = 0;
};

ShortText read_short(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {"", errno};
  std::array<char, 1024> buffer{};
  const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
  const int failure = got < 0 ? errno : 0;
  ::close(descriptor);
  return {std::string(buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))), failure};
}

Figure figure_of(int failure) {
  switch (failure) {
    case ENOENT:
    case ENOTDIR:
      return Figure::NotThere;
    case EACCES:
    case EPERM:
      return Figure::Forbidden;
    case EOPNOTSUPP:  // pressure that is switched off on the kernel's command line
      return Figure::NotCounted;
    default:
      return Figure::Unreadable;
  }
}

// Takes the next word off the text; empty at its end.
std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlank = " \n\t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlank));
  text.remove_prefix(word.size());
  return word;
}

// Time on a processor, time without one, and how often a thread has got one.
std::optional<std::array<int64_t, 3>> counts_in(std::string_view schedstat) {
  std::array<int64_t, 3> counts{};
  for (int64_t& count : counts) {
    const auto number = number_in<int64_t>(take_word(schedstat));
    if (!number || *number < 0) return std::nullopt;
    count = *number;
  }
  if (!take_word(schedstat).empty()) return std::nullopt;
  return counts;
}

// Of each thread below the folder. A thread that ends meanwhile has no file any more, so one that
// cannot be read only matters when there is no other.
void read_run_delays(const std::string& folder, ProcessorUse& use) {
  Figure why = Figure::NotThere;
  bool counted = false;
  std::error_code failure;
  for (std::filesystem::directory_iterator each(folder, failure), end; !failure && each != end;
       each.increment(failure)) {
    const auto thread = number_in<int64_t>(each->path().filename().string());
    const ShortText read = read_short(cat(each->path().string(), "/schedstat"));
    const auto counts = counts_in(read.text);
    if (thread && counts) {
      use.run_delay.emplace(*thread, Duration((*counts)[1]));
      counted = counted || (*counts)[0] > 0;
    } else {
      why = read.failure != 0 ? figure_of(read.failure) : Figure::Unreadable;
    }
  }
  if (failure) why = figure_of(failure.value());
  // The thread that reads this has run, so it has counts above 0 if there are any.
  if (!use.run_delay.empty()) why = counted ? Figure::Known : Figure::NotCounted;
  use.run_delay_is = why;
}

}  // namespace

std::optional<Duration> run_delay_in(std::string_view schedstat) {
  const auto counts = counts_in(schedstat);
  return counts ? std::optional(Duration((*counts)[1])) : std::nullopt;
}

std::optional<Duration> cpu_pressure_in(std::string_view pressure) {
  constexpr std::string_view kTotal = "total=";
  constexpr int64_t kMost = int64_t{1} << 50;  // microseconds; so that nanoseconds fit
  if (take_word(pressure) != "some") return std::nullopt;
  pressure = pressure.substr(0, pressure.find('\n'));
  for (std::string_view word = take_word(pressure); !word.empty(); word = take_word(pressure)) {
    if (word.substr(0, kTotal.size()) != kTotal) continue;
    const auto total = number_in<int64_t>(word.substr(kTotal.size()));
    if (!total || *total < 0 || *total > kMost) return std::nullopt;
    return std::chrono::microseconds(*total);
  }
  return std::nullopt;
}

Duration process_cpu_time() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + Duration(spent.tv_nsec);
}

ProcessorUse processor_use(const std::string& proc) {
  ProcessorUse use;
  use.cpu = process_cpu_time();
  read_run_delays(proc + "/self/task", use);
  const ShortText pressure = read_short(proc + "/pressure/cpu");
  if (pressure.failure != 0) {
    use.pressure_is = figure_of(pressure.failure);
  } else if (const auto waited = cpu_pressure_in(pressure.text)) {
    use.pressure = *waited;
    use.pressure_is = Figure::Known;
  } else {
    use.pressure_is = Figure::Unreadable;
  }
  use.at = monotonic_clock().now();
  return use;
}

}  // namespace tenuto
