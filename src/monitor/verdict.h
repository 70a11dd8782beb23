// A finding of detection, as a value and as a sentence.
#pragma once

#include <cstdint>
#include <string>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// SlowLink is reported again when a slow link becomes slower or less slow; so is SlowWorker.
enum class VerdictKind : uint8_t { SlowLink, LinkHealed, SlowWorker, WorkerHealed };

// One finding.
struct Verdict {
  VerdictKind kind = VerdictKind::SlowLink;
  WorkerId from, to;           // of a link, from < to: both directions; of a worker: from
  int64_t since_step = 0;      // the first step with the change
  int64_t found_step = 0;      // the step whose samples made it certain
  Duration before{}, after{};  // of a link: the round trip of a message, without computing
  double factor = 1;           // of a link: after / before; of a worker: how many times as long
                               // its ops last as they should
  double sure = 0;             // probability of the change
  std::string sentence;        // all of this, for people
};

// The sentence of a verdict, from its other fields. For a worker, `speed` is what to plan with.
//
//   link 2-3 (worker 2 to worker 3) is slow since step 40: round trip 0.2 -> 40.1 ms, sure 0.99
//   worker 5 is slow since step 40: its ops last 2.31 times as long as they should, planned with
//   speed 0.45, sure 0.99
std::string sentence_of(const Verdict& verdict, double speed = 1);

}  // namespace tenuto
