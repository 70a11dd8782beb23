// All planners on measured chains of layers, beside the results of a reference planner.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "adapt/layout/chain_data.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "bench/planner_tables.h"

namespace tenuto {

namespace {

constexpr double kMillisecond = 1e6;
// The reference has three decimals; means that are nearer to each other are called equal.
constexpr double kPrecision = 5e-4;

// What one chain's planners reached, as ratios to the reference's lower bound.
struct ChainRow {
  std::string chain, replicas, policy, how;
  double bound_ms = 0, least = 0;  // the reference's bound, ours as a ratio to it
  std::vector<double> rivals;
  double reference = 0, ours = 0, search_ms = 0;
};

ChainRow measure(const LayoutProblem& problem, const ExpectedRow& expected) {
  ChainRow row;
  row.chain = expected.chain;
  row.bound_ms = expected.bound_ms;
  row.reference = expected.searched;
  const double bound = expected.bound_ms * kMillisecond;
  for (const Rival& rival : rivals()) {
    row.rivals.push_back(rival.plan(problem).schedule.makespan / bound);
  }
  const Duration start = monotonic_clock().now();
  const LayoutSearch found = search(problem);
  row.search_ms = to_milliseconds(monotonic_clock().now() - start);
  row.least = found.lower_bound / bound;
  row.ours = found.best.schedule.makespan / bound;
  row.replicas = replicas_of(found.best.layout);
  row.policy = name_of(found.best.schedule.policy);
  if (found.best.schedule.improved) row.policy += ", improved";
  row.how = found.how;
  CHECK(found.lower_bound <= found.best.schedule.makespan * (1 + kRounding), row.chain);
  return row;
}

std::vector<ChainRow> measure_table(const std::string& table) {
  const std::optional<Cluster> cluster = shared_topology(topology_of(table));
  std::vector<ChainRow> rows;
  for (const ExpectedRow& expected : expected_table(table)) {
    const std::optional<Model> model = shared_chain(expected.chain);
    if (!cluster || !model) continue;
    const LayoutProblem problem(*model, *cluster, {micros_of(table), false});
    rows.push_back(measure(problem, expected));
  }
  return rows;
}

void print_heading(const std::string& table) {
  std::printf("\n%s, %d micro-batches: step / the reference's lower bound\n%-22s %8s %7s",
              topology_of(table).c_str(), micros_of(table), "chain", "bound ms", "ours");
  for (const Rival& rival : rivals()) std::printf(" %11s", rival.name.c_str());
  std::printf(" %9s %7s\n", "reference", name_of(Planner::Tenuto).c_str());
}

// The last line: the geometric mean of every column.
void print_means(const std::vector<ChainRow>& rows) {
  Ratios least, reference, ours;
  std::vector<Ratios> columns(rivals().size());
  for (const ChainRow& row : rows) {
    least.add(row.least), reference.add(row.reference), ours.add(row.ours);
    for (size_t i = 0; i < columns.size(); ++i) columns[i].add(row.rivals[i]);
  }
  std::printf("%-22s %8s %7.3f", "geometric mean", "", least.geometric_mean());
  for (const Ratios& column : columns) std::printf(" %11.3f", column.geometric_mean());
  std::printf(" %9.3f %7.3f\n", reference.geometric_mean(), ours.geometric_mean());
}

void print_rows(const std::string& table, const std::vector<ChainRow>& rows) {
  print_heading(table);
  for (const ChainRow& row : rows) {
    std::printf("%-22s %8.1f %7.3f", row.chain.c_str(), row.bound_ms, row.least);
    for (const double ratio : row.rivals) std::printf(" %11.3f", ratio);
    std::printf(" %9.3f %7.3f  %s (%s; %s; %.0f ms)\n", row.reference, row.ours,
                row.replicas.c_str(), row.policy.c_str(), row.how.c_str(), row.search_ms);
  }
  print_means(rows);
}

// How often ours is better, equal and worse.
struct Score {
  int better = 0, equal = 0, worse = 0;
  void add(double ratio) {
    ++(ratio < 1 - kPrecision ? better : ratio > 1 + kPrecision ? worse : equal);
  }
};

}  // namespace

void print_chains() {
  Score tables;
  int rows_in_all = 0, behind_a_rival = 0;
  std::string summary;
  for (const std::string& table : expected_tables()) {
    const std::vector<ChainRow> rows = measure_table(table);
    if (rows.empty()) continue;
    print_rows(table, rows);
    Score chains;
    Ratios ratios;
    for (const ChainRow& row : rows) {
      ratios.add(row.ours / row.reference);
      chains.add(row.ours / row.reference);
      bool behind = false;
      for (const double rival : row.rivals) behind |= rival < row.ours * (1 - kRounding);
      behind_a_rival += behind;
      ++rows_in_all;
    }
    tables.add(ratios.geometric_mean());
    summary += cat(table, ": ", fixed(ratios.geometric_mean(), 4), " (", fixed(ratios.least(), 4),
                   " to ", fixed(ratios.most(), 4), "); ", chains.better, " chains better, ",
                   chains.equal, " equal, ", chains.worse, " worse\n");
  }
  if (rows_in_all == 0) {
    std::printf("the measured chains are not here (shared/data/planner): nothing to compare\n");
    return;
  }
  std::printf(
      "\nour step / the reference's, geometric mean (least to most)\n%s"
      "%d tables better, %d equal (within %.2f %%), %d worse; a rival is faster than ours in %d of"
      " %d chains\n",
      summary.c_str(), tables.better, tables.equal, 100 * kPrecision, tables.worse, behind_a_rival,
      rows_in_all);
}

}  // namespace tenuto
