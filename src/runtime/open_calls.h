// The calls that one run of a step makes to device and transport, by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/mailbox.h"

namespace tenuto {

// Which calls are under way. Call i has the ticket `base` + i.
class OpenCalls {
 public:
  OpenCalls(uint64_t base, size_t count) : base_(base), calls_(count, State::Idle) {}
  // Call `call` begins; returns its ticket.
  Ticket begin(int32_t call) {
    at(call) = State::UnderWay;
    ++count_;
    return Ticket{base_ + static_cast<uint64_t>(call)};
  }
  // Ends call `call`, if it is under way: it was refused, so no report will come.
  void refuse(int32_t call) {
    if (!is_under_way(call)) return;
    at(call) = State::Over;
    --count_;
  }
  // The call that ends with a report of this ticket; none if no such call is under way.
  std::optional<int32_t> end(Ticket ticket) {
    const auto call = find(ticket);
    if (call) refuse(*call);
    return call;
  }
  // The call under way with this ticket, which goes on; none if no such call is under way.
  std::optional<int32_t> find(Ticket ticket) const {
    const uint64_t call = static_cast<uint64_t>(ticket) - base_;
    if (call >= calls_.size() || calls_[call] != State::UnderWay) return std::nullopt;
    return static_cast<int32_t>(call);
  }
  // True between begin and refuse or end.
  bool is_under_way(int32_t call) const {
    return calls_[static_cast<size_t>(call)] == State::UnderWay;
  }
  // How many are under way.
  int32_t count() const { return count_; }
  // How many numbers there are.
  int32_t numbers() const { return static_cast<int32_t>(calls_.size()); }

 private:
  enum class State : uint8_t { Idle, UnderWay, Over };
  State& at(int32_t call) { return calls_[static_cast<size_t>(call)]; }

  const uint64_t base_;
  std::vector<State> calls_;
  int32_t count_ = 0;
};

}  // namespace tenuto
