// What a decider has committed, and how old its gradients were, for the host of the run.
//
// It looks at the decider's record after every input of the decider: an update is in a record at
// least once before it is committed.
#pragma once

#include <cstdint>
#include <optional>

#include "parameter_server/host_message.h"
#include "sync/progress.h"

namespace tenuto::servers {

// The tally of one decider.
class CommitTally {
 public:
  // Units: `iteration`: micro-batches of one replica's iteration, above 0
  explicit CommitTally(Mass iteration) : iteration_(iteration) {}

  // The record as it is now. The first one is that with which the decider goes on when all members
  // have reported; what is in its updates was decided by others and does not count as works.
  void look(const Record& record);

  // Every keeper has its range in this epoch.
  void note_filled(int64_t epoch);

  // What to say, if more is committed than was said before. If only the epoch of note_filled() is
  // newer, the report has no works: those that were decided meanwhile are in a later one.
  std::optional<CommittedReport> take();

 private:
  Mass iteration_;
  std::optional<AppliedMass> applied_;  // none before the first look
  Version next_;                        // of the next update that was not looked at
  CommittedReport newest_;              // without age
  Version said_;
  int64_t said_filled_ = 0;
  double age_sum_ = 0;  // mass x age, in micro-batches
  Mass measured_;
};

}  // namespace tenuto::servers
