// When the process of a worker that has died is started again.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// Each worker's process is started again at most `most` times: one second after its first end, two
// seconds after the second, and so on; the pause doubles each time, up to a minute. Without the
// pauses, a process that always ends at once would disturb the others all the time.
class Restarts {
 public:
  // `most`: how often each worker is started again.
  explicit Restarts(int32_t most) : most_(most) {}
  // The worker's process has ended.
  void note_end(WorkerId worker, Duration now);
  // Has the worker started on request: this does not count towards `most`.
  void want(WorkerId worker, Duration now) { due_[worker] = now; }
  // Whether the worker is going to be started.
  bool has(WorkerId worker) const { return due_.contains(worker); }
  // The workers that are due to start again, each once.
  std::vector<WorkerId> take(Duration now);

 private:
  int32_t most_;
  std::map<WorkerId, int32_t> count_;  // how often each has been started again after an end
  std::map<WorkerId, Duration> due_;
};

}  // namespace tenuto
