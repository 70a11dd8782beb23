#include "adapt/rivals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "base/random.h"

namespace tenuto {

namespace {

constexpr double kOp = 3;          // forward, input gradient, weight gradient of a micro-batch
constexpr double kUnhidden = 0.5;  // share of the redundant forward that idle time does not hide
constexpr double kNever = std::numeric_limits<double>::infinity();

size_t at(int32_t index) { return static_cast<size_t>(index); }

int32_t divide_up(int32_t count, int32_t by) { return (count + by - 1) / by; }

int32_t dead_of(const std::vector<bool>& pipeline) {
  return static_cast<int32_t>(std::count(pipeline.begin(), pipeline.end(), true));
}

std::vector<int32_t> dead_by_stage(const Fleet& fleet, const Dead& dead) {
  std::vector<int32_t> counts(at(fleet.size.stages), 0);
  for (const auto& pipeline : dead) {
    for (size_t s = 0; s < pipeline.size(); ++s) counts[s] += pipeline[s] ? 1 : 0;
  }
  return counts;
}

// Deaths by stage after live workers have moved to where workers are missing.
std::vector<int32_t> spread_by_stage(const Fleet& fleet, const Dead& dead) {
  const int32_t count = count_dead(dead), stages = fleet.size.stages;
  std::vector<int32_t> counts(at(stages), count / stages);
  for (int32_t s = 0; s < count % stages; ++s) ++counts[at(s)];
  return counts;
}

// Micro-batches of the busiest worker of each stage; empty when a stage has no live worker.
std::vector<int32_t> loads_of(const Fleet& fleet, const std::vector<int32_t>& dead) {
  std::vector<int32_t> loads;
  for (const int32_t gone : dead) {
    if (gone >= fleet.size.pipelines) return {};
    loads.push_back(divide_up(fleet.micros(), fleet.size.pipelines - gone));
  }
  return loads;
}

double without_idling(const Fleet& fleet, const std::vector<int32_t>& dead) {
  const std::vector<int32_t> loads = loads_of(fleet, dead);
  return loads.empty() ? kNever : kOp * *std::max_element(loads.begin(), loads.end());
}

double scaled(const Fleet& fleet, const Dead& dead) {
  const int32_t live = fleet.workers() - count_dead(dead);
  return live == 0 ? kNever : fault_free(fleet) * fleet.workers() / live;
}

double routed(const Fleet& fleet, const Dead& dead) {
  return without_idling(fleet, dead_by_stage(fleet, dead));
}

double spread(const Fleet& fleet, const Dead& dead) {
  return without_idling(fleet, spread_by_stage(fleet, dead));
}

// Gives each layer to the stage whose time with it is least.
double layers_moved(const Fleet& fleet, const Dead& dead) {
  const std::vector<int32_t> loads = loads_of(fleet, spread_by_stage(fleet, dead));
  if (loads.empty()) return kNever;
  using Next = std::pair<int32_t, size_t>;  // time with one layer more, stage
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  for (size_t s = 0; s < loads.size(); ++s) open.emplace(loads[s], s);
  int32_t longest = 0;
  for (int32_t layer = 0; layer < fleet.layers; ++layer) {
    const auto [time, s] = open.top();
    open.pop();
    longest = std::max(longest, time);
    open.emplace(time + loads[s], s);
  }
  return longest * kOp * fleet.size.stages / fleet.layers;
}

// The time of the longest stage of a pipeline of so many nodes.
double stage_time(const Fleet& fleet, int32_t nodes) {
  return kOp * divide_up(fleet.layers, nodes) * fleet.size.stages / fleet.layers;
}

// The fewest nodes that hold the model.
int32_t fewest_nodes(const Fleet& fleet) { return divide_up(3 * fleet.size.stages, 4); }

// A pipeline too small to hold the model borrows from the largest, or joins the smallest other.
std::vector<int32_t> templates_of(const Fleet& fleet, const Dead& dead) {
  const int32_t fewest = fewest_nodes(fleet);
  std::vector<int32_t> nodes;
  for (const auto& pipeline : dead) {
    const int32_t live = fleet.size.stages - dead_of(pipeline);
    if (live > 0) nodes.push_back(live);
  }
  while (!nodes.empty()) {
    std::sort(nodes.begin(), nodes.end());
    if (nodes.front() >= fewest) return nodes;
    if (nodes.back() > fewest) {
      ++nodes.front();
      --nodes.back();
    } else if (nodes.size() > 1) {
      nodes[1] += nodes[0];
      nodes.erase(nodes.begin());
    } else {
      return {};
    }
  }
  return {};
}

double templates(const Fleet& fleet, const Dead& dead) {
  using Next = std::pair<double, int32_t>;  // time with one more micro-batch, nodes
  std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
  for (const int32_t nodes : templates_of(fleet, dead)) {
    open.emplace(nodes * stage_time(fleet, nodes), nodes);
  }
  if (open.empty()) return kNever;
  double longest = 0;
  for (int32_t m = 0; m < fleet.micros(); ++m) {
    const auto [time, nodes] = open.top();
    open.pop();
    longest = time;
    open.emplace(time + stage_time(fleet, nodes), nodes);
  }
  return longest;
}

// Whether a worker and the next, on a ring, are both dead.
bool has_neighbours(const std::vector<bool>& pipeline) {
  for (size_t s = 0; s < pipeline.size(); ++s) {
    if (pipeline[s] && pipeline[(s + 1) % pipeline.size()]) return true;
  }
  return false;
}

double redundant(const Fleet& fleet, const Dead& dead) {
  const double node = kOp + kUnhidden;
  const auto lost = static_cast<int32_t>(std::count_if(dead.begin(), dead.end(), has_neighbours));
  const int32_t left = fleet.size.pipelines - lost;
  if (left == 0) return kNever;
  const int32_t micros = divide_up(fleet.micros(), left);
  double longest = 0;
  for (const auto& pipeline : dead) {
    if (has_neighbours(pipeline)) continue;
    const int32_t gone = dead_of(pipeline);
    const double busiest = gone > 0 ? node + kOp : node;
    const double all = node * (fleet.size.stages - gone) + gone * kOp;
    longest = std::max(longest, (micros - 1) * busiest + all);
  }
  return longest;
}

// Whole pipelines only, each node taking `node` for a micro-batch.
double whole_only(const Fleet& fleet, const Dead& dead, double node) {
  int32_t whole = 0;
  for (const auto& pipeline : dead) whole += dead_of(pipeline) == 0 ? 1 : 0;
  if (whole == 0) return kNever;
  return (divide_up(fleet.micros(), whole) + fleet.size.stages - 1) * node;
}

double restart(const Fleet& fleet, const Dead& dead) {
  const int32_t live = fleet.workers() - count_dead(dead);
  double best = kNever;
  for (int32_t depth = fewest_nodes(fleet); depth <= std::min(live, fleet.layers); ++depth) {
    const int32_t micros = divide_up(fleet.micros(), live / depth);
    best = std::min(best, (micros + depth - 1) * stage_time(fleet, depth));
  }
  return best;
}

}  // namespace

Dead all_alive(const Fleet& fleet) {
  return Dead(at(fleet.size.pipelines), std::vector<bool>(at(fleet.size.stages), false));
}

int32_t count_dead(const Dead& dead) {
  int32_t count = 0;
  for (const auto& pipeline : dead) count += dead_of(pipeline);
  return count;
}

const std::vector<Rival>& rivals() {
  static const std::vector<Rival> all = {
      {"scaled", 0, scaled},
      {"routed", 30, routed},
      {"spread", 30, spread},
      {"layers", 30, layers_moved},
      {"templates", 60, templates},
      {"redundant", 30, redundant},
      {"dropped", 30,
       [](const Fleet& f, const Dead& d) { return whole_only(f, d, kOp + kUnhidden); }},
      {"replicas", 60, [](const Fleet& f, const Dead& d) { return whole_only(f, d, kOp); }},
      {"restart", 60, restart},
  };
  return all;
}

double fault_free(const Fleet& fleet) { return (fleet.size.micros + fleet.size.stages - 1) * kOp; }

std::vector<FailureEvent> draw_failures(const Fleet& fleet, const FailureProcess& process,
                                        uint64_t seed) {
  Random random(seed);
  Dead dead = all_alive(fleet);
  std::vector<FailureEvent> events;
  std::queue<FailureEvent> back;
  const double end = process.hours * 3600;
  const auto take_back = [&](double until) {
    for (; !back.empty() && back.front().at_seconds <= until; back.pop()) {
      const FailureEvent& event = back.front();
      dead[at(event.pipeline)][at(event.stage)] = false;
      events.push_back(event);
    }
  };
  for (double now = process.seconds_between; now < end; now += process.seconds_between) {
    take_back(now);
    const int32_t live = fleet.workers() - count_dead(dead);
    if (live == 0) break;
    auto place = static_cast<int32_t>(random.below(live));
    for (int32_t w = 0; w < fleet.workers(); ++w) {
      const int32_t p = w / fleet.size.stages, s = w % fleet.size.stages;
      if (dead[at(p)][at(s)] || place-- > 0) continue;
      dead[at(p)][at(s)] = true;
      events.push_back({now, p, s, false});
      if (process.repair_seconds > 0) back.push({now + process.repair_seconds, p, s, true});
      break;
    }
  }
  take_back(end);
  return events;
}

double throughput(const Fleet& fleet, const std::vector<FailureEvent>& events, double hours,
                  const Rival& rival, double cap) {
  Dead dead = all_alive(fleet);
  const double end = hours * 3600;
  double from = 0, done = 0;
  const auto pass = [&](double until) {
    double speed = fault_free(fleet) / rival.step(fleet, dead);
    if (cap > 0) speed = std::min(speed, cap);
    done += speed * std::max(0.0, until - from);
  };
  for (const FailureEvent& event : events) {
    if (event.at_seconds >= end) break;
    pass(event.at_seconds);
    dead[at(event.pipeline)][at(event.stage)] = !event.returns;
    from = std::max(from, event.at_seconds + (event.returns ? 0 : rival.downtime_seconds));
  }
  pass(end);
  return done / end;
}

}  // namespace tenuto
