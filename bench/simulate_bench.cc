// The cost of a price: ops per second in list order and under ready dispatch, growth with the
// number of micro-batches, validation, a step of 16,384 workers, and PyTorch's own dry run of the
// same schedule, measured in the same run.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/torch_csv.h"
#include "plan/make_plan.h"
#include "sim/price.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
  const Duration start = monotonic_clock().now();
  work();
  return to_milliseconds(monotonic_clock().now() - start) / 1e3;
}

struct Case {
  Plan plan;
  Model model;
  Cluster cluster;
};

// Stages that differ a little and links with latency and rate, so that no time is zero or cancels.
Case make_case(int32_t stages, int32_t pipelines, int32_t micros, Dispatch dispatch) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = "zb-h1";
  shape.split_backward = true;
  shape.dispatch = dispatch;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), plan.ok() ? "" : plan.error().message);
  Case it{std::move(plan).value(),
          {},
          uniform_cluster(stages * pipelines, {from_milliseconds(1), 1e9})};
  for (int32_t s = 0; s < stages; ++s) {
    Layer layer;
    layer.forward = from_milliseconds(10 + 0.01 * s);
    layer.backward_input = from_milliseconds(11);
    layer.backward_weight = from_milliseconds(7);
    layer.activation = {1'000'000};
    it.model.layers.push_back(layer);
  }
  return it;
}

PriceOptions plain() {
  PriceOptions options;
  options.update = false;
  options.lower_bound = false;
  return options;
}

// One row: the median seconds of a price.
struct Row {
  std::string name;
  int64_t ops = 0, compute_ops = 0;
  double seconds = 0;
};

Row measure(const std::string& name, const Case& it, int rounds) {
  Row row{name, 0, 0, 0};
  for (const auto& list : it.plan.schedule.lists) {
    row.compute_ops += std::count_if(list.begin(), list.end(), [](const Op& op) {
      return op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
             op.kind == OpKind::BackwardWeight;
    });
  }
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    seconds.push_back(seconds_of([&] {
      const auto timeline = price(it.plan, it.model, it.cluster, plain());
      CHECK(timeline.ok(), timeline.ok() ? "" : timeline.error().message);
      row.ops = timeline.value().ops;
    }));
  }
  row.seconds = median(seconds);
  return row;
}

// Bytes per second of a copy through memory larger than the caches, both ways counted.
double memory_bandwidth() {
  std::vector<char> from(128 << 20, 1), to(128 << 20, 2);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    seconds.push_back(seconds_of([&] { std::memcpy(to.data(), from.data(), from.size()); }));
    from[static_cast<size_t>(i)] = to[to.size() - 1 - static_cast<size_t>(i)];
  }
  return 2.0 * static_cast<double>(from.size()) / median(seconds);
}

