// A process of a run with server shards that trains the network of trials (sync/trial_model.h): a
// server, a decider, or a replica that makes each iteration last as long as the scenario draws.
//
// It gets lines from its parent, which has the host of the run, and answers with lines:
//
//     settings        what SyncPeerSettings writes              -> address HOST:PORT
//     connect N ADDRESS [N ADDRESS ...]                         -> ready
//     begin MOMENT    of the run, on the monotonic clock
//     members TEXT    of the next epoch                         -> placed EPOCH
//     install         to the process with the decider
//     lost N          the process N
//     sample REPLICA COMPUTE TRANSFER SHARE   to the decider; a replica says the same
//     stop            to replicas: no more offers               -> stopped
//     finish          -> state KEEPER VERSION, for each keeper; finished
//
// Besides it may say `changed MODE`, `lost N` and `failed SENTENCE`. A process with a decider is
// finished when all updates are committed, and does nothing more then.
#pragma once

#include <cstdint>
#include <string>

#include "parameter_server/roster.h"

namespace tenuto {

// What a process is told first.
struct SyncPeerSettings {
  servers::RunProcess process;
  std::string scenario;
  std::string mode;       // with which the run begins, formed, as text
  bool chooses = false;   // whether the look-ahead changes it
  uint64_t seed = 0;      // of data, parameters and times
  int64_t batch = 16;     // micro-batches of an iteration, of one sample each
  std::string optimizer;  // its name
  double rate = 0, kappa = 0.3;
  int32_t ranges = 2;  // into which the parameters are cut
  std::string folder;  // for process-N.log, and for state-PEER and parameters-PEER at the end
  std::string token;   // that the processes of a run show each other
};

// As a line, and back. Every word is without spaces.
std::string to_text(const SyncPeerSettings& settings);
SyncPeerSettings sync_peer_settings_from_text(const std::string& line);

// The ranges of the network's parameters, of about equal length.
std::vector<servers::ElementRange> ranges_of_trial(int32_t count);

// Runs such a process with its standard input and output. Returns when the input ends.
int run_sync_peer();

}  // namespace tenuto
