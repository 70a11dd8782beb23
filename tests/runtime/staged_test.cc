// The staged wire between two workers over the memory wire. The "device's memory" is host memory of
// the test. The test's own Copies copies it, and can be slow, held up or refuse.
#include "runtime/staged.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/tag.h"
#include "transport/hello.h"
#include "transport/party.h"

namespace tenuto {
namespace {

constexpr size_t kSize = 1000;

// Copies of named pieces of memory.
class TestCopies : public Copies {
 public:
  bool holds(const std::byte* memory) const override { return device_.contains(memory); }
  Result<std::shared_ptr<std::byte>> pinned(Bytes size) override {
    ++pinned_;
    if (refuse_memory) return Error{Code::Exhausted, Reach::Worker, "no pinned memory"};
    return std::shared_ptr<std::byte>(new std::byte[static_cast<size_t>(size.count)],
                                      std::default_delete<std::byte[]>());
  }
  Status to_host(std::span<const std::byte> device, std::span<std::byte> host) override {
    return copy(device, host);
  }
  Status to_device(std::span<const std::byte> host, std::span<std::byte> device) override {
    return copy(host, device);
  }

  // Declares memory of the device; call it before any other call.
  void own(std::span<const std::byte> memory) { device_.insert(memory.data()); }
  // Copies do not end until release().
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  // Waits until `count` copies have begun.
  void await_begun(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= count; });
  }
  int pinned_count() const { return pinned_; }
  std::atomic<bool> refuse_memory = false, refuse_copies = false;

 private:
  Status copy(std::span<const std::byte> from, std::span<std::byte> to) {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    if (refuse_copies) return Error{Code::Invalid, Reach::Worker, "the copy failed"};
    std::memcpy(to.data(), from.data(), from.size());
    return ok();
  }

  std::set<const std::byte*> device_;
  std::atomic<int> pinned_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int begun_ = 0;
};

// A worker on a staged wire.
struct Seat {
  Seat(MemoryNetwork& network, int worker)
      : party(
            [&](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
              auto made =
                  make_staged_transport(mailbox, monotonic_clock(),
                                        [&](Mailbox& gate) -> Result<std::unique_ptr<Transport>> {
                                          return make_memory_transport(network, hello, gate);
                                        });
              CHECK(made.ok(), "a staged wire over a memory wire");
              staged = made.value().get();
              return std::move(made).value();
            },
            hello_of(worker)) {
    staged->use(&copies);
  }
  Ticket send(int to, const Value& value, std::span<const std::byte> bytes) {
    return party.send(to, tag_of(value, 0, 0).name, bytes, {std::chrono::nanoseconds(1), {}});
  }
  Ticket recv(int from, const Value& value, std::span<std::byte> bytes) {
    return party.recv(from, tag_of(value, 0, 0).name, bytes);
  }

  StagedTransport* staged = nullptr;
  TestCopies copies;  // outlives the wire that uses it
  Party party;
};

Value activation(int32_t micro) { return {ValueKind::Activation, -1, {0}, {micro}}; }
Value gradient(int32_t micro) { return {ValueKind::Gradient, -1, {1}, {micro}}; }

class StagedWire : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(left.party.connect(right.party).ok()); }
  // Makes messages in the left device's memory, and receive buffers in the right one's.
  void make_messages(int count) {
    for (int i = 0; i < count; ++i) {
      sources.push_back(pattern(static_cast<uint64_t>(i), kSize));
      buffers.emplace_back(kSize);
      left.copies.own(sources.back());
      right.copies.own(buffers.back());
    }
  }
  void set_slots(Seat& seat, int peer, bool send, int slots) {
    seat.staged->set_slots({{{{peer}, send, ValueKind::Activation, {0}}, slots},
                            {{{peer}, !send, ValueKind::Gradient, {1}}, slots}});
  }

  MemoryNetwork network;
  std::deque<std::vector<std::byte>> sources, buffers;
  Seat left{network, 0}, right{network, 1};
};

