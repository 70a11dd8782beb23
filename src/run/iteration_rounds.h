// The iterations that the replicas of a run with server shards have measured, put together into
// rounds: round n has the n-th iteration of each replica, as a recording has them
// (sync/predict_record.h).
//
// Limit: a replica that is more than kMostAhead iterations ahead of another one is not recorded
//        until that one has caught up. If a replica is lost for good, no further round is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ir/sync_mode.h"
#include "parameter_server/host_message.h"
#include "sync/predict_record.h"

namespace tenuto {

// An iteration as recordings have it. Times, pressure and share are cut to what a recording may
// have.
IterationSample sample_of(const servers::MeasuredIteration& iteration);

// Iterations in, rounds out.
class IterationRounds {
 public:
  static constexpr size_t kMostAhead = 1024;

  explicit IterationRounds(int32_t replicas) : waiting_(static_cast<size_t>(replicas)) {}

  // A replica has ended an iteration. One that the run does not have changes nothing.
  void add(ReplicaId replica, const IterationSample& sample);

  // The next round, once; none = some replica has not ended its iteration of it.
  //
  // Shapes: a sample of each replica, in their order
  std::optional<std::vector<IterationSample>> take();

 private:
  std::vector<std::deque<IterationSample>> waiting_;  // of each replica, that are in no round yet
};

}  // namespace tenuto
