#include "adapt/layout/draft_pricer.h"

#include <algorithm>
#include <utility>

namespace tenuto {

namespace {

constexpr size_t kShapes = 48;      // kept
constexpr double kReached = 1e-12;  // a step this close to its bound has reached it
constexpr double kGoal = 1e-9;      // or to the goal, which is found by bisection
constexpr double kPolicies = 5;     // that best_schedule() plays
// A replay of a search for schedules costs about this share of a simulation; a node of a
// branch-and-bound search about this number of blocks.
constexpr double kReplayShare = 0.5, kNodeBlocks = 1;

// The ops and transfers of a step. Half-duplex links are simulated like stages, at twice the cost.
double blocks_of(const LayoutLoads& loads) {
  const double share = loads.half_duplex ? 2 : 1;
  return share * loads.micros * (4 * static_cast<double>(loads.stages.size()) - 2);
}

}  // namespace

DraftPricer::DraftPricer(const DraftTable& table, double blocks, Watch* watch)
    : table_(&table), blocks_(blocks), watch_(watch) {}

bool DraftPricer::is_over() const {
  if (best_.makespan == kNotPriced) return false;
  return spent_ >= blocks_ || best_.makespan <= goal_ * (1 + kGoal) || tenuto::is_over(watch_);
}

void DraftPricer::set_effort(int64_t replays, int64_t nodes) {
  replays_ = replays;
  nodes_ = nodes;
  steps_.clear();
}

BlockEffort DraftPricer::effort_for(const Draft& draft) const {
  BlockEffort effort;
  effort.replays = replays_;
  effort.nodes = nodes_;
  if (table_->problem().memory_is_limited()) effort.most_in_flight = table_->most_in_flight(draft);
  return effort;
}

double DraftPricer::price(const Draft& draft, double limit, const std::string& how) {
  if (is_over()) return kNotPriced;
  const double least = least_makespan(draft.loads);
  if (least >= limit) return kNotPriced;
  if (table_->shortage(draft).stage >= 0) return kNotPriced;
  const BlockEffort effort = effort_for(draft);
  uint64_t key = key_of(draft.loads);
  for (const int32_t most : effort.most_in_flight) key = key * 31 + static_cast<uint64_t>(most);
  const auto [found, is_new] = steps_.try_emplace(key, kNotPriced);
  if (!is_new) return found->second;
  const std::optional<BlockSchedule> schedule = best_schedule(draft.loads, effort);
  ++priced_;
  count_item(watch_);
  const double blocks = blocks_of(draft.loads);
  charge(kPolicies * blocks);
  if (!schedule) return kNotPriced;
  if (schedule->makespan > least * (1 + kReached)) {
    charge(static_cast<double>(replays_) * kReplayShare * blocks +
           static_cast<double>(nodes_) * kNodeBlocks);
  }
  found->second = schedule->makespan;
  keep(draft, schedule->makespan, how);
  return schedule->makespan;
}

std::optional<BlockSchedule> DraftPricer::schedule(const Draft& draft, int64_t replays,
                                                   int64_t nodes) {
  BlockEffort effort = effort_for(draft);
  effort.replays = std::max(replays, replays_);
  effort.nodes = std::max(nodes, nodes_);
  charge((kPolicies + kReplayShare * static_cast<double>(effort.replays)) * blocks_of(draft.loads) +
         kNodeBlocks * static_cast<double>(effort.nodes));
  return best_schedule(draft.loads, effort);
}

void DraftPricer::keep(const Draft& draft, double makespan, const std::string& how) {
  if (makespan < best_.makespan) best_ = {draft, makespan, how};
  if (shapes_.size() >= kShapes && makespan >= worst_shape_) return;
  std::vector<int32_t> shape;
  for (const DraftStage& stage : draft.stages) shape.push_back(stage.replicas);
  PricedDraft& kept = shapes_[shape];
  if (makespan >= kept.makespan) return;
  kept = {draft, makespan, how};
  const auto slower = [](const auto& one, const auto& other) {
    return one.second.makespan < other.second.makespan;
  };
  if (shapes_.size() > kShapes) {
    shapes_.erase(std::max_element(shapes_.begin(), shapes_.end(), slower));
  }
  worst_shape_ = std::max_element(shapes_.begin(), shapes_.end(), slower)->second.makespan;
}

std::vector<PricedDraft> DraftPricer::best_of_shapes() const {
  std::vector<PricedDraft> all;
  for (const auto& [shape, priced] : shapes_) all.push_back(priced);
  std::stable_sort(all.begin(), all.end(), [](const PricedDraft& one, const PricedDraft& other) {
    return one.makespan < other.makespan;
  });
  return all;
}

}  // namespace tenuto
