// Plans that have been made, each with the situation that it was made for.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "control/decide.h"
#include "remedy/forecast.h"

namespace tenuto {

// A situation is a cluster (which workers live, their speeds, the links), a model, and what a plan
// must not change: which worker holds which layers, how many micro-batches, the memory limits. It
// does not include the lists of the present plan. When all kept plans together have too many ops,
// the oldest ones are dropped.
class PlanCache {
 public:
  explicit PlanCache(int64_t most_ops = 2'000'000) : most_ops_(most_ops) {}
  // Keeps the plan as the answer to a request; replaces an older one.
  void keep(const PlanRequest& request, std::shared_ptr<const Plan> plan);
  // The plan kept for such a request; null when there is none, or when op times have changed by
  // more than a tenth since.
  std::shared_ptr<const Plan> find(const PlanRequest& request) const;
  // How many plans are kept.
  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    Model model;
    Cluster cluster;
    bool routing = false;
    std::shared_ptr<const Plan> plan;
    int64_t ops = 0;
  };

  static bool answers(const Kept& kept, const PlanRequest& request);

  int64_t most_ops_, ops_ = 0;
  std::deque<Kept> kept_;  // oldest first
};

}  // namespace tenuto
