// Which replicas straggle, iteration by iteration, and why: a slow link, a host whose CPU others
// take, or a slow device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sync/predict_record.h"

namespace tenuto {

// Why a replica takes longer than the fastest one.
enum class StragglerCause : uint8_t {
  Link,    // most of the time that it takes longer is transfer
  Cpu,     // most is compute, and its threads waited for a CPU
  Device,  // most is compute, and they did not
};
constexpr size_t kStragglerCauses = 3;

// A name for reports: link, cpu, device.
std::string to_text(StragglerCause cause);

// A replica whose iteration took more than kStraggler times the fastest one's.
struct StragglerVerdict {
  ReplicaId replica;
  double slowdown = 1;  // times the fastest
  StragglerCause cause = StragglerCause::Device;
  std::string sentence;
};

// The verdicts on one iteration, in order of replica. `samples` has one sample of each replica.
//
// The CPU is the cause when run delay makes up half of the added compute time. Where the kernel
// tells no run delay, two signs must agree: the host's pressure is at least kPressure higher than
// that of the fastest replica, and half of the added compute time is no CPU time.
std::vector<StragglerVerdict> find_stragglers(std::span<const IterationSample> samples);
constexpr double kPressure = 0.1;

// How often a replica straggled, and why.
struct StraggleCount {
  std::array<int64_t, kStragglerCauses> by_cause{};  // iterations; indexed by StragglerCause
  double worst = 1;                                  // its largest slowdown
};
// The same of all replicas of a recording.
struct StraggleCounts {
  std::vector<StraggleCount> replicas;
  int64_t iterations = 0;      // of each replica
  int64_t with_straggler = 0;  // iterations in which somebody straggled
};
// Counts the verdicts on all iterations.
StraggleCounts count_stragglers(const Recording& recording);

// The counts as a table for people, and how many iterations had a straggler.
std::string straggle_report(const Recording& recording);

}  // namespace tenuto
