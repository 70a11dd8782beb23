// The speed-up of the search over all planners: measured chains by the number of micro-batches, the
// devices and the bandwidths.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapt/layout/chain_data.h"
#include "base/text.h"
#include "bench/planner_tables.h"

namespace tenuto {

namespace {

constexpr double kMillisecond = 1e6;
constexpr int32_t kMicros[] = {4, 8, 16, 32, 64, 128};
constexpr double kBandwidths[] = {0.25, 0.5, 1, 2, 4};
// The sweep has many problems, so each search may try only a part of what it may by default. On the
// chains of print_chains() the steps stay the same.
constexpr int64_t kEffortDivisor = 10;

// Each rival's step divided by ours, the rivals side by side; and the best rival's.
class SpeedUps {
 public:
  void add(const std::vector<double>& rivals, double ours) {
    double best = rivals[0];
    for (size_t i = 0; i < rivals.size(); ++i) {
      columns_[i].add(rivals[i] / ours);
      best = std::min(best, rivals[i]);
    }
    columns_.back().add(best / ours);
  }
  void print(const std::string& name) const {
    std::printf("%-34s", name.c_str());
    for (const Ratios& column : columns_) std::printf(" %11.3f", column.geometric_mean());
    std::printf("\n");
  }
  void print_with_range(const std::string& name) const {
    print(name);
    std::printf("%-34s", "");
    for (const Ratios& column : columns_) {
      const auto range = cat(fixed(column.least(), 2), "-", fixed(column.most(), 2));
      std::printf(" %11s", range.c_str());
    }
    std::printf("\n");
  }

 private:
  std::vector<Ratios> columns_ = std::vector<Ratios>(rivals().size() + 1);
};

// All speed-ups, grouped by each of the dimensions.
struct Sweep {
  SpeedUps all;
  std::map<int32_t, SpeedUps> by_devices, by_micros;
  std::map<double, SpeedUps> by_bandwidth;
  std::ofstream csv;
};

Cluster with_bandwidth(Cluster cluster, double factor) {
  for (std::vector<Link>& row : cluster.between) {
    for (Link& link : row) link.bytes_per_second *= factor;
  }
  return cluster;
}

void print_heading() {
  std::printf(
      "speed-up of %s over each planner: geometric mean, and least-most, over %zu numbers of"
      " micro-batches (%d to %d) and %zu bandwidths (1/4 to 4 times); 1/%lld of the default effort"
      "\n%-34s",
      name_of(Planner::Tenuto).c_str(), std::size(kMicros), kMicros[0],
      kMicros[std::size(kMicros) - 1], std::size(kBandwidths),
      static_cast<long long>(kEffortDivisor), "cluster, chain");
  for (const Rival& rival : rivals()) std::printf(" %11s", rival.name.c_str());
  std::printf(" %11s\n", "best rival");
}

void write_heading(std::ofstream& csv) {
  csv << "cluster,devices,chain,micros,bandwidth,lower_bound_ms";
  for (const Rival& rival : rivals()) csv << ',' << rival.name << "_ms";
  csv << ',' << name_of(Planner::Tenuto) << "_ms,replicas\n";
}

// One chain on one cluster: all micro-batches and bandwidths.
void sweep_chain(const std::string& topology, const Cluster& cluster, const std::string& chain,
                 Sweep& sweep) {
  const std::optional<Model> model = shared_chain(chain);
  if (!model) return;
  LayoutEffort effort;
  effort.blocks /= kEffortDivisor;
  SpeedUps row;
  for (const double bandwidth : kBandwidths) {
    const Cluster scaled = with_bandwidth(cluster, bandwidth);
    for (const int32_t micros : kMicros) {
      const LayoutProblem problem(*model, scaled, {micros, false});
      const LayoutSearch found = search(problem, effort);
      const double ours = found.best.schedule.makespan;
      std::vector<double> steps;
      for (const Rival& rival : rivals()) steps.push_back(rival.plan(problem).schedule.makespan);
      for (SpeedUps* group : {&row, &sweep.all, &sweep.by_devices[problem.device_count()],
                              &sweep.by_micros[micros], &sweep.by_bandwidth[bandwidth]}) {
        group->add(steps, ours);
      }
      if (!sweep.csv.is_open()) continue;
      sweep.csv << topology << ',' << problem.device_count() << ',' << chain << ',' << micros << ','
                << bandwidth << ',' << found.lower_bound / kMillisecond;
      for (const double step : steps) sweep.csv << ',' << step / kMillisecond;
      sweep.csv << ',' << ours / kMillisecond << ',' << replicas_of(found.best.layout) << '\n';
    }
  }
  row.print_with_range(cat(topology, ", ", chain));
  std::fflush(stdout);
}

void print_groups(const Sweep& sweep) {
  std::printf("\n");
  for (const auto& [devices, speed_ups] : sweep.by_devices) {
    speed_ups.print(cat(devices, " devices"));
  }
  for (const auto& [micros, speed_ups] : sweep.by_micros) {
    speed_ups.print(cat(micros, " micro-batches"));
  }
  for (const auto& [bandwidth, speed_ups] : sweep.by_bandwidth) {
    speed_ups.print(cat("bandwidths x ", bandwidth));
  }
  sweep.all.print_with_range("all");
}

}  // namespace

bool print_sweep(const PlannerSettings& settings) {
  // The clusters and the chains of all tables.
  std::vector<std::string> topologies;
  std::set<std::string> chains;
  for (const std::string& table : expected_tables()) {
    const std::string topology = topology_of(table);
    if (topologies.empty() || topologies.back() != topology) topologies.push_back(topology);
    for (const ExpectedRow& row : expected_table(table)) chains.insert(row.chain);
  }
  if (chains.empty()) {
    std::printf("the measured chains are not here (shared/data/planner): nothing to compare\n");
    return true;
  }
  Sweep sweep;
  if (!settings.csv.empty()) {
    sweep.csv.open(settings.csv);
    if (!sweep.csv) return false;
    write_heading(sweep.csv);
  }
  print_heading();
  for (const std::string& topology : topologies) {
    const std::optional<Cluster> cluster = shared_topology(topology);
    if (!cluster) continue;
    for (const std::string& chain : chains) sweep_chain(topology, *cluster, chain, sweep);
  }
  print_groups(sweep);
  if (!sweep.csv.is_open()) return true;
  sweep.csv.close();
  return !sweep.csv.fail();
}

}  // namespace tenuto
