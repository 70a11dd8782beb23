// Why a worker or a replica is slow: the one rule for a run's detection and for recorded
// iterations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tenuto {

// Why something takes longer than the fastest one, or than it should.
enum class StragglerCause : uint8_t {
  Link,    // most of the time that it takes longer is transfer
  Cpu,     // most is compute, and its threads waited for a CPU
  Device,  // most is compute, and they did not
};
constexpr size_t kStragglerCauses = 3;

// A name for reports: link, cpu, device.
std::string to_text(StragglerCause cause);

// What the time of an iteration, or of several steps, is made of. Times are in nanoseconds.
struct TimeParts {
  double compute = 0, transfer = 0;
  double cpu = 0;                   // CPU time of its threads
  std::optional<double> run_delay;  // they were ready, but without a CPU; none = not known
  std::optional<double> pressure;   // share of the time in which tasks of the host waited for a CPU
};

// Why `own` takes longer than `best`, the same work as it should be.
//
// The part that adds most is the cause: transfer is the link. Compute is the CPU when run delay
// makes up half of the added compute time. Where the kernel tells no run delay, two signs must
// agree: the host's pressure is at least kPressure higher than `best` has it, and half of the added
// compute time is no CPU time. None = compute adds most, and neither run delay nor pressure is
// known. What `best` does not know counts as 0 there.
std::optional<StragglerCause> cause_of(const TimeParts& own, const TimeParts& best);
constexpr double kPressure = 0.1;

}  // namespace tenuto
