// Parts of a paced device beside its mathematics: the labels of messages, the weight buckets of a
// stage, and what the stages of one worker share. Private to the paced device.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "rehearsal/paced.h"
#include "rehearsal/paced_math.h"
#include "runtime/kept_values.h"

namespace tenuto {

// Numbers of a message, of weights, of sums.
using Floats = std::vector<float>;

// Reads a Norm or a ClipDecision from its message.
template <class Form>
Form read_form(const Floats& from) {
  Form form;
  std::memcpy(&form, std::as_bytes(std::span(from)).data(), sizeof(form));
  return form;
}

// Writes a Norm or a ClipDecision into its message.
template <class Form>
void write_form(Floats& to, const Form& form) {
  std::memcpy(to.data(), &form, sizeof(form));
}

// Elements of a message that name its value; behind them come its numbers, then ballast.
inline constexpr size_t kLabel = 4;

// The numbers of a message.
template <class Message>
auto numbers_of(Message& message) {
  return std::span(message).subspan(
      kLabel, std::min(message.size() - kLabel, static_cast<size_t>(kPacedLive)));
}

// Writes at the begin of the message which value it is.
void write_label(Floats& message, const Value& whose);
// Errors: Corrupt/Link  it is another value, or its numbers are not those that were sent
Status check_label(const Floats& message, const Value& whose);

// One weight bucket: a range of the stage's weights that is reduced by itself.
struct Bucket {
  int16_t part = -1;
  StageId owner;  // whose initial weights it has: its stage, or the first one of a tied pair
  size_t first = 0, end = 0;
};

// The buckets of a stage with `weights` weights: one for each part that the plan reduces by itself.
std::vector<Bucket> buckets_of(const Plan& plan, StageId stage, size_t weights);

// What all stages of a worker have in common: the job's settings, the values, the device's own
// time, its lag.
struct PacedCommon {
  PacedCommon(const Job& job, const Clock& clock, Mailbox& mailbox, const PacedOptions& options);
  // A step begins: empties the store. KeptValues says which kept values stay.
  void begin(int64_t next);
  // Makes a value of `size` elements, with any content.
  Floats* make(const Value& value, size_t size);
  // Moves a value, if it is in the store, to those that are kept for resume().
  void keep(const Value& value);
  // Forgets a value of the store, if it is there.
  void discard(const Value& value);
  // Takes the memory of a value that is not needed any more; memory of a message's size is used
  // again.
  void recycle(Floats& numbers);

  const PacedOptions options;
  const bool virtual_clock;
  const bool sleeps;  // false: the clock is a test's, by which no thread can sleep
  const Clock& clock;
  QueueMailbox& mailbox;
  const size_t elements;  // of a message

  std::map<Value, Floats> store;
  std::vector<Floats> spare;  // message buffers to use again
  KeptValues<Floats> kept;
  Duration now{-1};
  double speed = 1;

  LagRecord lags;
  bool counts_lag = true;
};

}  // namespace tenuto
