// What PyTorch's pipeline runtime would do with a schedule that places its messages.
//
// There each rank takes its cells one after the other, in the order in which they stand, and two
// ranks match the messages between them by the order of sending and of receiving, not by name.
// Here sends, receives and compute ops of a worker wait for their values alone, and a message has a
// name. So a list can be right here and stand still, or mix up its messages, there.
#pragma once

#include <cstdint>
#include <string>

#include "ir/schedule.h"

namespace tenuto {

// How it ends there.
enum class TorchEnding : uint8_t {
  Runs,      // to the end, with the right values
  Hangs,     // as PyTorch's own dry run finds it (_simulate_comms_compute)
  MixesUp,   // a receive gets another message than the one that it is for
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
// rank r, one rank a stage. By the rules of the dry run a receive waits for its send to be issued,
// a compute op for its receive or for what its own rank has made, a weight gradient for nothing.
TorchRun torch_run(const Schedule& schedule);

}  // namespace tenuto
