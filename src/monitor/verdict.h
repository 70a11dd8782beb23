// A finding of detection, as a value and as a sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/processor_use.h"
#include "base/unit.h"
#include "world/straggler_cause.h"

namespace tenuto {

// SlowLink is reported again when a slow link becomes slower or less slow; so is SlowWorker, which
// is also reported again when its cause is known only later. Unmeasured: the kernel of a worker's
// host does not tell all that causes are found by.
enum class VerdictKind : uint8_t { SlowLink, LinkHealed, SlowWorker, WorkerHealed, Unmeasured };

// Why a worker is slow, and the figures that say so.
struct SlowCause {
  StragglerCause cause = StragglerCause::Device;
  // Per step: how much longer its ops last, and how much later its messages arrive.
  Duration ops_longer{}, messages_later{};
  std::optional<double> waited;    // share of its steps in which a thread waited for a processor
  std::optional<double> pressure;  // share of them in which any task of its host did
};

// One finding.
struct Verdict {
  VerdictKind kind = VerdictKind::SlowLink;
  WorkerId from, to;               // of a link, from < to: both directions; of a worker: from
  int64_t since_step = 0;          // the first step with the change
  int64_t found_step = 0;          // the step whose samples made it certain
  Duration before{}, after{};      // of a link: the round trip of a message, without computing
  double factor = 1;               // of a link: after / before; of a worker: how many times as long
                                   // its ops last as they should
  double speed = 1;                // of a worker: what to plan with
  double sure = 0;                 // probability of the change
  std::optional<SlowCause> cause;  // of a slow worker, where it is known
  // Unmeasured: whether the host tells each.
  Figure run_delay_is = Figure::Known, pressure_is = Figure::Known;
  std::string host;      // of a worker; empty = not known to detection
  std::string scope;     // of a slow link: the whole that is slow (slow_scope.h); empty = it alone
  std::string sentence;  // all of this, for people
};

// The sentence of a verdict, from its other fields.
//
//   link 2-3 (worker 2 to worker 3) is slow since step 40: round trip 0.2 -> 40.1 ms, sure 0.99
//   link 0-1 (worker 0 to worker 1) is slow since step 40: round trip 0.2 -> 40.1 ms, sure 0.99;
//   all links of the boundary 0-1 in every pipeline are slow
//   worker 5 is slow since step 40: its ops last 2.31 times as long as they should, planned with
//   speed 0.45, sure 0.99; other processes take the processors of its host 10.0.0.5: it waited for
//   one in 54 % of its steps' time (pressure 80 %)
std::string sentence_of(const Verdict& verdict);

// What a slow link's sentence says of its scope; empty for an empty scope.
std::string scope_text(const std::string& scope);

// What a slow worker's sentence says of its cause; empty where that is not known.
std::string cause_text(const Verdict& verdict);

}  // namespace tenuto
