// The rate of a link, learned from the messages that went over it, and the protocol chosen by it.
#pragma once

#include "base/unit.h"

namespace tenuto {

// The estimate for one direction of one link. Some messages are probes, which ask for an
// acknowledgement at once. A probe gives one sample: its bytes and those queued before it, divided
// by the time from its start to its acknowledgement. That time includes the way back, which the
// hand-shake of a rendezvous would also wait for; so a link with high latency counts as slow, too.
//
// Rendezvous is chosen for messages of more than kOnePiece bytes on links that carried at least
// kFastLink bytes/s; all others are eager, also the first messages of a new link. An eager message
// of one piece is copied once at the receiver, like rendezvous over TCP but without a hand-shake; a
// larger one is assembled first, which is one more copy.
class LinkRate {
 public:
  static constexpr Bytes kOnePiece{512 << 10};     // UCX's settings are derived from it
  static constexpr Bytes kProbeMessage{64 << 10};  // smaller ones would measure latency alone
  static constexpr double kFastLink = 250e6;       // 2 Gbit/s: below it eager's copy costs little

  // Whether a message of `size` that starts now should ask for an acknowledgement. Never while one
  // is awaited. The first kEarlySamples messages ask, later ones once per kProbePause.
  bool wants_probe(Bytes size, Duration now) const {
    if (size < kProbeMessage || awaited_) return false;
    return samples_ < kEarlySamples || now - last_ >= kProbePause;
  }

  // A probe of `size` has started; `ahead` bytes were under way before it.
  void start(Bytes size, Bytes ahead, Duration now) {
    awaited_ = true;
    carried_ = size + ahead;
    last_ = now;
  }

  // The acknowledgement of the probe has come.
  void finish(Duration now) {
    if (!awaited_) return;
    awaited_ = false;
    const double seconds = std::chrono::duration<double>(now - last_).count();
    if (seconds <= 0) return;
    const double sample = static_cast<double>(carried_.count) / seconds;
    rate_ = samples_ == 0 ? sample : rate_ + (sample - rate_) / 4;
    ++samples_;
  }

  // Bytes per second; 0 while nothing is known.
  double bytes_per_second() const { return rate_; }

  // True when a message of `size` should go by rendezvous.
  bool rendezvous(Bytes size) const { return size > kOnePiece && rate_ >= kFastLink; }

 private:
  static constexpr int kEarlySamples = 4;
  static constexpr Duration kProbePause = std::chrono::milliseconds(10);

  bool awaited_ = false;
  int samples_ = 0;
  double rate_ = 0;
  Bytes carried_;
  Duration last_{};
};

}  // namespace tenuto
