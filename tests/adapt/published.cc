#include "adapt/published.h"

#include <algorithm>
#include <utility>

#include "adapt/dispatch.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

using Counts = std::vector<int32_t>;  // by stage

constexpr Duration kPlanningStep = std::chrono::milliseconds(5);
constexpr int32_t kSteps = 30;  // clock steps that the longest op takes

int32_t ceiling(Duration whole, Duration part) {
  const int64_t times = (whole.count() + part.count() - 1) / part.count();
  return static_cast<int32_t>(std::min<int64_t>(times, 1'000'000));
}

// The time of a message to the next stage, and of one back, on a free link.
Duration way_down(const Line& line, int32_t stage) {
  return line.legs[at(stage)].down + line.legs[at(stage)].down_busy;
}
Duration way_up(const Line& line, int32_t stage) {
  return line.legs[at(stage) + 1].up + line.legs[at(stage) + 1].up_busy;
}
Duration both_ways(const Line& line, int32_t stage) {
  return way_down(line, stage) + way_up(line, stage);
}

int32_t whole_for(const Line& line, int32_t stage) {
  const MemoryLimit& memory = line.legs[at(stage)].memory;
  if (memory.most == 0) return line.micros;
  return static_cast<int32_t>(std::min<int64_t>(line.micros, memory.most / memory.whole));
}

// Clips each count to the memory limit of its stage and to the count of the stage before.
Counts clipped(const Line& line, Counts counts) {
  int32_t before = line.micros;
  for (int32_t s = 0; s < line.stages(); ++s) {
    before = counts[at(s)] = std::min({counts[at(s)], whole_for(line, s), before});
  }
  return counts;
}

// One forward at the last stage; each earlier stage has `more` than the stage after it.
template <class More>
Counts built_up(const Line& line, More more) {
  Counts counts(line.legs.size(), 1);
  for (int32_t s = line.stages() - 2; s >= 0; --s) {
    counts[at(s)] = std::min(line.micros, counts[at(s) + 1] + more(s));
  }
  return counts;
}

Counts even(int32_t most, int32_t stages) {
  Counts counts{most};
  if (stages == 1) return counts;
  const int32_t each = (most - 1) / (stages - 1), rest = (most - 1) % (stages - 1);
  for (int32_t s = 1; s < stages; ++s) {
    counts.push_back(std::max(1, counts.back() - (s <= rest ? each + 1 : each)));
  }
  return counts;
}

Counts neighbours(const Line& line) {
  return built_up(line, [&](int32_t s) {
    const Leg& leg = line.legs[at(s)];
    const Leg& next = line.legs[at(s) + 1];
    const int32_t hidden = std::max(
        2, ceiling(leg.forward + leg.backward + both_ways(line, s), next.forward + next.backward));
    // The published limit, if it leaves at least 2.
    const int32_t limit = line.micros - 2 * line.stages();
    return limit >= 2 ? std::min(limit, hidden) : hidden;
  });
}

// Each stage has 2 forwards more than the next one, plus the round trip / `share`, in forwards.
Counts ahead_by_delay(const Line& line, int32_t share) {
  return built_up(line, [&](int32_t s) {
    return 2 + ceiling(both_ways(line, s) / share, line.legs[at(s)].forward);
  });
}

// A fixed order: x forwards, then backward and forward in turn, the weight gradients `lag` behind.
Sequence in_turn(int32_t micros, int32_t ahead, int32_t lag) {
  Sequence sequence(at(ahead), OpKind::Forward);
  int32_t weights = 0;
  for (int32_t k = 0; k < micros; ++k) {
    sequence.push_back(OpKind::BackwardInput);
    for (; weights + lag <= k; ++weights) sequence.push_back(OpKind::BackwardWeight);
    if (ahead + k < micros) sequence.push_back(OpKind::Forward);
  }
  sequence.insert(sequence.end(), at(micros - weights), OpKind::BackwardWeight);
  return sequence;
}

