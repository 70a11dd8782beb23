#include "world/sample.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/longest_time.h"
#include "base/quantile.h"

namespace tenuto {

namespace {

struct Passed {
  Duration delay{};
  Bytes size;
};

// What one worker measured during one step.
struct Noted {
  std::map<WorkerId, std::vector<Passed>> passed;  // by sender
  std::map<std::pair<StageId, OpKind>, std::vector<Duration>> lasted;
};

bool is_told(const Event& event) {
  switch (event.op.kind) {
    case OpKind::Forward:
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
      return true;
    case OpKind::Recv:
      // A stamp of zero means that the message carried none.
      return event.sent.count() != 0 &&
             (event.op.moved == ValueKind::Activation || event.op.moved == ValueKind::Gradient);
    default:
      return false;
  }
}

LinkSample link_sample(WorkerId from, WorkerId to, const std::vector<Passed>& passed) {
  LinkSample sample;
  sample.from = from;
  sample.to = to;
  sample.messages = static_cast<int32_t>(passed.size());
  const auto by_size = [](const Passed& left, const Passed& right) {
    return std::tie(left.size, left.delay) < std::tie(right.size, right.delay);
  };
  const Passed& first = *std::min_element(passed.begin(), passed.end(), by_size);
  sample.smallest = first.size;
  sample.of_smallest = first.delay;
  sample.largest = std::max_element(passed.begin(), passed.end(), by_size)->size;
  std::vector<Duration> delays, of_largest;
  for (const Passed& each : passed) {
    delays.push_back(each.delay);
    if (each.size == sample.largest) of_largest.push_back(each.delay);
  }
  sample.of_largest = quantile(of_largest, 0);
  sample.least = quantile(delays, 0);
  sample.median = quantile(delays, 0.5);
  sample.upper = quantile(delays, 0.75);
  return sample;
}

}  // namespace

ProcessorSample processor_sample(const ProcessorUse& before, const ProcessorUse& after,
                                 int32_t steps, Duration step) {
  const double over = std::max(static_cast<double>((after.at - before.at).count()), 1.0);
  const auto of_step = [&](Duration all) {
    const double share = static_cast<double>(std::max(all, Duration::zero()).count()) / over;
    return from_nanoseconds(share * static_cast<double>(step.count()));
  };
  ProcessorSample sample{.steps = steps, .step = step, .cpu = of_step(after.cpu - before.cpu)};
  const auto both = [](Figure early, Figure late) { return early == Figure::Known ? late : early; };
  sample.run_delay_is = both(before.run_delay_is, after.run_delay_is);
  if (sample.run_delay_is == Figure::Known) {
    Duration longest{};
    for (const auto& [thread, delay] : after.run_delay) {
      const auto earlier = before.run_delay.find(thread);
      const bool new_one = earlier == before.run_delay.end();
      longest = std::max(longest, new_one ? delay : delay - earlier->second);
    }
    sample.run_delay = of_step(longest);
  }
  sample.pressure_is = both(before.pressure_is, after.pressure_is);
  if (sample.pressure_is == Figure::Known) {
    const auto waited = static_cast<double>((after.pressure - before.pressure).count());
    sample.pressure = std::clamp(waited / over, 0.0, 1.0);
  }
  return sample;
}

std::vector<StepSample> make_samples(std::span<const Event> events) {
  std::map<std::pair<WorkerId, int64_t>, Noted> by_worker;
  for (const Event& event : events) {
    if (!is_told(event)) continue;
    Noted& noted = by_worker[{event.worker, event.step}];
    if (event.op.kind == OpKind::Recv) {
      noted.passed[event.op.peer].push_back({event.finish - event.sent, event.moved});
    } else {
      noted.lasted[{event.op.stage, event.op.kind}].push_back(event.finish - event.start);
    }
  }
  std::vector<StepSample> samples;
  for (auto& [name, noted] : by_worker) {
    StepSample sample;
    std::tie(sample.worker, sample.step) = name;
    for (const auto& [from, passed] : noted.passed) {
      sample.links.push_back(link_sample(from, sample.worker, passed));
    }
    for (auto& [op, lasted] : noted.lasted) {
      sample.ops.push_back({sample.worker, op.first, op.second, static_cast<int32_t>(lasted.size()),
                            quantile(lasted, 0.5)});
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace tenuto
