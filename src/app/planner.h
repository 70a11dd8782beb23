// Weighs plans in a thread of its own, so that no step waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "adapt/adapt.h"
#include "control/decide.h"

namespace tenuto {

// One request at a time; a newer one takes the place of one that has not been begun.
class Planner {
 public:
  // `wake` is called from the planner's thread whenever take() has something.
  explicit Planner(std::function<void()> wake);
  // Waits for the request under way.
  ~Planner();
  // Begins to weigh.
  void ask(PlanRequest request);
  // The answers since the last call.
  std::vector<Planned> take();

 private:
  void work();

  const std::function<void()> wake_;
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  std::optional<PlanRequest> asked_;
  std::vector<Planned> answers_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace tenuto
