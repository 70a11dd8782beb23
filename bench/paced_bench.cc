// The measured iteration time over the priced one, with eight paced worker processes on this
// machine over loopback: on the virtual clock (target: within 1 %, lag valid) and in real
// time (within 5 %).
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "plan/make_plan.h"
#include "rehearsal/paced.h"
#include "rehearsal/virtual_clock.h"
#include "runtime/worker.h"
#include "sim/price.h"
#include "transport/process/process_wire.h"

namespace tenuto {
namespace {

constexpr int kWarmUp = 2;
constexpr Duration kLimit = std::chrono::seconds(30);

struct Case {
  int32_t pipelines = 1, stages = 1;
  std::string clock;
  double op_ms = 5;
  std::string order = "1f1b";
};

// A worker's report of its run, sent by value through a socket.
struct Telling {
  int32_t iterations = 0;
  int64_t lag_median = 0, lag_p99 = 0, lag_worst = 0;
  int32_t lag_valid = 0;
  int64_t finishes[256] = {};     // when each step had ended, on the machine's monotonic clock
  int64_t virtual_end[256] = {};  // the end of each step's last op on the worker's clock
};

struct Outcome {
  double priced_ms = 0, measured_ms = 0, worst_ms = 0, virtual_ms = 0;
  Telling slowest;  // the lag of the worker with the largest p99
};

[[noreturn]] void give_up(const std::string& sentence) {
  std::fprintf(stderr, "paced_bench: %s\n", sentence.c_str());
  _exit(1);
}

template <class T>
void put(int file, const T* data, size_t count) {
  const auto* bytes = reinterpret_cast<const char*>(data);
  size_t left = count * sizeof(T);
  while (left > 0) {
    const ssize_t done = write(file, bytes, left);
    if (done <= 0) give_up("a worker process has gone");
    bytes += done;
    left -= static_cast<size_t>(done);
  }
}

template <class T>
void get(int file, T* data, size_t count) {
  auto* bytes = reinterpret_cast<char*>(data);
  size_t left = count * sizeof(T);
  while (left > 0) {
    const ssize_t done = read(file, bytes, left);
    if (done <= 0) give_up("a worker process has gone");
    bytes += done;
    left -= static_cast<size_t>(done);
  }
}

Job job_of(const Case& of, int32_t micros) {
  Job job;
  job.parallel.pipelines = of.pipelines;
  job.parallel.stages = of.stages;
  job.parallel.micros = micros;
  job.parallel.order = of.order;
  job.device.kind = "paced";
  job.device.clock = of.clock;
  job.device.forward_ms = job.device.backward_input_ms = job.device.backward_weight_ms = {of.op_ms};
  return job;
}

Plan plan_of(const Job& job) {
  Shape shape;
  shape.stages = shape.layers = job.parallel.stages;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.order = job.parallel.order;
  shape.split_backward = shape.order == "zb-h1";
  const Result<Plan> plan = make_plan(shape);
  if (!plan.ok()) give_up(plan.error().message);
  return plan.value();
}

Duration price_of(const Job& job, const Plan& plan) {
  Model model;
  const Duration op = from_milliseconds(job.device.forward_ms[0]);
  model.layers.assign(static_cast<size_t>(job.parallel.stages),
                      {op, op, op, {job.device.message_bytes}, {}, {job.device.parameter_bytes}});
  const auto timeline = price(plan, model, uniform_cluster(job.worker_count(), {}));
  if (!timeline.ok()) give_up(timeline.error().message);
  return timeline.value().makespan;
}

// A barrier of all workers: one message to the parent and one back.
void meet(int file) {
  char byte = 0;
  put(file, &byte, 1);
  get(file, &byte, 1);
}

void connect_all(Transport& transport, QueueMailbox& mailbox, int32_t self, int32_t count,
                 const std::vector<char>& addresses) {
  std::set<Ticket> tickets;
  for (int32_t peer = self + 1; peer < count; ++peer) {
    const Ticket ticket = fresh_ticket();
    tickets.insert(ticket);
    const Address address{addresses.data() + static_cast<size_t>(peer) * 64};
    const Status status = transport.connect({peer}, address, ticket);
    if (!status.ok()) give_up(status.error().message);
  }
  while (!tickets.empty()) {
    const Result<Done> done = mailbox.wait(kLimit);
    if (!done.ok()) give_up(done.error().message);
    if (!done.value().status.ok()) give_up(done.value().status.error().message);
    tickets.erase(done.value().ticket);
  }
}

// A worker process from its fork to its end.
[[noreturn]] void work(int file, int32_t self, const Job& job, const Plan& plan, int iterations) {
  sharpen_timer();
  QueueMailbox mailbox;
  Result<std::unique_ptr<Transport>> made =
      make_process_wire({}, {"bench", "token", kWireVersion, {self}, 1}, mailbox);
  if (!made.ok()) give_up(made.error().message);
  Transport& transport = *made.value();
  char address[64] = {};
  std::snprintf(address, sizeof(address), "%s", transport.address().text.c_str());
  put(file, address, sizeof(address));
  std::vector<char> addresses(static_cast<size_t>(job.worker_count()) * sizeof(address));
  get(file, addresses.data(), addresses.size());
  connect_all(transport, mailbox, self, job.worker_count(), addresses);
  meet(file);
  Telling telling;
  {
    const StageId stage{self % job.parallel.stages};
    const auto device = make_paced(job, plan, {stage}, monotonic_clock(), mailbox);
    LinkClock links = make_link_clock(job, plan, {self});
    VirtualClock clock(links);
    const bool on_virtual = job.device.clock == "virtual";
    Runner runner({&transport, device.get(), device.get(), &mailbox, &monotonic_clock(),
                   on_virtual ? &clock : nullptr});
    StepInput input;
    input.plan = &plan;
    input.self = {self};
    input.epoch = 1;
    input.limits.silence = kLimit;
    for (int step = 0; step < iterations + kWarmUp; ++step) {
      input.step = step;
      const auto events = runner.run_step(input);
      if (!events.ok()) give_up(events.error().message);
      telling.finishes[step] = monotonic_clock().now().count();
      telling.virtual_end[step] = events.value().back().finish.count();
    }
    telling.iterations = iterations + kWarmUp;
    const Lag lag = device->lag();
    telling.lag_median = lag.median.count();
    telling.lag_p99 = lag.p99.count();
    telling.lag_worst = lag.worst.count();
    telling.lag_valid = lag.valid() ? 1 : 0;
  }
  put(file, &telling, 1);
  meet(file);
  const Status closed = transport.close(kLimit);
  _exit(closed.ok() ? 0 : 1);
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

Outcome measure(const Case& of, int32_t micros, int iterations) {
  const Job job = job_of(of, micros);
  const Plan plan = plan_of(job);
  const auto count = static_cast<size_t>(job.worker_count());
  std::vector<int> files;
  std::vector<pid_t> children;
  for (size_t w = 0; w < count; ++w) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) give_up("no socket pair");
    const pid_t child = fork();
    if (child < 0) give_up("cannot fork");
    if (child == 0) {
      close(pair[0]);
      for (const int file : files) close(file);
      work(pair[1], static_cast<int32_t>(w), job, plan, iterations);
    }
    close(pair[1]);
    files.push_back(pair[0]);
    children.push_back(child);
  }
  std::vector<char> addresses(count * 64);
  for (size_t w = 0; w < count; ++w) get(files[w], addresses.data() + w * 64, 64);
  for (const int file : files) put(file, addresses.data(), addresses.size());
  const auto gather = [&] {
    char byte = 0;
    for (const int file : files) get(file, &byte, 1);
    for (const int file : files) put(file, &byte, 1);
  };
  gather();
  std::vector<Telling> tellings(count);
  for (size_t w = 0; w < count; ++w) get(files[w], &tellings[w], 1);
  gather();
  for (const int file : files) close(file);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) give_up("a worker process has failed");
  }
  Outcome outcome;
  outcome.priced_ms = to_milliseconds(price_of(job, plan));
  std::vector<double> real, on_virtual;
  for (int step = kWarmUp; step < tellings[0].iterations; ++step) {
    const auto& finishes = tellings[0].finishes;
    real.push_back(to_milliseconds(Duration(finishes[step] - finishes[step - 1])));
    const auto& ends = tellings[0].virtual_end;
    on_virtual.push_back(to_milliseconds(Duration(ends[step] - ends[step - 1])));
  }
  outcome.measured_ms = median(real);
  outcome.virtual_ms = median(on_virtual);
  outcome.worst_ms = *std::max_element(real.begin(), real.end());
  outcome.slowest = *std::max_element(
      tellings.begin(), tellings.end(),
      [](const Telling& left, const Telling& right) { return left.lag_p99 < right.lag_p99; });
  return outcome;
}

