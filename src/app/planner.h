// Weighs plans in threads of its own, so that no step waits for it, and makes plans ahead for
// deaths that may come.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "adapt/adapt.h"
#include "app/plan_cache.h"
#include "control/decide.h"

namespace tenuto {

// One request at a time; a newer one takes the place of one that has not been begun. Beside it, at
// low priority, plans are made for the cluster without one more worker, each worker in turn: what
// is asked when one dies has then its answer at hand, but for its price.
class Planner {
 public:
  // `wake` is called from the planner's thread whenever take() has something.
  explicit Planner(std::function<void()> wake);
  // Waits for what is under way.
  ~Planner();
  // Begins to weigh.
  void ask(PlanRequest request);
  // The answers since the last call.
  std::vector<Planned> take();
  // From now on makes plans ahead for each single death on top of this situation, as control asks
  // for them: `plan` is the run's first one, from which the dead are taken.
  void make_ahead(PlanRequest situation);
  // How many deaths of the last situation have been looked at.
  int32_t made_ahead() const;

 private:
  // What is being made ahead for.
  struct Ahead {
    PlanRequest situation;
    int32_t next = 0;  // worker
  };

  void answer_requests();
  void work_ahead();
  // By the plan at hand or, without one, by a search.
  Planned answer(const PlanRequest& request);
  void keep(const PlanRequest& request, const Plan& plan);

  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // guards all below but the threads
  std::condition_variable changed_;
  std::optional<PlanRequest> asked_;
  std::optional<Ahead> ahead_;
  PlanCache cache_;
  std::vector<Planned> answers_;
  bool leaving_ = false;
  std::thread thread_, ahead_thread_;
};

}  // namespace tenuto
