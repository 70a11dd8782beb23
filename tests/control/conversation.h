// A coordinator's server and a worker's client, joined by real gRPC in one process.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/mailbox.h"
#include "control/server.h"
#include "protocol/client.h"

namespace tenuto {

// A wait of this length has failed, even on a busy machine.
inline constexpr Duration kLimit = std::chrono::minutes(3);

// A server and what it has heard.
class Coordinator {
 public:
  explicit Coordinator(const std::string& listen = "127.0.0.1:0") {
    ServerSettings settings{.listen = listen,
                            .job = "choir",
                            .token = "secret",
                            .worker_count = 2,
                            .job_toml = "# settings"};
    auto made = start_server(settings, [this] {
      const std::lock_guard lock(mutex_);
      news_ = true;
      changed_.notify_all();
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
    server = std::move(made).value();
  }

  // Waits for a report of `worker` with at least `version`, or for the end of its stream. Returns
  // false if it does not come within kLimit.
  bool hears(int32_t worker, bool end, int64_t version = -1) {
    return until([&] {
      return end ? gone[worker] : last.contains(worker) && last[worker].version >= version;
    });
  }

  // Takes what comes until `question` is true. Returns false if that takes longer than kLimit.
  template <class Question>
  bool until(const Question& question) {
    const Duration limit = monotonic_clock().now() + kLimit;
    while (monotonic_clock().now() < limit) {
      for (const auto& heard : server->take()) {
        if (const auto* report = std::get_if<Report>(&heard)) last[report->worker.value] = *report;
        if (const auto* ended = std::get_if<StreamEnded>(&heard)) gone[ended->worker.value] = true;
      }
      if (question()) return true;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return news_; });
      news_ = false;
    }
    return false;
  }

  std::map<int32_t, Report> last;
  std::map<int32_t, bool> gone;
  std::unique_ptr<Server> server;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

inline ClientSettings settings_for(const Coordinator& of, int32_t worker) {
  return {.coordinator = of.server->address(),
          .job = "choir",
          .token = "secret",
          .self = {worker},
          .connect_limit = kLimit,
          .heartbeat = std::chrono::milliseconds(50),
          .silence_limit = std::chrono::minutes(1)};
}

// A worker's end with its mailbox.
struct Singer {
  explicit Singer(const ClientSettings& settings, const Report& first = {}) {
    auto made = connect_client(settings, first, mailbox, [this](const Error& error) {
      const std::lock_guard lock(mutex);
      ended = error.message;
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
    if (made.ok()) client = std::move(made).value();
  }
  // Waits until `question` is true. Returns false if that takes too long.
  template <class Question>
  bool until(const Question& question) {
    const Duration end = monotonic_clock().now() + kLimit;
    while (!question()) {
      if (monotonic_clock().now() >= end) return false;
      (void)mailbox.wait(std::chrono::milliseconds(50));
    }
    return true;
  }
  std::string end() {
    const std::lock_guard lock(mutex);
    return ended;
  }
  QueueMailbox mailbox;
  std::mutex mutex;
  std::string ended;
  std::unique_ptr<Client> client;
};

}  // namespace tenuto