void print_row(const Case& of, const Outcome& outcome, bool json, bool first) {
  const double ratio = outcome.measured_ms / outcome.priced_ms;
  const bool on_virtual = of.clock == "virtual";
  const Telling& lag = outcome.slowest;
  const char* verdict = !on_virtual ? "-" : lag.lag_valid != 0 ? "valid" : "invalid";
  if (json) {
    std::printf(
        "%s{\"pipelines\": %d, \"stages\": %d, \"order\": \"%s\", \"clock\": \"%s\", "
        "\"op_ms\": %g, \"priced_ms\": %.6f, \"measured_ms\": %.6f, \"worst_ms\": %.6f, "
        "\"virtual_ms\": %.6f, \"ratio\": %.6f, \"lag_median_us\": %.1f, "
        "\"lag_p99_us\": %.1f, \"lag_worst_us\": %.1f, \"lag\": \"%s\"}",
        first ? "" : ",\n ", of.pipelines, of.stages, of.order.c_str(), of.clock.c_str(), of.op_ms,
        outcome.priced_ms, outcome.measured_ms, outcome.worst_ms, outcome.virtual_ms, ratio,
        static_cast<double>(lag.lag_median) / 1e3, static_cast<double>(lag.lag_p99) / 1e3,
        static_cast<double>(lag.lag_worst) / 1e3, verdict);
    return;
  }
  std::printf("%dx%d %-6s %-8s %5g %10.3f %10.3f %10.3f %8.4f %8.0f %8.0f %8.0f %s\n", of.pipelines,
              of.stages, of.order.c_str(), of.clock.c_str(), of.op_ms, outcome.priced_ms,
              outcome.measured_ms, outcome.worst_ms, ratio,
              static_cast<double>(lag.lag_median) / 1e3, static_cast<double>(lag.lag_p99) / 1e3,
              static_cast<double>(lag.lag_worst) / 1e3, verdict);
  std::fflush(stdout);
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  CLI::App app{"Measured over priced iterations of paced workers", "paced_bench"};
  bool json = false;
  int iterations = 12;
  int micros = 8;
  std::string clock = "both";
  app.add_flag("--json", json, "print JSON instead of a table");
  app.add_option("--iterations", iterations, "measured iterations of each case")
      ->check(CLI::Range(1, 250));
  app.add_option("--micros", micros, "micro-batches per pipeline")->check(CLI::Range(1, 1024));
  app.add_option("--clock", clock, "which clock")
      ->check(CLI::IsMember({"virtual", "real", "both"}));
  CLI11_PARSE(app, count, arguments);
  std::vector<tenuto::Case> cases;
  for (const std::string order : {"1f1b", "zb-h1"}) {
    for (const auto& [pipelines, stages] : {std::pair{2, 4}, std::pair{1, 8}}) {
      if (clock != "real") cases.push_back({pipelines, stages, "virtual", 5, order});
      if (clock != "virtual") cases.push_back({pipelines, stages, "real", 10, order});
    }
  }
  std::stable_sort(cases.begin(), cases.end(),
                   [](const tenuto::Case& a, const tenuto::Case& b) { return a.clock < b.clock; });
  if (json) {
    std::printf("[");
  } else {
    std::printf(
        "%d micro-batches per pipeline, medians of %d iterations, times in ms, lag in us of "
        "the worker with the largest p99\n%-10s %-8s %5s %10s %10s %10s %8s %8s %8s %8s\n",
        micros, iterations, "workers", "clock", "op", "priced", "measured", "worst", "ratio",
        "lag p50", "p99", "worst");
  }
  bool first = true;
  for (const tenuto::Case& of : cases) {
    std::fflush(stdout);
    tenuto::print_row(of, tenuto::measure(of, micros, iterations), json, first);
    first = false;
  }
  if (json) std::printf("]\n");
  return 0;
}
