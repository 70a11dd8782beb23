// Recorded iterations of replicas: what each replica measured of its own iterations, without any
// waiting for others, and recordings of many of them as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/sync_mode.h"
#include "sync/scenario.h"

namespace tenuto {

// The most replicas and samples that a recording's text may have, the longest time of a sample
// (10^13 ns, 2.8 hours), and the limits of its share. Sums of a window's times do not overflow
// then, nor does what a network makes of them.
constexpr int32_t kMostRecordedReplicas = 4096;
constexpr int64_t kMostRecordedSamples = 1'000'000;
constexpr int64_t kMostRecordedNanoseconds = 10'000'000'000'000;
constexpr double kLeastRecordedShare = 0.01, kMostRecordedShare = 100;

// One iteration of one replica, without waiting for other replicas.
struct IterationSample {
  Duration compute{};          // of the gradient
  Duration send{}, receive{};  // of the gradient, and of the parameters
  Duration run_delay{};        // of its threads on the run queue: ready, but without a CPU
  Duration cpu{};              // CPU time of its threads
  double pressure = 0;  // share of the time in which tasks of its host waited for a CPU, 0 to 1
  double share = 1;     // its micro-batches as a part of a whole iteration's, above 0
  bool operator==(const IterationSample&) const = default;
};

// The same iteration as the simulation knows it, with the compute time of a whole share.
IterationTime time_of(const IterationSample& sample);
// The time of a whole share: compute, send and receive.
Duration whole_time(const IterationSample& sample);

// The samples of each replica, in the order of iterations. Each replica has at least one, and all
// have the same number.
struct Recording {
  std::string name;  // one word
  std::vector<std::vector<IterationSample>> replicas;
  bool operator==(const Recording&) const = default;
};

// The recording as text, one line a sample; times in nanoseconds:
//
//     samples NAME replicas W
//     REPLICA COMPUTE SEND RECEIVE RUN_DELAY CPU PRESSURE SHARE
std::string to_text(const Recording& recording);

// The first line of that text, and the line of a sample, both without the end of the line.
std::string recording_header(std::string_view name, size_t replicas);
std::string sample_line(size_t replica, const IterationSample& sample);

// Reads the text back: the same recording. Blank lines and lines that begin with # are skipped.
//
// Errors: Invalid/Call "SOURCE:LINE:COLUMN: sentence"; a replica with fewer samples than others
Result<Recording> recording_from_text(std::string_view text, std::string_view source);

// Another job on the host of a replica: it uses the CPU for a while, pauses, and begins again.
struct CpuHog {
  int32_t replica = 0;
  double begins = 0.02, ends = 0.05;  // chance of each iteration
  double slower = 2;                  // compute takes this many times as long meanwhile, at least 1
};

// Records a scenario: each replica runs its iterations one after the other, without waiting. With a
// hog, the time that is added to compute is run delay, and the host has pressure.
Recording record_scenario(const SyncScenario& scenario, const std::vector<CpuHog>& hogs,
                          int64_t iterations, uint64_t seed);

}  // namespace tenuto
