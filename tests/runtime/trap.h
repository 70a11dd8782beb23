// For tests: calls a function at a chosen call of a worker to its device or wire.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "test_cluster.h"

namespace tenuto {

// Counts one worker's calls to its device and wire, and runs `deed` at call number `at`.
struct Trap {
  std::atomic<int64_t> calls{0};
  int64_t at = -1;
  std::function<void()> deed;
  void step() {
    if (calls++ == at) deed();
  }
};

// Counts the ops that a device is asked to start.
class TrapDevice : public ForwardingDevice {
 public:
  TrapDevice(Device& under, Trap& trap) : ForwardingDevice(under), trap_(trap) {}
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    trap_.step();
    return under_.start(op, inputs_at, ticket);
  }

 private:
  Trap& trap_;
};

// Counts the sends and receives of a wire.
class TrapTransport : public ForwardingTransport {
 public:
  TrapTransport(std::unique_ptr<Transport> under, Trap& trap)
      : ForwardingTransport(std::move(under)), trap_(trap) {}
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    trap_.step();
    return under_->send(to, tag, bytes, stamp, ticket);
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    trap_.step();
    return under_->recv(from, tag, bytes, ticket);
  }

 private:
  Trap& trap_;
};

}  // namespace tenuto
