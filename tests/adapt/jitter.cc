#include "adapt/jitter.h"

#include <algorithm>

#include "adapt/dispatch.h"
#include "adapt/published.h"
#include "adapt/random_line.h"
#include "base/check.h"

namespace tenuto {

namespace {

constexpr int32_t kStages = 8;
constexpr Duration kOp = std::chrono::milliseconds(10);

Duration ops(double count) { return from_milliseconds(count * to_milliseconds(kOp)); }

Line line_with(const Jitter& jitter, double delay) {
  Line line = equal_line(kStages, jitter.micros, kOp);
  limit_memory(line, jitter.memory);
  for (int32_t s = 0; s + 1 < kStages; ++s) delay_link(line, s, ops(delay));
  return line;
}

OrderSearch found_for(const Line& line, const Effort& effort) {
  auto found = search_order(line, effort);
  CHECK(found.has_value(), "memory for a micro-batch");
  return std::move(*found);
}

std::vector<Sequence> zero_bubble(const Line& line) {
  for (Published& order : published_orders(line)) {
    if (order.name == "zb-h2" && order.sequences) return std::move(*order.sequences);
  }
  CHECK(false, "zb-h2 is clipped to any memory limit");
  return {};
}

}  // namespace

const std::vector<Jitter>& jitters() {
  static const std::vector<Jitter> all = [] {
    std::vector<Jitter> settings;
    for (const int32_t micros : {24, 48}) {
      for (const int32_t memory : {12, 16, 24}) {
        settings.push_back({micros, memory, 0.5, 0.5});
        settings.push_back({micros, memory, 1, 1});
        settings.push_back({micros, memory, 3, 1});
        settings.push_back({micros, memory, 3, 3});
      }
    }
    return settings;
  }();
  return all;
}

double JitterTimes::above_fixed(double time) const {
  return time / std::min(fixed_for_mean, fixed_for_mean_and_one) - 1;
}

JitterTimes run_jitter(const Jitter& jitter, int32_t draws, const Effort& effort) {
  const Line line = line_with(jitter, 0);
  const OrderSearch without = found_for(line, effort);
  const OrderSearch mean = found_for(line_with(jitter, jitter.mean), effort);
  const OrderSearch more = found_for(line_with(jitter, jitter.mean + jitter.deviation), effort);
  const std::vector<Sequence> fixed = zero_bubble(line);
  const Rule ready{Quotas(line.legs.size(), 0), {}};
  const Rule planned{mean.ready.policy.warm_up, mean.ready.policy.most};
  JitterTimes times;
  for (int32_t draw = 0; draw < draws; ++draw) {
    Random random(mix(static_cast<uint64_t>(jitter.micros * 100 + jitter.memory),
                      static_cast<uint64_t>(ops(jitter.mean).count()),
                      static_cast<uint64_t>(ops(jitter.deviation).count()),
                      static_cast<uint64_t>(draw)));
    const Extra extra = normal_delays(line, random, ops(jitter.mean), ops(jitter.deviation));
    const auto add = [&](double& sum, std::optional<Duration> time) {
      CHECK(time.has_value(), "delays let nothing stand still");
      sum +=
          static_cast<double>(time->count()) / static_cast<double>(without.bound.count()) / draws;
    };
    const auto played = [&](const Rule& rule) -> std::optional<Duration> {
      const auto ran = dispatch(line, rule, extra);
      return ran ? std::optional(ran->makespan) : std::nullopt;
    };
    add(times.fixed_zero_bubble, follow(line, fixed, extra));
    add(times.fixed_for_mean, follow(line, mean.listed.sequences, extra));
    add(times.fixed_for_mean_and_one, follow(line, more.listed.sequences, extra));
    add(times.ready, played(ready));
    add(times.ready_planned, played(planned));
  }
  return times;
}

}  // namespace tenuto
