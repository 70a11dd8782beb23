// For tests: groups of communicators, one per thread, and calls that are drawn from a seed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "communicator/communicator.h"
#include "ready_thread.h"
#include "runtime/combine.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "transport/process/process_wire.h"

namespace tenuto {

// The wires of `count` members, connected in pairs; over memory or over UCX in one process.
class Wires {
 public:
  enum class Kind : uint8_t { Memory, Ucx };
  // `clocks`: one for each member of a memory wire; none = the machine's.
  explicit Wires(int32_t count, Kind kind = Kind::Memory, int32_t first = 0,
                 const std::vector<HandClock>* own_clocks = nullptr) {
    clocks.assign(static_cast<size_t>(count), &monotonic_clock());
    for (int32_t m = 0; m < count; ++m) {
      members.push_back({first + m});
      mailboxes.push_back(std::make_unique<QueueMailbox>());
      const Hello hello{"group", "token", kWireVersion, members.back(), 0};
      if (kind == Kind::Memory) {
        if (own_clocks != nullptr)
          clocks[static_cast<size_t>(m)] = &(*own_clocks)[static_cast<size_t>(m)];
        wires.push_back(make_memory_transport(network, hello, *mailboxes.back(),
                                              *clocks[static_cast<size_t>(m)]));
      } else {
        auto made = make_process_wire({}, hello, *mailboxes.back());
        CHECK(made.ok(), made.error().message);
        wires.push_back(std::move(made).value());
      }
    }
    for (size_t m = 0; m < wires.size(); ++m) {
      for (size_t peer = 0; peer < m; ++peer) {
        const Status status =
            wires[m]->connect(members[peer], wires[peer]->address(), fresh_ticket());
        CHECK(status.ok(), status.error().message);
      }
    }
  }
  ~Wires() {
    std::vector<std::thread> threads;  // one end closes only when the other does
    for (auto& wire : wires) {
      threads.emplace_back([&] { (void)wire->close(std::chrono::seconds(5)).ok(); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Runs `what` for every member, each on a thread of its own, and waits for all of them.
  void run(const CommunicatorSettings& settings,
           const std::function<void(Communicator&, int32_t place)>& what,
           const ReadyThread* ready = nullptr) {
    std::vector<std::thread> threads;
    for (size_t m = 0; m < wires.size(); ++m) {
      threads.emplace_back([&, m] {
        CommunicatorSettings mine = settings;
        mine.members = members;
        mine.self = members[m];
        std::optional<ReadyDesk> desk;
        if (ready != nullptr) desk = ready->desk;
        auto made = Communicator::make(
            {wires[m].get(), mailboxes[m].get(), clocks[m], desk ? &*desk : nullptr}, mine);
        CHECK(made.ok(), made.error().message);
        what(*made.value(), static_cast<int32_t>(m));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  MemoryNetwork network;
  std::vector<WorkerId> members;
  std::vector<const Clock*> clocks;
  std::vector<std::unique_ptr<QueueMailbox>> mailboxes;
  std::vector<std::unique_ptr<Transport>> wires;
};

// A random call; every member draws the same one.
struct DrawnCall {
  CallRequest request;  // without memory
  int64_t elements = 0;
  uint64_t seed = 0;   // of the tensors' numbers
  bool whole = false;  // small integers: sums are exact in any order
  bool in_place = false;
};

// Draws a call for these members, with tensors of at most `most_elements` elements.
DrawnCall draw_call(Random& random, const std::vector<WorkerId>& members, int64_t most_elements);

// Number i of the tensor that the member at `place` brings, and that whole tensor as bytes.
double number_of(const DrawnCall& call, int32_t place, int64_t i);
std::vector<std::byte> tensor_of(const DrawnCall& call, int32_t place);

// Compares `total` with the result that the member at `place` must end with: exactly where the
// order of additions does not matter, else within the error bound of any order. "" or what differs.
std::string difference(const DrawnCall& call, std::span<const std::byte> total, int32_t place,
                       const std::vector<WorkerId>& members);

// The range of elements that the member at `place` ends with.
ElementRange result_range(const DrawnCall& call, int32_t place, int32_t count);

}  // namespace tenuto
