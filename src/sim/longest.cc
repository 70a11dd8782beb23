#include "sim/longest.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/longest_time.h"
#include "base/text.h"
#include "sim/route.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr double kMost = static_cast<double>(kLongestTime.count());

// An input figure, and the sum of all times that depend on it, in nanoseconds.
struct Figure {
  std::string name;
  double value = 0;   // as users give it
  bool rate = false;  // less of it takes longer
  double total = 0;
  double uneven = 1;  // the longest time of a stage over the mean of all stages
};

// The slowest worker and the slowest link that an op or a message may use.
struct Worst {
  double speed = 1;
  Duration latency{};
  double bytes_per_second = 0;
  bool of_port = false;  // the rate is that of a port
};

Worst worst_of(const Schedule& schedule, const Cluster& cluster) {
  Worst worst;
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    const Worker& worker = cluster.workers[w];
    if (worker.alive && worker.speed > 0) worst.speed = std::min(worst.speed, worker.speed);
  }
  const auto meet = [&](const Link& link) {
    worst.latency = std::max(worst.latency, link.latency);
    const double rate = link.bytes_per_second;
    if (rate <= 0) return;
    worst.bytes_per_second =
        worst.bytes_per_second == 0 ? rate : std::min(worst.bytes_per_second, rate);
  };
  for (const auto& row : cluster.between) {
    for (const Link& link : row) meet(link);
  }
  for (const auto& [ends, link] : cluster.exceptions) meet(link);
  const double of_links = worst.bytes_per_second;
  for (const Port& port : cluster.ports) meet({{}, port.bytes_per_second});
  worst.of_port = worst.bytes_per_second != of_links;
  return worst;
}

// The total time of the ops of one kind, all at the slowest worker.
Figure figure_of(const char* name, const std::vector<StageCost>& costs, Duration StageCost::*time,
                 double micros, double speed) {
  Figure figure{.name = name};
  size_t longest = 0;
  for (size_t s = 0; s < costs.size(); ++s) {
    figure.total += micros * static_cast<double>((costs[s].*time).count()) / speed;
    if (costs[s].*time > costs[longest].*time) longest = s;
  }
  figure.name += cat(" of stage ", longest);
  const Duration most = costs[longest].*time;
  figure.value = to_milliseconds(most);
  const double alike =
      micros * static_cast<double>(most.count()) * static_cast<double>(costs.size()) / speed;
  if (figure.total > 0) figure.uneven = alike / figure.total;
  return figure;
}

// The messages of a step and the moves of its sums: how many, and their bytes.
struct Traffic {
  double messages = 0, bytes = 0;
};

Traffic traffic_of(const Plan& plan, const Schedule& schedule, const Model& model,
                   const PriceOptions& options) {
  const Sizes sizes = sizes_of(model, plan.stages, options.weight_share);
  Traffic traffic;
  for (const auto& list : schedule.lists) {
    for (const Op& op : list) {
      if (op.kind != OpKind::Recv) continue;
      traffic.messages += 1;
      traffic.bytes +=
          static_cast<double>(sizes.of[at(op.stage.value)][static_cast<size_t>(op.moved)].count);
    }
  }
  if (!options.update) return traffic;
  Bytes most;
  for (const Stage& stage : plan.stages) most = std::max(most, stage_cost(model, stage).parameters);
  for (const Collective& collective : schedule.collectives) {
    double moves = 0;
    for (const Round& round : collective.rounds) moves += static_cast<double>(round.moves.size());
    traffic.messages += moves;
    traffic.bytes += moves * static_cast<double>(most.count) / collective.chunk_count;
  }
  return traffic;
}

// All input figures that times depend on.
std::vector<Figure> figures_of(const Plan& plan, const Schedule& schedule, const Model& model,
                               const Cluster& cluster, const PriceOptions& options) {
  const Worst worst = worst_of(schedule, cluster);
  std::vector<StageCost> costs;
  for (const Stage& stage : plan.stages) costs.push_back(stage_cost(model, stage));
  const double micros = schedule.micro_count, stages = schedule.stage_count;
  const Traffic traffic = traffic_of(plan, schedule, model, options);
  std::vector<Figure> all = {
      figure_of("forward_ms", costs, &StageCost::forward, micros, worst.speed),
      figure_of("backward_input_ms", costs, &StageCost::backward_input, micros, worst.speed),
      figure_of("backward_weight_ms", costs, &StageCost::backward_weight, micros, worst.speed),
      {"per_op_ms", to_milliseconds(options.per_op), false,
       3 * micros * stages * static_cast<double>(options.per_op.count())},
      {"latency_ms of a link", to_milliseconds(worst.latency), false,
       traffic.messages * static_cast<double>(worst.latency.count())}};
  if (worst.bytes_per_second > 0) {
    all.push_back({cat("megabytes_per_second of a ", worst.of_port ? "port" : "link"),
                   worst.bytes_per_second / 1e6, true,
                   traffic.bytes / worst.bytes_per_second * 1e9});
  }
  if (worst.speed < 1) {
    all.push_back(
        {"the speed of a worker", worst.speed, true, all[0].total + all[1].total + all[2].total});
    for (size_t i = 0; i < 3; ++i) all[i].total *= worst.speed;
    all.back().total -= all[0].total + all[1].total + all[2].total;
  }
  for (Figure& figure : all) figure.total *= steps_overlap(options) ? kStaggeredSteps : 1;
  return all;
}

// The number, rounded up or down to three significant digits.
double short_of(double number, bool up) {
  if (!(number > 0) || !std::isfinite(number)) return number;
  const double unit = std::pow(10, std::floor(std::log10(number)) - 2);
  return (up ? std::ceil(number / unit) : std::floor(number / unit)) * unit;
}

}  // namespace

Error too_long(const Plan& plan, const Schedule& schedule, const Model& model,
               const Cluster& cluster, const PriceOptions& options) {
  const auto all = figures_of(plan, schedule, model, cluster, options);
  const Figure& most = *std::max_element(
      all.begin(), all.end(), [](const Figure& a, const Figure& b) { return a.total < b.total; });
  double others = 0;
  for (const Figure& figure : all) others += &figure == &most ? 0 : figure.total;
  const std::string refused = cat("a step of this plan would last longer than ",
                                  static_cast<int64_t>(kMost / 1e9 / 86400 / 365),
                                  " years, more than is counted: ", most.name, " is ", most.value);
  if (others >= kMost) {
    return invalid(cat(refused, ", and the other times alone are too long: with all times ",
                       short_of((others + most.total) / kMost, true),
                       " times shorter the step fits"));
  }
  const double factor = std::min(1.0, (kMost - others) / (most.total * most.uneven));
  return invalid(cat(refused, "; with ",
                     short_of(most.rate ? most.value / factor : most.value * factor, most.rate),
                     most.rate ? " or more" : " or less", " the step fits"));
}

Status check_longest(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options) {
  double sum = 0;
  for (const Figure& figure : figures_of(plan, schedule, model, cluster, options)) {
    sum += figure.total;
  }
  if (sum <= kMost) return ok();
  return too_long(plan, schedule, model, cluster, options);
}

}  // namespace tenuto
