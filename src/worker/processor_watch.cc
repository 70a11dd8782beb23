#include "worker/processor_watch.h"

namespace tenuto {

void ProcessorWatch::begin(Duration now) {
  began_ = now;
  ahead_.reset();
  if (last_ && now - ended_ < kAskEvery) return;
  last_ = look_();
  steps_ = 0;
}

void ProcessorWatch::look_ahead(Duration now) {
  if (is_due(now)) ahead_ = look_();
}

std::optional<ProcessorSample> ProcessorWatch::end(Duration now) {
  ended_ = now;
  ++steps_;
  if (!is_due(now)) return std::nullopt;
  ProcessorUse use = ahead_ ? *std::exchange(ahead_, {}) : look_();
  const ProcessorSample sample = processor_sample(*last_, use, steps_, now - began_);
  last_ = std::move(use);
  steps_ = 0;
  return sample;
}

}  // namespace tenuto
