#include "transport/tcp/outbox.h"

namespace tenuto::tcp {

void Outbox::stage(const Frame& frame, uint64_t message) {
  const size_t at = heads_.size();
  heads_.resize(at + kLongestFrame);
  const size_t size = encode(frame, std::span(heads_).subspan(at));
  heads_.resize(at + size);
  bytes_ += size;
  const bool joins = !empty() && segments_.back().data == nullptr &&
                     segments_.back().message == 0 &&
                     segments_.back().at + segments_.back().size == at;
  if (joins) {
    segments_.back().size += size;
    segments_.back().message = message;
  } else {
    segments_.push_back({nullptr, at, size, message});
  }
}

void Outbox::stage(std::span<const std::byte> bytes, uint64_t message) {
  segments_.push_back({bytes.data(), 0, bytes.size(), message});
  bytes_ += bytes.size();
}

std::span<const std::span<const std::byte>> Outbox::gather() {
  gathered_.clear();
  for (size_t i = next_; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const std::byte* data = segment.data != nullptr ? segment.data : heads_.data() + segment.at;
    gathered_.emplace_back(data, segment.size);
  }
  return gathered_;
}

void Outbox::skip(Segment& segment, size_t count) {
  if (segment.data != nullptr) {
    segment.data += count;
  } else {
    segment.at += count;
  }
  segment.size -= count;
}

void Outbox::clear() {
  segments_.clear();
  heads_.clear();
  next_ = bytes_ = 0;
}

void Outbox::own() {
  for (size_t i = next_; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    if (segment.data == nullptr) continue;
    const size_t at = heads_.size();
    heads_.insert(heads_.end(), segment.data, segment.data + segment.size);
    segment.data = nullptr;
    segment.at = at;
  }
}

}  // namespace tenuto::tcp
