// What PyTorch's pipeline runtime would do with a schedule that places its messages.
//
// In PyTorch each rank runs its cells one after the other in row order, and two ranks match their
// messages by the order of sends and receives, not by name. In Tenuto a worker's sends, receives
// and compute ops wait only for their values, and a message has a name. So a list that is correct
// in Tenuto can hang, or mix up its messages, in PyTorch.
#pragma once

#include <cstdint>
#include <string>

#include "ir/schedule.h"

namespace tenuto {

// How the run ends in PyTorch.
enum class TorchEnding : uint8_t {
  Runs,      // to the end, with the right values
  Hangs,     // as PyTorch's own dry run finds it (_simulate_comms_compute)
  MixesUp,   // a receive gets the message of another receive
  NotTaken,  // PyTorch does not load the file
};

// "runs", "hangs", "mixes-up" or "not-taken".
const char* name_of(TorchEnding ending);

// The ending with its sentence.
struct TorchRun {
  TorchEnding ending = TorchEnding::Runs;
  std::string sentence;
};

// `schedule` as schedule_from_csv (ir/torch_csv.h) reads it: compute ops and messages, lists[r] =
// rank r, all ops of a stage on one rank. By the rules of the dry run a receive waits until its
// send is issued, a compute op for its receive or for the value made on its own rank, a weight
// gradient for nothing.
TorchRun torch_run(const Schedule& schedule);

}  // namespace tenuto
