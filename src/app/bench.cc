#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/commit.h"
#include "app/worker_program.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = "_bench";

// Where benchmark programs lie: in the build, beside tenuto, installed.
std::vector<fs::path> places() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure).parent_path();
  return {self.parent_path().parent_path() / "bench", self,
          self.parent_path() / "libexec" / "tenuto"};
}

std::vector<fs::path> programs() {
  std::vector<fs::path> found;
  std::set<std::string> names;
  for (const fs::path& place : places()) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(place, failure)) {
      const std::string name = entry.path().filename().string();
      if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) continue;
      if (access(entry.path().c_str(), X_OK) != 0 || !entry.is_regular_file(failure)) continue;
      if (names.insert(name).second) found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& left, const auto& right) { return left.filename() < right.filename(); });
  return found;
}

std::string short_name(const fs::path& program) {
  std::string name = program.filename().string();
  name.resize(name.size() - kSuffix.size());
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string processor() {
  std::ifstream lines("/proc/cpuinfo");
  std::string line;
  while (std::getline(lines, line)) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// Why there is no benchmark program, and what to do.
std::string no_benchmarks() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure).parent_path();
  if (fs::exists(self.parent_path().parent_path() / "CMakeCache.txt", failure)) {
    return "no benchmark was built: configure with TENUTO_BENCHMARKS=ON (./run build does)";
  }
  return "benchmarks are not installed, they belong to the source tree: run `./run bench list` "
         "there";
}

int list() {
  const std::vector<fs::path> found = programs();
  for (const fs::path& program : found) std::printf("%s\n", short_name(program).c_str());
  if (found.empty()) {
    std::fprintf(stderr, "tenuto: %s\n", no_benchmarks().c_str());
  }
  return found.empty() ? 1 : 0;
}

int run(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const fs::path& program : programs()) {
    if (short_name(program) != name && program.filename() != name) {
      names.push_back(short_name(program));
      continue;
    }
    utsname machine{};
    uname(&machine);
    std::fprintf(stderr,
                 "machine: %s, %ld cores, %s %s\ncommit: %s (%s)\nsettings:", processor().c_str(),
                 sysconf(_SC_NPROCESSORS_ONLN), machine.sysname, machine.release, commit_text(),
                 build_type_text());
    for (const std::string& of : arguments) std::fprintf(stderr, " %s", of.c_str());
    std::fprintf(stderr, "%s\n", arguments.empty() ? " as built in" : "");
    const int failure = execute(program.string(), arguments);
    std::fprintf(stderr, "tenuto: cannot start %s: %s\n", program.c_str(), std::strerror(failure));
    return 1;
  }
  if (names.empty()) {
    std::fprintf(stderr, "tenuto: %s\n", no_benchmarks().c_str());
    return 1;
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest(name, views.data(), views.size());
  std::fprintf(stderr, "tenuto: there is no benchmark '%s'%s; `tenuto bench list` names them\n",
               name.c_str(), near.empty() ? "" : cat(": did you mean '", near, "'?").c_str());
  return 2;
}

}  // namespace

void add_bench_command(CLI::App& app, Chosen chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "NAME: a reproducible table of measurements; list: their names");
  // The name and all that follows are left alone, so that --help behind it is the benchmark's.
  command->prefix_command();
  command->footer(
      "What follows the name goes to the benchmark; `tenuto bench NAME --help` says what it takes."
      "\nExample: tenuto bench paced");
  command->callback([chosen = std::move(chosen), command] {
    chosen([command] {
      std::vector<std::string> words = command->remaining();
      if (words.empty()) {
        std::fprintf(stderr, "tenuto: bench needs the name of a benchmark, or `list`\n");
        return 2;
      }
      const std::string name = words.front();
      words.erase(words.begin());
      return name == "list" ? list() : run(name, words);
    });
  });
}

}  // namespace tenuto
