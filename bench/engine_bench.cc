// The engine's cost on the CPU. Each figure is the ratio of two variants measured in turns in this
// run: the split backward (input and weight gradient apart) over the fused one, gradients summed in
// fixed point over those in fp32, and the plain libtorch loop's step over the engine's under the
// worker's real loop.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "engine/engine.h"
#include "plan/make_plan.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "truth/plain_reference.h"
#include "world/fit.h"
// After headers that may define a CHECK of their own.
#include "base/check.h"

namespace tenuto {
namespace {

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<int64_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

struct GptShape {
  int32_t width, layers, sequence, rows;
};

Job job_of(const GptShape& of, const std::string& text, bool split) {
  Job job;
  job.data.paths = {text};
  job.steps = 1000;
  job.model.width = of.width;
  job.model.layers = of.layers;
  job.model.heads = of.width / 32;
  job.model.sequence = of.sequence;
  job.parallel.micro_rows = of.rows;
  job.parallel.split_backward = split;
  return job;
}

Plan plan_of(const Job& job) {
  Shape shape;
  shape.micros = job.parallel.micros;
  shape.layers = cut_layers(job.model);
  shape.split_backward = job.parallel.split_backward;
  return expect(make_plan(shape));
}

// An engine that runs single ops.
struct Seat {
  Seat(const Job& job, const Plan& plan) : compute(expect(make_engine(job, plan, {{0}}, mailbox))) {
    CHECK(compute->begin(0).ok(), "a step begins");
  }
  double milliseconds(OpKind kind) {
    const Op op{kind, ValueKind::None, -1, {0}, {0}, {}, {}};
    CHECK(compute->start(op, {}, Ticket{1}).ok(), "an op starts");
    const Done done = expect(mailbox.wait(std::chrono::seconds(600)));
    CHECK(done.status.ok(), done.status.error().message);
    return to_milliseconds(done.finish - done.start);
  }
  QueueMailbox mailbox;
  std::unique_ptr<Device> compute;
};

// A variant and the one that it is compared with; `unit` names their unit.
struct Row {
  std::string name, unit;
  double own = 0, other = 0, ratio = 0, target = 0;
};

// The time of a micro-batch's backward in `job` over that in `other`.
Row backward_over_other(const std::string& name, const Job& job, const Job& other, int rounds,
                        double target) {
  Seat own(job, plan_of(job)), beside(other, plan_of(other));
  const auto backward = [](Seat& seat, const Job& of) {
    seat.milliseconds(OpKind::Forward);
    const double input = seat.milliseconds(OpKind::BackwardInput);
    return of.parallel.split_backward ? input + seat.milliseconds(OpKind::BackwardWeight) : input;
  };
  std::vector<double> own_times, other_times;
  for (int round = -2; round < rounds; ++round) {
    const double first = backward(beside, other), second = backward(own, job);
    if (round < 0) continue;  // caches and allocators warm up
    other_times.push_back(first);
    own_times.push_back(second);
  }
  Row row{name, "ms", median(own_times), median(other_times), 0, target};
  row.ratio = row.own / row.other;
  return row;
}

Row split_over_fused(const GptShape& of, const std::string& text, int rounds) {
  return backward_over_other(cat("split backward, width ", of.width), job_of(of, text, true),
                             job_of(of, text, false), rounds, 1.10);
}

Row reproducible_over_fast(const GptShape& of, const std::string& text, int rounds) {
  Job exact = job_of(of, text, false);
  exact.resilience.numerics = "reproducible";
  return backward_over_other(cat("reproducible sums, ", of.rows * of.sequence, " tokens"), exact,
                             job_of(of, text, false), rounds, 1.30);
}

Row engine_over_plain(const GptShape& of, const std::string& text, int rounds) {
  const Job job = job_of(of, text, false);
  const Plan plan = plan_of(job);
  QueueMailbox mailbox;
  const auto compute = expect(make_engine(job, plan, {{0}}, mailbox));
  MemoryNetwork network;
  const auto transport =
      make_memory_transport(network, {"bench", "", kWireVersion, {0}, 0}, mailbox);
  Runner runner(
      {transport.get(), compute.get(), compute.get(), &mailbox, &monotonic_clock(), nullptr});
  StepInput input;
  input.plan = &plan;
  input.self = {0};
  input.limits.silence = std::chrono::seconds(600);
  PlainRun plain(job);
  std::vector<double> engine_times, plain_times;
  for (int round = -2; round < rounds; ++round) {
    const Duration start = monotonic_clock().now();
    const double loss = plain.step();
    const Duration middle = monotonic_clock().now();
    expect(runner.run_step(input));
    const Duration finish = monotonic_clock().now();
    ++input.step;
    double sum = 0;
    for (const MicroLoss& micro : compute->outcome().losses) sum += micro.loss;
    CHECK(sum / job.micro_count() == loss, "both compute the same");
    if (round < 0) continue;
    plain_times.push_back(to_milliseconds(middle - start));
    engine_times.push_back(to_milliseconds(finish - middle));
  }
  const double tokens = 1e3 * of.rows * of.sequence * job.micro_count();
  Row row{cat("1x1 training, width ", of.width), "tokens/s", tokens / median(engine_times),
          tokens / median(plain_times),          0,          0.97};
  row.ratio = row.own / row.other;
  return row;
}

// A temporary text file, removed at the end.
class Text {
 public:
  Text() : path_(std::filesystem::temp_directory_path() / cat("tenuto-engine-bench-", getpid())) {
    std::ofstream out(path_);
    for (int i = 0; i < 20000; ++i)
      out << i << " times " << i % 13 << " is " << i * (i % 13) << "\n";
  }
  ~Text() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void print(const std::vector<Row>& rows, bool json) {
  std::string lines;
  if (!json)
    std::printf("%-28s %10s %12s %12s %8s %8s\n", "engine", "unit", "ours", "plain", "ratio",
                "target");
  for (const Row& row : rows) {
    const char* side = row.target > 1 ? "<=" : ">=";
    if (!json) {
      std::printf("%-28s %10s %12.2f %12.2f %8.3f  %s %.2f\n", row.name.c_str(), row.unit.c_str(),
                  row.own, row.other, row.ratio, side, row.target);
    }
    lines += cat(lines.empty() ? "" : ",\n ", "{\"name\": \"", row.name, "\", \"unit\": \"",
                 row.unit, "\", \"ours\": ", row.own, ", \"plain\": ", row.other,
                 ", \"ratio\": ", row.ratio, ", \"target\": ", row.target, "}");
  }
  if (json) std::printf("[%s]\n", lines.c_str());
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  const bool json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (count > 1 && !json) {
    std::fprintf(stderr, "engine_bench: unknown argument '%s'; usage: engine_bench [--json]\n",
                 arguments[1]);
    return 2;
  }
  const tenuto::Text text;
  std::vector<tenuto::Row> rows;
  rows.push_back(tenuto::split_over_fused({256, 3, 64, 4}, text.path(), 41));
  rows.push_back(tenuto::split_over_fused({512, 3, 128, 4}, text.path(), 15));
  rows.push_back(tenuto::reproducible_over_fast({256, 3, 64, 4}, text.path(), 41));
  rows.push_back(tenuto::reproducible_over_fast({256, 3, 256, 8}, text.path(), 9));
  rows.push_back(tenuto::engine_over_plain({128, 4, 128, 4}, text.path(), 15));
  rows.push_back(tenuto::engine_over_plain({256, 4, 64, 4}, text.path(), 15));
  tenuto::print(rows, json);
  return 0;
}
