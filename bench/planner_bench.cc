// The cost and the quality of the search for a layout: its time by the size of the problem, gaps to
// the best of all layouts on tiny problems, measured chains beside a reference planner, speed-ups
// over other planners.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "bench/planner_tables.h"

namespace {

constexpr std::string_view kTables[] = {"time", "tiny", "half", "chains", "sweep"};

int usage(const std::string& argument) {
  std::fprintf(stderr,
               "planner_bench: '%s': expected [time] [tiny] [half] [chains] [sweep] [--count N]"
               " [--csv FILE]; --count: problems of tiny and half; --csv: all rows of the sweep\n",
               argument.c_str());
  return argument == "--help" ? 0 : 2;
}

}  // namespace

int main(int count, char** arguments) {
  using namespace tenuto;
  keep_freed_memory();
  PlannerSettings settings;
  std::vector<std::string> tables;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const char* value = i + 1 < count ? arguments[i + 1] : "";
    if (argument == "--count" && std::atoi(value) > 0) {
      settings.count = std::atoi(value), ++i;
    } else if (argument == "--csv" && *value != '\0') {
      settings.csv = value, ++i;
    } else if (std::find(std::begin(kTables), std::end(kTables), argument) != std::end(kTables)) {
      tables.push_back(argument);
    } else {
      return usage(argument);
    }
  }
  const auto asked = [&](const char* table) {
    return tables.empty() || std::find(tables.begin(), tables.end(), table) != tables.end();
  };
  // First, because each of its processes begins with the memory of this one.
  if (asked("time")) print_times();
  if (asked("tiny")) print_tiny(settings, false);
  if (asked("half")) print_tiny(settings, true);
  if (asked("chains")) print_chains();
  if (asked("sweep") && !print_sweep(settings)) {
    std::fprintf(stderr, "planner_bench: cannot write '%s'\n", settings.csv.c_str());
    return 1;
  }
  return 0;
}