TEST_F(StagedWire, BringsTheBytesThroughItsSlotsAndNoMore) {
  constexpr int kCount = 40;
  make_messages(kCount);
  set_slots(left, 1, true, 3);
  set_slots(right, 0, false, 2);
  std::vector<Ticket> sent, received;
  for (int i = 0; i < kCount; ++i) {
    sent.push_back(left.send(1, activation(i), sources[static_cast<size_t>(i)]));
    received.push_back(right.recv(0, activation(i), buffers[static_cast<size_t>(i)]));
  }
  for (int i = 0; i < kCount; ++i) {
    EXPECT_TRUE(left.party.end_of(sent[static_cast<size_t>(i)]).status.ok());
    const Done done = right.party.end_of(received[static_cast<size_t>(i)]);
    EXPECT_TRUE(done.status.ok());
    EXPECT_GT(done.sent.count(), 1) << "a message leaves when its copy has ended";
    EXPECT_TRUE(same(buffers[static_cast<size_t>(i)], sources[static_cast<size_t>(i)])) << i;
  }
  const StagedCounters out = left.staged->counters(), in = right.staged->counters();
  EXPECT_EQ(out.sent, kCount);
  EXPECT_EQ(in.received, kCount);
  EXPECT_LE(out.most_slots, 3);
  EXPECT_LE(in.most_slots, 2);
  EXPECT_EQ(out.in_use, 0);
  EXPECT_EQ(in.in_use, 0);
  EXPECT_LE(left.copies.pinned_count(), 3) << "slots are used again";
  EXPECT_LE(right.copies.pinned_count(), 2);
}

TEST_F(StagedWire, GradientsDoNotWaitForActivations) {
  make_messages(2);
  set_slots(left, 1, true, 1);
  std::vector<std::byte> back = pattern(9, kSize), buffer(kSize);
  right.copies.own(back);
  left.copies.own(buffer);
  // The only slot for activations waits for a receive that is not posted yet.
  const Ticket blocked = left.send(1, activation(0), sources[0]);
  const Ticket behind = left.send(1, activation(1), sources[1]);
  const Ticket answer = left.recv(1, gradient(0), buffer);
  EXPECT_TRUE(right.party.end_of(right.send(0, gradient(0), back)).status.ok());
  EXPECT_TRUE(left.party.end_of(answer).status.ok());
  EXPECT_TRUE(same(buffer, back));
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(0), buffers[0])).status.ok());
  EXPECT_TRUE(left.party.end_of(blocked).status.ok());
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(1), buffers[1])).status.ok());
  EXPECT_TRUE(left.party.end_of(behind).status.ok());
}

TEST_F(StagedWire, HostMemoryAndTheDirectPathAreNotStaged) {
  make_messages(2);
  std::vector<std::byte> word = pattern(3, 16), there(16);  // host memory
  const Value norm{ValueKind::Norm, -1, {0}, {}};
  left.send(1, norm, word);
  EXPECT_TRUE(right.party.end_of(right.recv(0, norm, there)).status.ok());
  EXPECT_TRUE(same(word, there));
  left.staged->set_path({1}, Path::Direct);  // this end only: the other one stays staged
  left.send(1, activation(0), sources[0]);
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(0), buffers[0])).status.ok());
  EXPECT_TRUE(same(buffers[0], sources[0]));
  EXPECT_EQ(left.staged->counters().direct, 1);
  EXPECT_EQ(left.staged->counters().sent, 0);
  EXPECT_EQ(right.staged->counters().received, 1);
  left.staged->set_path({1}, Path::Staged);
  const Ticket last = left.send(1, activation(1), sources[1]);
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(1), buffers[1])).status.ok());
  EXPECT_TRUE(left.party.end_of(last).status.ok());
  EXPECT_EQ(left.staged->counters().sent, 1);
}

TEST_F(StagedWire, AFailedCopyEndsItsMessageAndGivesItsSlotBack) {
  make_messages(3);
  set_slots(left, 1, true, 1);
  left.copies.refuse_copies = true;
  const Ticket first = left.send(1, activation(0), sources[0]);
  EXPECT_EQ(left.party.end_of(first).status.error().message, "the copy failed");
  left.copies.refuse_copies = false;
  right.copies.refuse_copies = true;
  const Ticket second = left.send(1, activation(1), sources[1]);
  EXPECT_FALSE(right.party.end_of(right.recv(0, activation(1), buffers[1])).status.ok());
  EXPECT_TRUE(left.party.end_of(second).status.ok());
  right.copies.refuse_copies = false;
  const Ticket third = left.send(1, activation(2), sources[2]);
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(2), buffers[2])).status.ok());
  EXPECT_TRUE(left.party.end_of(third).status.ok());
  EXPECT_TRUE(same(buffers[2], sources[2]));
  EXPECT_EQ(left.staged->counters().in_use, 0);
  EXPECT_EQ(right.staged->counters().in_use, 0);
}

