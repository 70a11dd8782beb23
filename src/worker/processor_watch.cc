#include "worker/processor_watch.h"

namespace tenuto {

void ProcessorWatch::begin(Duration now) {
  began_ = now;
  if (last_ && now - ended_ < kAskEvery) return;
  last_ = look_();
  steps_ = 0;
}

std::optional<ProcessorSample> ProcessorWatch::end(Duration now) {
  ended_ = now;
  ++steps_;
  if (!last_ || now - last_->at < kAskEvery) return std::nullopt;
  ProcessorUse use = look_();
  const ProcessorSample sample = processor_sample(*last_, use, steps_, now - began_);
  last_ = std::move(use);
  steps_ = 0;
  return sample;
}

}  // namespace tenuto
