// A coordinator that waits until it is needed: `tenuto coordinator --stand-by`
// (docs/script-on-hosts.md).
#pragma once

#include <optional>
#include <string>

#include "app/train.h"
#include "world/job.h"

namespace tenuto {

// Waits while another coordinator leads the run, if this one is to stand by. Which one leads, says
// the lock of the run's folder; that never two of them lead, etcd ensures.
//
// Returns: none when it is the turn of this coordinator, else the exit code: 0, the run has ended
//          and all its steps are done; 75, it has ended before that; 2, such a run has no
//          coordinators that stand by
std::optional<int> await_turn(const TrainOptions& options);

// Whether a run with these settings, the text of its config.toml, is that of the job. `elsewhere`:
// its coordinator may have had another address.
bool is_run_of(const std::string& settings, const Job& job, bool elsewhere);

}  // namespace tenuto
