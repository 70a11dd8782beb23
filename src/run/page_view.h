// What the coordinator knows of its run, as the page shows it.
#pragma once

#include <map>

#include "base/id.h"
#include "control/state.h"
#include "page/snapshot.h"
#include "run/served_processes.h"
#include "run/status.h"
#include "world/job.h"

namespace tenuto {

// What the newest step of each worker consisted of. A worker forgets its step when it is committed,
// so this is kept from one look to the next.
using KnownTimes = std::map<WorkerId, page::WorkerTimes>;

// The run, without its history and without why its plan is in force. Brings `times` up to date.
page::Snapshot snapshot_of(const State& state, const Job& job, KnownTimes& times);

// The same of a run with server shards. Its workers report no times of steps, and its links are not
// watched.
page::Snapshot snapshot_of(const ServedStatus& status, const ServedProcesses& processes,
                           const Job& job);

}  // namespace tenuto
