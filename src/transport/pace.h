// How fast a worker's messages may leave, by peer and by what they are for.
//
// The messages of a step always go ahead of those of a state transfer. A rate also spares
// what other workers, or other jobs, send over the same cables. Only the wire over TCP knows rates;
// elsewhere they have no effect.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// What a message is for: the step under way, or a worker that receives the state of a stage.
enum class Purpose : uint8_t { Step, Transfer };
inline constexpr size_t kPurposes = 2;

// When the next bytes of a paced stream may leave. A value, without a clock.
class Meter {
 public:
  // From this moment on.
  Duration due() const { return due_; }
  // Bytes leave `now`. A stream that has left them a little later than it might have may catch up.
  void spend(Bytes size, double bytes_per_second, Duration now);
  // The rate changes: what is left of the wait from `now` on becomes `factor` times as long.
  void stretch(double factor, Duration now);

 private:
  Duration due_{};
};

// The rates of one worker's wire, which may change while it runs. Any thread may call.
class SendPace {
 public:
  // Messages for `purpose` to `peer` leave with this many bytes per second at most, from the next
  // piece on; 0 = as fast as they can. Small messages are not counted.
  void set(WorkerId peer, Purpose purpose, double bytes_per_second);
  // The same for every peer without a rate of its own.
  void set_others(Purpose purpose, double bytes_per_second);
  // The rate to that peer.
  double rate(WorkerId peer, Purpose purpose) const;

  // All messages to all peers but the spared ones leave with this many bytes per second at most, on
  // top of the rates above; 0 = as fast as they can. Small messages are not counted.
  void set_total(double bytes_per_second, std::set<WorkerId> spared);
  // For the wire, before it sends a piece: the moment from which it may leave. The total counts it
  // as sent at that moment, so peers that wait take turns. `now`: on one clock in all calls.
  Duration reserve(WorkerId peer, Bytes size, Duration now) const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::pair<WorkerId, Purpose>, double> rates_;
  std::array<double, kPurposes> others_{};
  double total_ = 0;
  std::set<WorkerId> spared_;
  // Of the total, which a wire may only spend; and how much longer its wait becomes, because the
  // total has changed since.
  mutable Meter meter_;
  mutable double stretch_ = 1;
};

}  // namespace tenuto
