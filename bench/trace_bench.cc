// What a traced step costs per op: its events as text, which the worker makes at the end of the
// step, and reading them and writing the trace, which the coordinator does when the workers have
// gone on. Steps that are not traced do none of this.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "plan/make_plan.h"
#include "protocol/event_text.h"
#include "sim/price.h"
#include "sim/timeline.h"
#include "sim/trace.h"

namespace tenuto {
namespace {

constexpr double kOpMs = 10;  // of the iterations that the share is of
constexpr int kRounds = 51;

struct Row {
  std::string name;
  size_t ops = 0;                            // recorded ones, of all workers
  double worker_ns = 0, coordinator_ns = 0;  // per op
  double share = 0;                          // of the worker's work in an iteration
};

// The events of a step that goes as it is priced.
std::vector<Event> events_of(const std::vector<Span>& spans) {
  std::vector<Event> events;
  for (const Span& span : spans) {
    Event event;
    event.worker = span.worker;
    event.op = span.op;
    event.start = span.start;
    event.finish = span.finish;
    if (span.op.kind == OpKind::Recv) event.sent = span.start;
    events.push_back(event);
  }
  return events;
}

// The median time of `work` in nanoseconds.
template <class Work>
double median_ns(const Work& work) {
  std::vector<int64_t> times;
  for (int round = 0; round < kRounds; ++round) {
    const Duration begin = monotonic_clock().now();
    work();
    times.push_back((monotonic_clock().now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return static_cast<double>(times[kRounds / 2]);
}

Row measure(int32_t stages, int32_t micros) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.micros = micros;
  const Result<Plan> plan = make_plan(shape);
  CHECK(plan.ok(), plan.ok() ? "" : plan.error().message);
  Layer layer;
  layer.forward = layer.backward_input = layer.backward_weight = from_milliseconds(kOpMs);
  Model model;
  model.layers.assign(static_cast<size_t>(stages), layer);
  PriceOptions options;
  options.spans = true;
  const Cluster cluster = uniform_cluster(stages, {from_milliseconds(1), 1e9});
  const Result<Timeline> timeline = price(plan.value(), model, cluster, options);
  CHECK(timeline.ok(), timeline.ok() ? "" : timeline.error().message);
  const std::vector<Event> events = events_of(timeline.value().spans);
  Row row;
  row.name = cat(stages, " workers, ", micros, " micro-batches");
  row.ops = events.size();
  const auto ops = static_cast<double>(row.ops);
  std::string told;
  row.worker_ns = median_ns([&] { told = to_text(events); }) / ops;
  TraceDetails details;
  details.promised = timeline.value().spans;
  row.coordinator_ns = median_ns([&] {
                         const auto read = events_from_text(told);
                         CHECK(read.ok(), "events that were written");
                         std::ostringstream out;
                         write_trace(out, spans_of(read.value()), plan.value(), details);
                       }) /
                       ops;
  // A worker has its part of the ops, and the makespan is one iteration.
  const double iteration_ns = static_cast<double>(timeline.value().makespan.count());
  row.share = row.worker_ns * ops / stages / iteration_ns;
  return row;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  const bool json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (count > 1 && !json) {
    std::fprintf(stderr, "trace_bench: unknown argument '%s'; usage: trace_bench [--json]\n",
                 arguments[1]);
    return 2;
  }
  if (!json) {
    std::printf("%-34s %8s %14s %19s %16s\n", "a traced step, ops of 10 ms", "ops", "worker ns/op",
                "coordinator ns/op", "% of iteration");
  }
  std::string rows;
  for (const int32_t stages : {4, 16}) {
    for (const int32_t micros : {16, 128}) {
      const tenuto::Row row = tenuto::measure(stages, micros);
      if (!json) {
        std::printf("%-34s %8zu %14.0f %19.0f %16.4f\n", row.name.c_str(), row.ops, row.worker_ns,
                    row.coordinator_ns, 100 * row.share);
      }
      rows += tenuto::cat(rows.empty() ? "" : ",\n ", "{\"name\": \"", row.name,
                          "\", \"ops\": ", row.ops, ", \"worker_ns\": ", row.worker_ns,
                          ", \"coordinator_ns\": ", row.coordinator_ns, ", \"share\": ", row.share,
                          "}");
    }
  }
  if (json) std::printf("[%s]\n", rows.c_str());
  return 0;
}
