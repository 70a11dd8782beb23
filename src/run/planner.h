// Searches for better plans in threads of its own, so that no step waits for a search. Also makes a
// plan in advance for the death of each worker.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "control/decide.h"
#include "run/plan_cache.h"

namespace tenuto {

// Answers one request at a time; a newer one replaces one that has not been begun. At low priority
// it also makes a plan for the death of each live worker: when one of them dies, the plan is there
// and only has to be priced.
class Planner {
 public:
  // `wake` is called from the planner's thread whenever take() has something.
  explicit Planner(std::function<void()> wake);
  // Waits for what is under way.
  ~Planner();
  // Begins to work on the request.
  void ask(PlanRequest request);
  // The answers since the last call.
  std::vector<Planned> take();
  // From now on makes plans ahead for this situation: for each live worker, the plan that the
  // coordinator would ask for if that worker died next. situation.plan is plan_of_all(); the
  // planner removes the dead from it.
  void make_ahead(PlanRequest situation);
  // For how many deaths of the last situation the plan is made, or is known to be impossible.
  int32_t made_ahead() const;

 private:
  // The situation for which plans are made ahead.
  struct Ahead {
    PlanRequest situation;
    int32_t next = 0;  // the worker whose death is planned for next
  };

  void answer_requests();
  void work_ahead();
  // Chooses the remedy, with the plan that was made ahead if there is one.
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
