#include "monitor/monitor.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "base/quantile.h"

namespace tenuto {

namespace {

constexpr size_t kLatest = 5;  // the last steps, whose median says how long an op should last
constexpr size_t kEnough = 3;  // steps that are needed before the median is used

using LinkName = std::pair<WorkerId, WorkerId>;
using StageKind = std::pair<StageId, OpKind>;

// All workers' samples of one step, sorted, so that their order of arrival does not matter.
struct Step {
  std::vector<const LinkSample*> links;
  std::vector<std::pair<WorkerId, const NetworkSample*>> network;  // by the worker that tells it
  std::map<StageKind, std::map<WorkerId, const OpSample*>> ops;
  std::map<WorkerId, const ProcessorSample*> processors;
};

// How long all ops of a worker lasted in a step, and should have lasted, in nanoseconds.
struct OpSum {
  double took = 0, should = 0;
};
using OpSums = std::map<WorkerId, OpSum>;

// What slow links add to the arrival of all messages to a worker in a step, in nanoseconds.
using LateSums = std::map<WorkerId, double>;

bool known(const MonitorState& state, WorkerId worker) {
  return worker.value >= 0 && static_cast<size_t>(worker.value) < state.healthy.workers.size();
}

bool sensible(const MonitorState& state, const LinkSample& sample) {
  return known(state, sample.from) && known(state, sample.to) && sample.from != sample.to &&
         sample.messages > 0;
}

bool sensible(const MonitorState& state, const OpSample& sample) {
  return known(state, sample.worker) && sample.ops > 0 && sample.median.count() > 0;
}

std::map<int64_t, Step> by_step(const MonitorState& state, std::span<const StepSample> samples) {
  std::map<int64_t, Step> steps;
  for (const StepSample& each : samples) {
    Step& step = steps[each.step];
    for (const LinkSample& link : each.links) {
      if (sensible(state, link)) step.links.push_back(&link);
    }
    for (const NetworkSample& network : each.network) {
      const bool sensible = known(state, each.worker) && known(state, network.peer);
      if (sensible && network.peer != each.worker) step.network.emplace_back(each.worker, &network);
    }
    for (const OpSample& op : each.ops) {
      if (sensible(state, op)) step.ops[{op.stage, op.kind}].emplace(op.worker, &op);
    }
    if (each.processor && known(state, each.worker)) {
      step.processors.emplace(each.worker, &*each.processor);
    }
  }
  for (auto& [number, step] : steps) {
    std::sort(step.links.begin(), step.links.end(), [](const auto* left, const auto* right) {
      return std::pair(left->from, left->to) < std::pair(right->from, right->to);
    });
    std::sort(step.network.begin(), step.network.end(), [](const auto& left, const auto& right) {
      return std::pair(left.first, left.second->peer) < std::pair(right.first, right.second->peer);
    });
  }
  return steps;
}

double speed_of(const MonitorState& state, WorkerId worker) {
  const double speed = state.healthy.workers[static_cast<size_t>(worker.value)].speed;
  return speed > 0 ? speed : 1;
}

// The lower median of the times that the holders of a stage took, each scaled to speed 1: with two
// holders, the faster one's.
Duration middle_holder(const MonitorState& state,
                       const std::map<WorkerId, const OpSample*>& holders) {
  std::vector<Duration> times;
  for (const auto& [worker, sample] : holders) {
    times.push_back(Duration(static_cast<int64_t>(static_cast<double>(sample->median.count()) *
                                                  speed_of(state, worker))));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// How long an op of this kind should last: as profiled; else the lowest median measured so far or,
// with several holders, `middle` if it is lower or no median exists yet. Zero = not known yet.
Duration should_last(StageTimes& stage, Duration middle, size_t holders) {
  stage.latest.push_back(middle);
  if (stage.latest.size() > kLatest) stage.latest.erase(stage.latest.begin());
  if (stage.latest.size() >= kEnough) {
    std::vector<Duration> latest = stage.latest;
    const Duration median = quantile(latest, 0.5);
    if (stage.least.count() == 0 || median < stage.least) stage.least = median;
  }
  if (stage.profiled.count() > 0) return stage.profiled;
  if (holders < 2) return stage.least;
  return stage.least.count() == 0 ? middle : std::min(stage.least, middle);
}

OpSums learn_workers(MonitorState& state, const Step& step, int64_t number,
                     std::vector<Verdict>& verdicts) {
  OpSums sums;
  std::vector<Duration> typical;
  for (const auto& [name, holders] : step.ops) {
    const Duration middle = middle_holder(state, holders);
    const Duration should = should_last(state.stages[name], middle, holders.size());
    typical.push_back(middle);
    if (should.count() == 0) continue;
    for (const auto& [worker, sample] : holders) {
      OpSum& sum = sums[worker];
      sum.took += static_cast<double>(sample->median.count()) * sample->ops;
      sum.should += static_cast<double>(should.count()) * sample->ops / speed_of(state, worker);
    }
  }
  if (!typical.empty()) state.typical_op = quantile(typical, 0.5);
  for (const auto& [worker, sum] : sums) {
    SpeedWatch& watch = state.workers.try_emplace(worker, state.options.speed).first->second;
    std::optional<Verdict> verdict = watch.add(sum.took / sum.should, number);
    if (!verdict) continue;
    verdict->from = worker;
    verdict->speed = watch.speed() * speed_of(state, worker);
    verdicts.push_back(*std::move(verdict));
  }
  return sums;
}

// How long each message of this sample may have waited for a processor, not for the network: all
// that a thread of either worker waited in a step, divided among the messages.
Duration wait_for_processors(const MonitorState& state, const LinkSample& sample) {
  Duration longest{};
  for (const WorkerId worker : {sample.from, sample.to}) {
    const auto delay = state.run_delays.find(worker);
    if (delay != state.run_delays.end()) longest = std::max(longest, delay->second);
  }
  return longest / sample.messages;
}

LateSums judge_links(MonitorState& state, const Step& step, int64_t number,
                     std::vector<Verdict>& verdicts) {
  const double share = state.options.least_op_share;
  const auto of_op = static_cast<int64_t>(static_cast<double>(state.typical_op.count()) * share);
  const Duration floor = std::max(state.options.least_gain, Duration(of_op));
  const auto watch_of = [&](const LinkName& name) -> LinkWatch& {
    return state.links.try_emplace(name, state.options.link).first->second;
  };
  for (const auto& [worker, sample] : step.network) {
    watch_of(std::minmax(worker, sample->peer)).add(*sample, worker, number);
  }
  for (const auto& [worker, sample] : step.processors) {
    if (sample->run_delay_is == Figure::Known) state.run_delays[worker] = sample->run_delay;
  }
  for (const LinkSample* sample : step.links) {
    const LinkName name = std::minmax(sample->from, sample->to);
    LinkWatch& watch = watch_of(name);
    const Duration least = std::max(floor, wait_for_processors(state, *sample));
    std::optional<Verdict> verdict = watch.add(*sample, number, least);
    if (!verdict) continue;
    std::tie(verdict->from, verdict->to) = name;
    verdict->sentence = sentence_of(*verdict);
    verdicts.push_back(*std::move(verdict));
  }
  // Only now, because a link is judged when both directions' samples are there.
  LateSums late;
  for (const LinkSample* sample : step.links) {
    const LinkWatch& watch = watch_of(std::minmax(sample->from, sample->to));
    if (!watch.slow()) continue;
    const Duration added = watch.extra(number).latency;
    late[sample->to] += static_cast<double>(added.count()) * sample->messages;
  }
  return late;
}

// Gives the verdicts of this step on workers their causes. Adds those of earlier steps whose causes
// are known only now, and what a kernel does not tell.
void explain(MonitorState& state, const Step& step, int64_t number, const OpSums& sums,
             const LateSums& late, std::vector<Verdict>& verdicts) {
  for (const auto& [worker, processor] : step.processors) {
    const auto ops = sums.find(worker);
    if (ops == sums.end()) continue;
    const auto by_links = late.find(worker);
    state.loads[worker].add({number, ops->second.took, ops->second.should,
                             by_links == late.end() ? 0 : by_links->second, *processor});
  }
  for (Verdict& verdict : verdicts) state.loads[verdict.from].judge(verdict);
  for (auto& [worker, watch] : state.loads) {
    std::optional<Verdict> verdict = watch.late_verdict();
    if (!verdict) continue;
    verdict->found_step = number;
    verdicts.push_back(*std::move(verdict));
  }
  for (const auto& [worker, processor] : step.processors) {
    const bool all =
        processor->run_delay_is == Figure::Known && processor->pressure_is == Figure::Known;
    if (all || !state.told_unmeasured.insert(worker).second) continue;
    Verdict verdict;
    verdict.kind = VerdictKind::Unmeasured;
    verdict.from = worker;
    verdict.since_step = verdict.found_step = number;
    verdict.run_delay_is = processor->run_delay_is;
    verdict.pressure_is = processor->pressure_is;
    verdicts.push_back(std::move(verdict));
  }
  for (Verdict& verdict : verdicts) verdict.sentence = sentence_of(verdict);
}

Link slowed(Link link, const LinkExtra& extra, size_t way) {
  link.latency += extra.latency;
  if (extra.rate[way] > 0 &&
      (link.bytes_per_second <= 0 || extra.rate[way] < link.bytes_per_second)) {
    link.bytes_per_second = extra.rate[way];
  }
  return link;
}

Cluster cluster_of(const MonitorState& state, int64_t step) {
  Cluster cluster = state.healthy;
  for (const auto& [name, watch] : state.links) {
    const LinkExtra extra = watch.extra(step);
    if (extra == LinkExtra{}) continue;
    const auto& [first, second] = name;
    cluster.exceptions[{first, second}] = slowed(state.healthy.link(first, second), extra, 0);
    cluster.exceptions[{second, first}] = slowed(state.healthy.link(second, first), extra, 1);
  }
  for (const auto& [worker, watch] : state.workers) {
    cluster.workers[static_cast<size_t>(worker.value)].speed *= watch.speed();
  }
  return cluster;
}

bool same(const Cluster& left, const Cluster& right) {
  const auto same_link = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.latency == b.second.latency &&
           a.second.bytes_per_second == b.second.bytes_per_second;
  };
  return std::equal(left.exceptions.begin(), left.exceptions.end(), right.exceptions.begin(),
                    right.exceptions.end(), same_link) &&
         std::equal(left.workers.begin(), left.workers.end(), right.workers.begin(),
                    right.workers.end(),
                    [](const Worker& a, const Worker& b) { return a.speed == b.speed; });
}

}  // namespace

MonitorState make_monitor(Cluster healthy, const MonitorOptions& options) {
  MonitorState state;
  state.cluster = healthy;
  state.healthy = std::move(healthy);
  state.options = options;
  return state;
}

void set_profiled(MonitorState& state, StageId stage, OpKind kind, Duration time) {
  CHECK(time.count() >= 0, "an op cannot last less than no time");
  state.stages[{stage, kind}].profiled = time;
}

Detection detect(MonitorState state, std::span<const StepSample> samples, int64_t step) {
  Detection detection;
  std::vector<Verdict> workers;
  for (const auto& [number, each] : by_step(state, samples)) {
    std::vector<Verdict> of_step;
    const OpSums sums = learn_workers(state, each, number, of_step);
    const LateSums late = judge_links(state, each, number, detection.verdicts);
    explain(state, each, number, sums, late, of_step);
    workers.insert(workers.end(), of_step.begin(), of_step.end());
  }
  detection.verdicts.insert(detection.verdicts.end(), workers.begin(), workers.end());
  detection.cluster = cluster_of(state, step);
  detection.changed = !same(detection.cluster, state.cluster);
  state.cluster = detection.cluster;
  detection.state = std::move(state);
  return detection;
}

MonitorState forget(MonitorState state, WorkerId worker) {
  std::erase_if(state.links, [&](const auto& link) {
    return link.first.first == worker || link.first.second == worker;
  });
  state.workers.erase(worker);
  state.loads.erase(worker);
  state.run_delays.erase(worker);
  return state;
}

}  // namespace tenuto