// Clips the forwards ahead to the memory limits, and postpones the weight gradients as far as
// memory allows.
Published fixed_order(const Line& line, const std::string& name, int32_t per_stage,
                      int32_t lag_per_stage) {
  const Counts ahead = clipped(line, built_up(line, [&](int32_t) { return per_stage; }));
  std::vector<Sequence> sequences;
  for (int32_t s = 0; s < line.stages(); ++s) {
    int32_t lag = std::min(line.micros, lag_per_stage * s);
    Sequence sequence = in_turn(line.micros, ahead[at(s)], lag);
    while (lag > 0 && !fits_memory(line.legs[at(s)], sequence)) {
      sequence = in_turn(line.micros, ahead[at(s)], --lag);
    }
    if (!fits_memory(line.legs[at(s)], sequence)) return {name, std::nullopt};
    sequences.push_back(std::move(sequence));
  }
  return {name, std::move(sequences)};
}

Published by_quotas(const Line& line, const std::string& name, const Counts& quotas) {
  auto played = dispatch(line, {clipped(line, quotas), {}});
  if (!played) return {name, std::nullopt};
  return {name, std::move(played->sequences)};
}

// The line on a coarse clock: every time rounded up to a step.
Line in_steps(Line line) {
  Duration longest{1};
  for (const Leg& leg : line.legs) {
    longest = std::max({longest, leg.forward, leg.backward, leg.weight});
  }
  const Duration step = std::max(Duration{1}, longest / kSteps);
  for (Leg& leg : line.legs) {
    leg.down += leg.down_busy;
    leg.up += leg.up_busy;
    leg.down_busy = leg.up_busy = {};
    for (Duration* time : {&leg.forward, &leg.backward, &leg.weight, &leg.down, &leg.up}) {
      *time = step * ceiling(*time, step);
    }
  }
  return line;
}

// The line as it would be if every delayed link were slow by `delay`, both ways.
Line with_delay(Line line, Duration delay) {
  for (int32_t s = 0; s + 1 < line.stages(); ++s) {
    Leg& leg = line.legs[at(s)];
    Leg& next = line.legs[at(s) + 1];
    if (leg.down == Duration{} && next.up == Duration{}) continue;
    leg.down = next.up = delay;
  }
  return line;
}

// Plans for the same delay on every slow link, from none to the longest.
void add_planned(const Line& line, std::vector<Published>& all) {
  Duration longest{};
  for (const Leg& leg : line.legs) longest = std::max({longest, leg.down, leg.up});
  std::optional<Duration> least;
  Published best{"planned for a delay", std::nullopt};
  for (Duration delay{}; delay < longest + kPlanningStep; delay += kPlanningStep) {
    const Line planned = with_delay(line, std::min(delay, longest));
    for (const int32_t share : {1, 2}) {
      Published made = by_quotas(planned, "planned for none", ahead_by_delay(planned, share));
      if (!made.sequences) continue;
      const std::optional<Duration> time = follow(line, *made.sequences);
      if (time && (!least || *time < *least)) {
        least = time;
        best.sequences = made.sequences;
      }
      if (delay == Duration{} && share == 1) all.push_back(std::move(made));
    }
  }
  all.push_back(std::move(best));
}

}  // namespace

std::vector<Published> published_orders(const Line& line) {
  int32_t least_whole = line.micros;
  for (int32_t s = 0; s < line.stages(); ++s)
    least_whole = std::min(least_whole, whole_for(line, s));
  std::vector<Published> all;
  all.push_back(fixed_order(line, "1f1b", 1, 0));
  all.push_back(fixed_order(line, "zb-h1", 1, 1));
  all.push_back(fixed_order(line, "zb-h2", 2, 2));
  all.push_back(by_quotas(line, "even", even(whole_for(line, 0), line.stages())));
  all.push_back(by_quotas(line, "even, least memory", even(least_whole, line.stages())));
  all.push_back(by_quotas(line, "neighbours", neighbours(line)));
  const Line coarse = in_steps(line);
  all.push_back(by_quotas(coarse, "neighbours in steps", neighbours(coarse)));
  all.push_back(by_quotas(line, "2 + delay", ahead_by_delay(line, 2)));
  all.push_back(by_quotas(line, "2 + round trip", ahead_by_delay(line, 1)));
  add_planned(line, all);
  all.push_back(by_quotas(line, "priority", Counts(line.legs.size(), 0)));
  return all;
}

Duration fastest(const Line& line, const std::vector<Published>& orders) {
  Duration least = Duration::max();
  Replay replay(line);
  for (const Published& order : orders) {
    if (!order.sequences) continue;
    if (const auto time = replay.run(*order.sequences)) least = std::min(least, *time);
  }
  return least;
}

}  // namespace tenuto
