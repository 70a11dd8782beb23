// Simulates the steps of drafts within a counted effort, and keeps the best drafts.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "adapt/layout/block_schedule.h"
#include "adapt/layout/draft.h"
#include "base/watch.h"

namespace tenuto {

// The step of a draft that does not fit, or that was not simulated.
inline constexpr double kNotPriced = std::numeric_limits<double>::infinity();

// A draft with its step.
struct PricedDraft {
  Draft draft;
  double makespan = kNotPriced;
  std::string how;  // where it comes from
};

// Remembers the steps of all drafts, so that equal loads are simulated once. Keeps the best draft
// of each shape (the numbers of replicas of the stages), for the best shapes.
class DraftPricer {
 public:
  // `blocks`: ops and transfers to simulate, at most.
  DraftPricer(const DraftTable& table, double blocks, Watch* watch);

  // The step of a draft, by the best schedule within the effort that is set. kNotPriced when the
  // draft does not fit into memory, when is_over(), or when no schedule is below `limit`.
  double price(const Draft& draft, double limit, const std::string& how);
  // How much the schedule of each draft is searched (BlockEffort): not at all at first. Drafts that
  // were priced before are then priced anew, but the best ones stay.
  void set_effort(int64_t replays, int64_t nodes);
  // The schedule of a draft that fits, by at least the effort that is set. Cost: counted.
  std::optional<BlockSchedule> schedule(const Draft& draft, int64_t replays, int64_t nodes);

  // A lower bound on all steps: the search is over when it is reached.
  void set_goal(double least_step) { goal_ = least_step; }
  // True when a draft was found, and the effort is spent, the time is over, or the goal is reached.
  bool is_over() const;
  // Counts work other than simulation, in blocks.
  void charge(double blocks) { spent_ += blocks; }
  // What was counted so far.
  // The blocks that were counted.
  double spent() const { return spent_; }
  // How many drafts were simulated.
  int64_t priced() const { return priced_; }

  // The best draft; its step is kNotPriced when none fits.
  const PricedDraft& best() const { return best_; }
  // The best draft of each of the best shapes, the shortest step first.
  std::vector<PricedDraft> best_of_shapes() const;

 private:
  void keep(const Draft& draft, double makespan, const std::string& how);
  BlockEffort effort_for(const Draft& draft) const;

  const DraftTable* table_;
  double blocks_ = 0, spent_ = 0, goal_ = 0;
  Watch* watch_;
  int64_t replays_ = 0, nodes_ = 0;
  int64_t priced_ = 0;
  std::unordered_map<uint64_t, double> steps_;  // by loads and memory limits
  std::map<std::vector<int32_t>, PricedDraft> shapes_;
  double worst_shape_ = kNotPriced;  // of shapes_, once there are enough
  PricedDraft best_;
};

}  // namespace tenuto
