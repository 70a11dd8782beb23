// What readiness for trouble costs a run without any trouble. The same job runs in turns in two
// ways: with fixed lists, no detection and no planning; and with the default dispatch, detection
// and re-planning. Real processes, whose ops take real time. Besides the periods it shows
// instructions of all processes, where the kernel allows counting them, and their processor time.
#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/quantile.h"
#include "base/text.h"
#include "bench/program.h"
#include "bench/runs.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double kMostShare = 0.005;  // the allowed cost, as a share of an iteration
constexpr int64_t kWarmUp = 3;        // steps that are not measured

struct Asked {
  std::string tenuto;
  int rounds = 9;
  int64_t steps = 20;
  double op_ms = 10;
  std::string order = "zb-h1";
  bool json = false;
};

// Counts the instructions of this process and of all processes that it starts from now on.
class Instructions {
 public:
  Instructions() {
    perf_event_attr wanted{};
    wanted.size = sizeof(wanted);
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.inherit = wanted.exclude_kernel = wanted.exclude_hv = 1;
    file_ =
        static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  ~Instructions() {
    if (file_ >= 0) close(file_);
  }
  // The count up to now, of processes that have ended; 0 where counting is not possible.
  int64_t count() const {
    int64_t number = 0;
    if (file_ < 0 || read(file_, &number, sizeof(number)) != sizeof(number)) return 0;
    return number;
  }

 private:
  int file_ = -1;
};

// The processor time of all processes that this one has waited for.
double processor_ms() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto ms = [](const timeval& time) {
    return 1e3 * double(time.tv_sec) + double(time.tv_usec) / 1e3;
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

// Per step.
struct Cost {
  double period_ms = 0, processor_ms = 0, instructions = 0;
};

std::string job_text(const Asked& asked, bool ready) {
  std::string times;
  for (const char* op : {"forward", "backward_input", "backward_weight"}) {
    times += cat(op, "_ms = ", asked.op_ms, "\n");
  }
  return cat("[optimizer]\nkind = \"sgd\"\n[parallel]\npipelines = 2\nstages = 4\nmicros = 8\n",
             "order = \"", asked.order, "\"\ndispatch = \"", ready ? "auto" : "listed", "\"\n",
             "[device]\nkind = \"paced\"\nclock = \"real\"\n", times,
             "[resilience]\nslow_links = \"", ready ? "adapt" : "off", "\"\nslow_workers = \"",
             ready ? "adapt" : "observe", "\"\ndead_workers = \"", ready ? "continue" : "stop",
             "\"\n");
}

Cost measure(const Asked& asked, bool ready) {
  const WorkFolder folder;
  const Instructions instructions;
  const double before = processor_ms();
  const fs::path run = train(asked.tenuto, folder.path(), asked.steps, {}, job_text(asked, ready));
  const auto steps = static_cast<double>(asked.steps);
  Cost cost;
  cost.processor_ms = (processor_ms() - before) / steps;
  cost.instructions = static_cast<double>(instructions.count()) / steps;
  if (changes_of(run).size() > 1) give_up("the plan was changed although nothing was the matter");
  std::vector<Duration> periods;
  const std::vector<StepFigures> figures = figures_of(run);
  for (size_t step = kWarmUp; step < figures.size(); ++step) {
    periods.push_back(from_milliseconds(figures[step].period_ms));
  }
  cost.period_ms = to_milliseconds(quantile(periods, 0.5));
  return cost;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

// The medians of one figure without and with readiness, and of the difference in each round.
struct Compared {
  double without = 0, with = 0, more = 0;
};

Compared compare(const std::vector<Cost>& without, const std::vector<Cost>& with,
                 double Cost::*figure) {
  std::vector<double> first, second, shares;
  for (size_t i = 0; i < without.size(); ++i) {
    first.push_back(without[i].*figure);
    second.push_back(with[i].*figure);
    shares.push_back(first.back() > 0 ? second.back() / first.back() - 1 : 0);
  }
  return {median(first), median(second), median(shares)};
}

void print(const char* name, const Compared& row, bool counted) {
  if (!counted) {
    std::printf("%-26s not to be counted on this machine\n", name);
    return;
  }
  std::printf("%-26s %14.3f %14.3f %+8.2f %%\n", name, row.without, row.with, 100 * row.more);
}

int run(const Asked& asked) {
  std::vector<Cost> without, with;
  for (int round = 0; round < asked.rounds; ++round) {
    const bool ready_first = round % 2 == 1;
    for (const bool ready : {ready_first, !ready_first}) {
      (ready ? with : without).push_back(measure(asked, ready));
    }
  }
  const Compared period = compare(without, with, &Cost::period_ms);
  const Compared processor = compare(without, with, &Cost::processor_ms);
  const Compared instructions = compare(without, with, &Cost::instructions);
  const bool counted = instructions.without > 0;
  const bool kept = period.more <= kMostShare;
  if (asked.json) {
    const auto row = [](const Compared& of) {
      return Json{{"without", of.without}, {"with", of.with}, {"more", of.more}};
    };
    Json all = {{"period_ms", row(period)}, {"processor_ms", row(processor)}, {"kept", kept}};
    if (counted) all["instructions"] = row(instructions);
    std::printf("%s\n", all.dump().c_str());
    return kept ? 0 : 1;
  }
  std::printf(
      "a step of 2 x 4 workers, order %s, ops of %g ms in real time, medians of %d rounds\n"
      "%-26s %14s %14s %10s\n",
      asked.order.c_str(), asked.op_ms, asked.rounds, "", "without", "with", "more");
  print("period, ms", period, true);
  print("processor time, ms", processor, true);
  print("instructions", instructions, counted);
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  CLI::App app{"What being ready for slow and dead workers costs a run without any",
               "readiness_bench"};
  tenuto::Asked asked;
  asked.tenuto = tenuto::tenuto_of_this_build();
  app.add_option("--rounds", asked.rounds, "pairs of runs (9)")->check(CLI::Range(1, 1000));
  app.add_option("--steps", asked.steps, "of each run (20)")->check(CLI::Range(8, 10000));
  app.add_option("--op-ms", asked.op_ms, "length of each op (10)")->check(CLI::Range(1.0, 1000.0));
  app.add_option("--order", asked.order, "a name from tenuto schedule list, or auto (zb-h1)");
  app.add_option("--tenuto", asked.tenuto, "the program that trains");
  app.add_flag("--json", asked.json, "one JSON object");
  CLI11_PARSE(app, count, arguments);
  return tenuto::run(asked);
}
