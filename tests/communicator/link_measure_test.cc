// Links are measured pair by pair and as rings. No test judges a rate: threads of one process share
// the machine with others.
#include "communicator/link_measure.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "communicator/join.h"
#include "transport/memory.h"

namespace tenuto {
namespace {

// So long that a worker that waits for it is found by the limit of ctest.
constexpr Duration kLimit = std::chrono::hours(1);

// A hub and its workers, one thread each.
class Measured {
 public:
  // `instead(place)`: what the thread of a worker does instead of its part; empty = nothing.
  explicit Measured(int32_t workers, std::function<bool(int32_t place)> instead = nullptr)
      : workers_(workers), said_(static_cast<size_t>(workers) + 1) {
    hub_ = wire_of(0, mailbox_);
    for (int32_t place = 1; place <= workers; ++place) {
      threads_.emplace_back([this, place, instead] {
        QueueMailbox mailbox;
        std::unique_ptr<Transport> wire = wire_of(place, mailbox);
        Status status = meet(settings_of(place), wire, mailbox);
        if (status.ok() && !(instead && instead(place))) {
          status = serve_measuring(*wire, mailbox, kLimit);
        }
        said_[static_cast<size_t>(place)] = status.ok() ? "" : status.error().message;
      });
    }
    const Status met = meet(settings_of(0), hub_, mailbox_);
    EXPECT_TRUE(met.ok()) << met.error().message;
  }
  ~Measured() {
    hub_.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  LinkHub hub(Watch* watch = nullptr, Duration limit = kLimit) {
    return LinkHub(*hub_, mailbox_, workers_, monotonic_clock().now() + limit, watch);
  }
  MemoryNetwork& network() { return network_; }
  // Joins the threads; what the worker's part ended with.
  std::vector<std::string> said() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return said_;
  }

 private:
  std::unique_ptr<Transport> wire_of(int32_t place, Mailbox& mailbox) {
    return make_memory_transport(network_, {"links", "", kWireVersion, {place}, 0}, mailbox);
  }
  JoinSettings settings_of(int32_t place) const {
    JoinSettings settings;
    settings.place = place;
    settings.count = workers_ + 1;
    settings.meeting = "worker-0";
    settings.limit = kLimit;
    return settings;
  }

  const int32_t workers_;
  MemoryNetwork network_;
  QueueMailbox mailbox_;
  std::unique_ptr<Transport> hub_;
  std::vector<std::string> said_;
  std::vector<std::thread> threads_;
};

TEST(LinkMeasure, MeasuresAllPairsAndRings) {
  for (const int32_t workers : {2, 3, 4}) {
    Measured measured(workers);
    Watch watch;
    LinkHub hub = measured.hub(&watch);
    const auto table = hub.measure_pairs();
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_EQ(watch.done(), workers * (workers - 1) / 2);
    for (int32_t from = 0; from < workers; ++from) {
      for (int32_t to = 0; to < workers; ++to) {
        if (from == to) continue;
        const LinkFigure& figure = table.value().at({from}, {to});
        EXPECT_GT(figure.link.bytes_per_second, 0);
        EXPECT_GT(figure.link.latency.count(), 0);
        EXPECT_EQ(figure.link.latency, table.value().at({to}, {from}).link.latency);
      }
    }
    std::vector<WorkerId> ring;
    for (int32_t w = 0; w < workers; ++w) ring.push_back({w});
    for (int32_t turn = 0; turn < 2; ++turn) {
      const auto rate = hub.measure_ring(ring, table.value());
      ASSERT_TRUE(rate.ok()) << rate.error().message;
      EXPECT_GT(rate.value(), 0);
      ring.pop_back();
      if (ring.size() < 2) break;
    }
    ASSERT_TRUE(hub.finish().ok());
    for (const std::string& sentence : measured.said()) EXPECT_EQ(sentence, "");
  }
}

// The hub names the worker that was lost first, whoever tells it, and not one that ended because of
// it.
TEST(LinkMeasure, ALostWorkerEndsIt) {
  for (int32_t repeat = 0; repeat < 50; ++repeat) {
    Measured measured(3 + repeat % 2, [&](int32_t place) { return place == 2; });
    LinkHub hub = measured.hub();
    const auto table = hub.measure_pairs();
    ASSERT_FALSE(table.ok());
    EXPECT_NE(table.error().message.find("worker 1 is lost"), std::string::npos)
        << table.error().message;
  }
}

TEST(LinkMeasure, TheEndOfTheTimeEndsIt) {
  Measured measured(2);
  LinkHub hub = measured.hub(nullptr, Duration::zero());
  const auto table = hub.measure_pairs();
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, Code::Timeout);
  EXPECT_NE(table.error().message.find("--seconds"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
