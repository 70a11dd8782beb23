// Wires over TCP whose loop the worker turns while it waits: what their thread does meanwhile, with
// real threads. handover_test has the orders of the hand-over.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "../sanitized.h"
#include "tcp_party.h"

namespace tenuto {
namespace {

constexpr Ticket kForeign{1u << 30};  // reports that other threads post

TcpSettings settings_of(WireProgress progress) {
  TcpSettings settings;
  settings.progress = progress;
  settings.sends_end_there = true;
  return settings;
}

class Driven : public testing::TestWithParam<WireProgress> {
 protected:
  void SetUp() override {
    left_ = std::make_unique<Party>(make_tcp(settings_of(GetParam())), hello_of(0));
    right_ = std::make_unique<Party>(make_tcp(settings_of(GetParam())), hello_of(1));
    ASSERT_TRUE(left_->connect(*right_).ok());
  }

  std::unique_ptr<Party> left_, right_;
};

// The sends of the right worker end only when the left one has received them, which its worker does
// not wait for: it waits for the right one's thread.
TEST_P(Driven, TheThreadReceivesForAWorkerThatIsAway) {
  for (uint64_t name = 1; name < 40; ++name) {
    const size_t size = name % 4 == 0 ? 5 << 20 : 100 * name;
    const auto bytes = pattern(name, size);
    std::vector<std::byte> got(size);
    const Ticket receiving = left_->recv(1, name, got);
    if (name % 3 == 0) left_->drain(Duration{});  // the worker has just looked
    std::async(std::launch::async, [&] {
      EXPECT_TRUE(right_->end_of(right_->send(0, name, bytes)).status.ok());
    }).wait();
    EXPECT_TRUE(left_->end_of(receiving).status.ok());
    EXPECT_TRUE(same(bytes, got));
  }
}

// A call that the worker has made before it went away is made by the thread.
TEST_P(Driven, TheThreadSendsForAWorkerThatIsAway) {
  for (uint64_t name = 1; name < 40; ++name) {
    const size_t size = name % 4 == 0 ? 5 << 20 : 100 * name;
    const auto bytes = pattern(name, size);
    std::vector<std::byte> got(size);
    const Ticket sending = left_->send(1, name, bytes);
    if (name % 3 == 0) left_->drain(Duration{});
    std::async(std::launch::async, [&] {
      EXPECT_TRUE(right_->end_of(right_->recv(0, name, got)).status.ok());
    }).wait();
    EXPECT_TRUE(left_->end_of(sending).status.ok());
    EXPECT_TRUE(same(bytes, got));
  }
}

TEST_P(Driven, TheThreadRepairsConnectionsForAWorkerThatIsAway) {
  std::vector<std::byte> bytes = pattern(1, 3000), got(3000);
  for (uint64_t name = 1; name < 6; ++name) {
    const Ticket receiving = left_->recv(1, name, got);
    std::async(std::launch::async, [&] {
      EXPECT_TRUE(right_->wire->break_connection(WorkerId{0}, 0).ok());
      EXPECT_TRUE(right_->end_of(right_->send(0, name, bytes)).status.ok());
    }).wait();
    EXPECT_TRUE(left_->end_of(receiving).status.ok());
    EXPECT_TRUE(same(bytes, got));
  }
  EXPECT_TRUE(left_->losses.empty());
}

// A worker that never sleeps, but looks into its mailbox again and again.
TEST_P(Driven, AWorkerMayOnlyLook) {
  std::vector<std::byte> bytes = pattern(1, 300000), got(300000);
  std::thread other([&] {
    for (uint64_t name = 1; name <= 20; ++name) {
      EXPECT_TRUE(right_->end_of(right_->send(0, name, bytes)).status.ok());
    }
  });
  for (uint64_t name = 1; name <= 20; ++name) {
    const Ticket receiving = left_->recv(1, name, got);
    while (!left_->has_ended(receiving)) left_->drain(Duration{});
    EXPECT_TRUE(left_->end_of(receiving).status.ok());
  }
  other.join();
}

// Reports of other threads end the wait, however the worker waits.
TEST_P(Driven, ReportsOfOtherThreadsWakeTheWorker) {
  constexpr int kCount = 2000;
  std::atomic<int> read{0};
  std::thread device([&] {
    for (int i = 0; i < kCount; ++i) {
      left_->mailbox.post({kForeign});
      // Half of them are posted to a worker that has read all others.
      while (i % 2 == 0 && read.load() <= i) std::this_thread::yield();
    }
  });
  for (int i = 0; i < kCount; ++i) {
    const auto done = left_->mailbox.wait(kPatience);
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(done.value().ticket, kForeign);
    ++read;
  }
  device.join();
}

// Messages of all sizes both ways, breaks, and reports of other threads, between workers that
// sometimes compute for a while.
TEST_P(Driven, TrafficWithInterruptions) {
  const uint64_t count = kSanitized ? 300 : 1500;
  const auto sized = [](uint64_t name) { return name % 50 == 0 ? 1 << 20 : name * 97 % 20000; };
  const auto play = [&](Party& self, int peer) {
    Random random(static_cast<uint64_t>(peer) + 7);
    std::vector<std::vector<std::byte>> in(count), out(count);
    std::vector<Ticket> receiving(count), sending(count);
    std::atomic<bool> over{false};
    std::atomic<uint64_t> foreign{0};
    std::thread device([&] {
      while (!over) {
        self.mailbox.post({kNoTicket, ok(), WorkerId{50}});  // reads as the loss of somebody
        ++foreign;
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
    constexpr uint64_t kAhead = 8;
    for (uint64_t i = 0; i < count + kAhead; ++i) {
      if (i < count) {
        in[i].resize(sized(i));
        out[i] = pattern(i, sized(i));
        receiving[i] = self.recv(peer, i, in[i]);
        sending[i] = self.send(peer, i, out[i]);
        if (random.below(200) == 0) {
          EXPECT_TRUE(self.wire->break_connection(WorkerId{peer}, random.below(3)).ok());
        }
      }
      if (random.below(10) == 0) {
        const Duration until =
            monotonic_clock().now() + std::chrono::microseconds(random.below(300));
        while (monotonic_clock().now() < until) std::this_thread::yield();
      }
      if (i < kAhead) continue;
      const uint64_t ended = i - kAhead;
      EXPECT_TRUE(self.end_of(receiving[ended]).status.ok());
      EXPECT_TRUE(self.end_of(sending[ended]).status.ok());
      EXPECT_TRUE(same(in[ended], pattern(ended, sized(ended))));
    }
    over = true;
    device.join();
    self.drain(Duration{});
    EXPECT_EQ(self.losses.size(), foreign.load());
  };
  std::thread other([&] { play(*right_, 0); });
  play(*left_, 1);
  other.join();
}

std::string name_of(const testing::TestParamInfo<WireProgress>& progress) {
  const char* names[] = {"Thread", "Event", "Auto", "Poll"};
  return names[static_cast<size_t>(progress.param)];
}

INSTANTIATE_TEST_SUITE_P(All, Driven,
                         testing::Values(WireProgress::Thread, WireProgress::Event,
                                         WireProgress::Auto, WireProgress::Poll),
                         name_of);

// A second wire at the same mailbox is turned by its thread, and its reports wake the worker.
TEST(DrivenMailbox, HasOneDriver) {
  QueueMailbox mailbox;
  auto first = make_tcp_transport(settings_of(WireProgress::Event), hello_of(0), mailbox);
  auto second = make_tcp_transport(settings_of(WireProgress::Event), hello_of(1), mailbox);
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<std::byte> bytes = pattern(1, 1000), got(1000);
  EXPECT_TRUE(first.value()->connect(WorkerId{1}, second.value()->address(), Ticket{1}).ok());
  EXPECT_TRUE(mailbox.wait(kPatience).ok());
  for (uint64_t name = 1; name <= 50; ++name) {
    EXPECT_TRUE(first.value()->recv(WorkerId{1}, {0, 0, name}, got, Ticket{2}).ok());
    EXPECT_TRUE(second.value()->send(WorkerId{0}, {0, 0, name}, bytes, {}, Ticket{3}).ok());
    EXPECT_TRUE(mailbox.wait(kPatience).ok() && mailbox.wait(kPatience).ok());
  }
  EXPECT_TRUE(first.value()->close(kPatience).ok());
  EXPECT_TRUE(second.value()->close(kPatience).ok());
}

}  // namespace
}  // namespace tenuto