TEST_F(StagedWire, EachMessageReportsMissingPinnedMemory) {
  make_messages(2);
  left.copies.refuse_memory = true;
  for (int i = 0; i < 2; ++i) {
    const Done done =
        left.party.end_of(left.send(1, activation(i), sources[static_cast<size_t>(i)]));
    ASSERT_FALSE(done.status.ok());
    EXPECT_EQ(done.status.error().code, Code::Exhausted);
  }
  left.copies.refuse_memory = false;
  left.send(1, activation(0), sources[0]);
  EXPECT_TRUE(right.party.end_of(right.recv(0, activation(0), buffers[0])).status.ok());
}

TEST_F(StagedWire, DropEndsWaitingCopyingAndTravellingMessages) {
  make_messages(4);
  set_slots(left, 1, true, 2);
  set_slots(right, 0, false, 1);
  const Ticket posted = right.recv(0, activation(7), buffers[0]);
  const Ticket queued = right.recv(0, activation(8), buffers[1]);
  const Ticket travelling = left.send(1, activation(0), sources[0]);  // no receive for it
  while (left.staged->counters().to_host.count() == 0) std::this_thread::yield();
  left.copies.hold();
  const Ticket copying = left.send(1, activation(1), sources[1]);
  const Ticket waiting = left.send(1, activation(2), sources[2]);
  left.copies.await_begun(2);
  EXPECT_TRUE(left.staged->drop({1}).ok());
  EXPECT_EQ(left.party.end_of(waiting).status.error().code, Code::Cancelled);
  EXPECT_EQ(left.party.end_of(travelling).status.error().code, Code::Cancelled);
  left.copies.release();
  EXPECT_EQ(left.party.end_of(copying).status.error().code, Code::Cancelled);
  for (const Ticket ticket : {posted, queued}) {
    EXPECT_FALSE(right.party.end_of(ticket).status.ok());
  }
  EXPECT_EQ(right.party.next_loss().peer, WorkerId{0});
  EXPECT_GE(right.staged->take_errors({0}), 1);
  EXPECT_EQ(right.staged->take_errors({0}), 0);
  EXPECT_EQ(right.staged->counters().in_use, 0);
}

TEST_F(StagedWire, CloseWaitsForCopiedMessages) {
  make_messages(1);
  const Ticket received = right.recv(0, activation(0), buffers[0]);
  const Ticket sent = left.send(1, activation(0), sources[0]);
  EXPECT_TRUE(left.staged->close(kPatience).ok());
  EXPECT_TRUE(left.party.end_of(sent).status.ok());
  EXPECT_TRUE(right.party.end_of(received).status.ok());
  EXPECT_TRUE(same(buffers[0], sources[0]));
}

TEST_F(StagedWire, ManyMessagesBothWaysUnderChangingSlots) {
  constexpr int kCount = 200;
  make_messages(kCount);
  std::deque<std::vector<std::byte>> backs, back_buffers;
  for (int i = 0; i < kCount; ++i) {
    backs.push_back(pattern(static_cast<uint64_t>(1000 + i), kSize));
    back_buffers.emplace_back(kSize);
    right.copies.own(backs.back());
    left.copies.own(back_buffers.back());
  }
  std::vector<Ticket> at_left, at_right;
  for (size_t i = 0; i < kCount; ++i) {
    const auto micro = static_cast<int32_t>(i);
    if (i % 16 == 0) set_slots(left, 1, true, 1 + micro / 16 % 4);
    if (i % 24 == 0) set_slots(right, 0, false, 1 + micro / 24 % 3);
    at_left.push_back(left.send(1, activation(micro), sources[i]));
    at_right.push_back(right.recv(0, activation(micro), buffers[i]));
    at_right.push_back(right.send(0, gradient(micro), backs[i]));
    at_left.push_back(left.recv(1, gradient(micro), back_buffers[i]));
  }
  for (const Ticket ticket : at_left) EXPECT_TRUE(left.party.end_of(ticket).status.ok());
  for (const Ticket ticket : at_right) EXPECT_TRUE(right.party.end_of(ticket).status.ok());
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(same(buffers[i], sources[i])) << i;
    EXPECT_TRUE(same(back_buffers[i], backs[i])) << i;
  }
  EXPECT_LE(left.staged->counters().most_slots, 4);
  EXPECT_LE(right.staged->counters().most_slots, 3);
}

}  // namespace
}  // namespace tenuto