// Runs `work` in a child process and returns the child's largest resident size less that of this
// process, in bytes: a price's own memory.
int64_t memory_of(const std::function<void()>& work) {
  const pid_t child = fork();
  CHECK(child >= 0, "no process to be had");
  if (child == 0) {
    work();
    _exit(0);
  }
  rusage usage{};
  int status = 0;
  wait4(child, &status, 0, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Figures of PyTorch's dry run of the plan's schedule; null if its Python cannot run it.
Json torch_figures(const Case& it, int32_t stages, int32_t micros, int rounds) {
  const char* python = std::getenv("TENUTO_PYTHON");
  CsvOptions options;
  options.backward = CsvBackward::Split;
  const auto csv = to_csv(it.plan, options);
  if (!csv.ok()) return nullptr;
  char path[] = "/tmp/tenuto-bench-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || write(file, csv.value().data(), csv.value().size()) < 0) return nullptr;
  close(file);
  const std::string command = cat(python != nullptr ? python : TENUTO_PYTHON,
                                  " -W ignore " TENUTO_SOURCE_DIR "/bench/torch_simulate.py ",
                                  stages, " ", micros, " ", rounds, " <", path, " 2>/dev/null");
  std::string text;
  if (FILE* pipe = popen(command.c_str(), "r"); pipe != nullptr) {
    char buffer[4096];
    while (fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
    pclose(pipe);
  }
  unlink(path);
  return Json::parse(text, nullptr, false).is_object() ? Json::parse(text) : Json(nullptr);
}

Json json_of(const Row& row) {
  return {{"case", row.name},
          {"ops", row.ops},
          {"compute_ops", row.compute_ops},
          {"seconds", row.seconds},
          {"ops_per_second", static_cast<double>(row.ops) / row.seconds},
          {"compute_ops_per_second", static_cast<double>(row.compute_ops) / row.seconds},
          {"ns_per_op", 1e9 * row.seconds / static_cast<double>(row.ops)}};
}

void print_row(const Json& row) {
  std::printf("%-34s %9lld ops %9.2f ms %7.1f ns/op %6.2f M ops/s, %6.2f M compute ops/s\n",
              row["case"].get<std::string>().c_str(),
              static_cast<long long>(row["ops"].get<int64_t>()), 1e3 * row["seconds"].get<double>(),
              row["ns_per_op"].get<double>(), row["ops_per_second"].get<double>() / 1e6,
              row["compute_ops_per_second"].get<double>() / 1e6);
}

Json measure_torch(int rounds) {
  constexpr int32_t kStages = 8, kMicros = 64;
  const Case it = make_case(kStages, 1, kMicros, Dispatch::Listed);
  const Json torch = torch_figures(it, kStages, kMicros, std::min(rounds, 3));
  if (torch.is_null()) return nullptr;
  const Row mine = measure("8 x 64", it, rounds);
  const double theirs = median(torch["seconds"].get<std::vector<double>>());
  return {{"stages", kStages},           {"micros", kMicros},
          {"actions", torch["actions"]}, {"torch_seconds", theirs},
          {"seconds", mine.seconds},     {"torch_over_tenuto", theirs / mine.seconds}};
}

Json measure_all(int rounds) {
  Json result;
  for (const int32_t micros : {128, 256, 512, 1024, 2048}) {
    const Case it = make_case(64, 1, micros, Dispatch::Listed);
    result["listed"].push_back(json_of(measure(cat("listed 64 x ", micros), it, rounds)));
  }
  for (const int32_t micros : {128, 512, 2048}) {
    const Case it = make_case(64, 1, micros, Dispatch::Ready);
    result["ready"].push_back(json_of(measure(cat("ready 64 x ", micros), it, rounds)));
  }
  const Case it = make_case(64, 1, 512, Dispatch::Listed);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    seconds.push_back(seconds_of([&] { CHECK(check(it.plan).ok(), "a right plan"); }));
  }
  result["check_ms"] = 1e3 * median(seconds);
  const int64_t before = memory_of([] {});
  int64_t after = 0;
  {
    after = memory_of([] {
      const Case large = make_case(64, 256, 64, Dispatch::Listed);
      const auto timeline = price(large.plan, large.model, large.cluster, plain());
      CHECK(timeline.ok(), "a right plan");
    });
    const Case large = make_case(64, 256, 64, Dispatch::Listed);
    result["large"] = json_of(measure("16,384 workers, 64 x 256 x 64", large, std::min(rounds, 3)));
  }
  result["large"]["memory_bytes"] = after - before;
  const double per_op = static_cast<double>(after - before) / result["large"]["ops"].get<double>();
  const double bandwidth = memory_bandwidth();
  const double touched = result["large"]["ops_per_second"].get<double>() * per_op;
  result["bytes_per_op"] = per_op;
  result["memory_bandwidth"] = bandwidth;
  result["share_of_bandwidth"] = touched / bandwidth;
  result["torch"] = measure_torch(rounds);
  return result;
}

void print(const Json& result) {
  for (const char* group : {"listed", "ready"}) {
    for (const Json& row : result[group]) print_row(row);
  }
  print_row(result["large"]);
  std::printf("  its plan and price: %.2f GiB\n",
              result["large"]["memory_bytes"].get<double>() / 1073741824.0);
  std::printf("check of 64 x 512: %.1f ms\n", result["check_ms"].get<double>());
  std::printf("%.0f bytes an op with its plan: %.1f %% of the memory bandwidth (%.1f GB/s)\n",
              result["bytes_per_op"].get<double>(),
              100 * result["share_of_bandwidth"].get<double>(),
              result["memory_bandwidth"].get<double>() / 1e9);
  if (result["torch"].is_null()) {
    std::printf("PyTorch's dry run: not here (TENUTO_PYTHON names a Python with torch)\n");
    return;
  }
  const Json& torch = result["torch"];
  std::printf("PyTorch's dry run of %d x %d: %.1f ms, ours %.2f ms: %.0f times as fast\n",
              torch["stages"].get<int>(), torch["micros"].get<int>(),
              1e3 * torch["torch_seconds"].get<double>(), 1e3 * torch["seconds"].get<double>(),
              torch["torch_over_tenuto"].get<double>());
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  tenuto::keep_freed_memory();
  bool json = false;
  int rounds = 9;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--rounds" && i + 1 < count && std::atoi(arguments[i + 1]) > 0) {
      rounds = std::atoi(arguments[++i]);
    } else {
      std::fprintf(stderr, "simulate_bench: '%s': expected [--json] [--rounds N]\n",
                   argument.c_str());
      return argument == "--help" ? 0 : 2;
    }
  }
  const auto result = tenuto::measure_all(rounds);
  if (json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    tenuto::print(result);
  }
  return 0;
}
