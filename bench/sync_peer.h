// A process of a run with server shards that trains the network of trials (sync/trial_model.h): a
// server, a decider, or a replica that makes each iteration last as long as the scenario draws.
//
// The first line from its parent, which is the host of the run, has its settings. Each further line
// of its input is a command, and each line of its output a report
// (parameter_server/host_message.h), as to_line writes their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parameter_server/roster.h"
#include "sync/scenario.h"

namespace tenuto {

// What a process is told first.
struct SyncPeerSettings {
  servers::RunProcess process;
  SyncScenario scenario;  // but for its optimizer, which is named below
  std::string mode;       // with which the run begins, formed, as text
  bool chooses = false;   // whether the look-ahead changes it
  uint64_t seed = 0;      // of data, parameters and times
  int64_t batch = 16;     // micro-batches of an iteration, of one sample each
  std::string optimizer;  // its name
  double rate = 0, kappa = 0.3;
  bool learns_kappa = false;  // `kappa` is where it begins
  int32_t ranges = 2;         // into which the parameters are cut
  std::string folder;  // for process-N.log, and for state-PEER and parameters-PEER at the end
  std::string token;   // that the processes of a run show each other
};

// As a line, and back. Every word is without spaces.
std::string to_text(const SyncPeerSettings& settings);
SyncPeerSettings sync_peer_settings_from_text(const std::string& line);

// Bytes as a line of hexadecimal digits, two for each byte, and back. No bytes come back from a
// line that is none.
std::string to_line(std::span<const std::byte> bytes);
std::vector<std::byte> from_line(std::string_view line);

// The ranges of the network's parameters, of about equal length.
std::vector<servers::ElementRange> ranges_of_trial(int32_t count);

// Runs such a process with its standard input and output. Returns when the input ends.
int run_sync_peer();

}  // namespace tenuto
