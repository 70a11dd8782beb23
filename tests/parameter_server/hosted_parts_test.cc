// Three processes, each with the part of one replica, which keep the parameters themselves, from
// their first command to their last one: over the transport within a process, with the host of a
// run. The mode becomes a ring, whose child hands its ranges over.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "ir/sync_mode.h"
#include "parameter_server/run_host.h"
#include "parameter_server/server_run.h"
#include "transport/memory.h"

namespace tenuto::servers {
namespace {

constexpr int32_t kReplicas = 3;
constexpr int64_t kMostReports = 200'000;

Payload payload_of_size(size_t bytes) {
  return std::make_shared<const std::vector<std::byte>>(bytes);
}

int64_t count_in(const Payload& state) {
  int64_t count = -1;
  if (state->size() == sizeof(count)) std::memcpy(&count, state->data(), sizeof(count));
  return count;
}

// Parameters whose state is the number of updates that made them.
class CountingStore : public ParameterStore {
 public:
  explicit CountingStore(const ElementRange& range) : bytes_(size_of(range)) {}
  void apply(const DecidedUpdate&, std::span<const Payload>) override { ++updates_; }
  Payload parameters() const override { return payload_of_size(static_cast<size_t>(bytes_.count)); }
  Payload save() const override {
    std::vector<std::byte> state(sizeof(updates_));
    std::memcpy(state.data(), &updates_, sizeof(updates_));
    return std::make_shared<const std::vector<std::byte>>(std::move(state));
  }
  Status load(const Payload& state) override {
    updates_ = count_in(state);
    return ok();
  }

 private:
  Bytes bytes_;
  int64_t updates_ = 0;
};

// Has its gradient at the second look.
class QuickTrainer : public PartTrainer {
 public:
  Status begin(const Work&, const std::vector<Payload>& parameters, Duration) override {
    sizes_.clear();
    for (const Payload& one : parameters) sizes_.push_back(one->size());
    looks_ = 0;
    return ok();
  }
  std::optional<ComputedIteration> advance(Duration now) override {
    looked_ = now;
    if (++looks_ < 2) return {};
    ComputedIteration computed;
    for (const size_t size : sizes_) computed.gradients.push_back(payload_of_size(size));
    computed.time = {std::chrono::milliseconds(1), std::chrono::milliseconds(1)};
    return computed;
  }
  Duration due() const override { return looked_; }

 private:
  std::vector<size_t> sizes_;
  int looks_ = 0;
  Duration looked_{};
};

// The host of the run: after three updates it wants a ring without replica 2, and when all ranges
// are with the ring and three more updates are made, it ends the run. Calls come from any thread.
class PartsHost {
 public:
  PartsHost() : run_(Roster::make(start()).value()) {
    for (int32_t i = 0; i < kReplicas; ++i) run_.start({{}, ProcessKind::Part, {i}, {0}});
  }

  std::optional<HostCommand> next(size_t process) {
    const std::lock_guard lock(mutex_);
    std::deque<HostCommand>& commands = commands_[process];
    if (commands.empty()) return std::nullopt;
    HostCommand first = std::move(commands.front());
    commands.pop_front();
    return first;
  }

  void report(size_t process, const HostReport& report) {
    const std::lock_guard lock(mutex_);
    note(run_.handle({static_cast<int32_t>(process)}, report));
    if (++reports_ > kMostReports) note(invalid("the run does not end"));
    go_on();
  }

  // The process has ended, in this way.
  void note_end(const Status& ran) {
    const std::lock_guard lock(mutex_);
    note(ran);
  }

  void note_state(PeerId keeper, int64_t updates) {
    const std::lock_guard lock(mutex_);
    updates_[keeper] = updates;
  }

  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }

  // Of each process: gets a report whenever there is another command, and at the end.
  std::array<QueueMailbox, kReplicas> woken;

  // Once all processes have ended.
  const ServerRun& run() const { return run_; }
  const std::map<PeerId, int64_t>& updates() const { return updates_; }
  const std::string& fault() const { return fault_; }

 private:
  static RosterStart start() {
    RosterStart all;
    all.ranges = {{{0}, 0, 2}, {{0}, 2, 4}, {{0}, 4, 6}};
    all.replicas = kReplicas;
    all.kept_by_parts = true;
    return all;
  }

  void note(const Status& status) {
    if (status.ok()) return;
    if (fault_.empty()) fault_ = status.error().message;
    end();
  }

  void end() {
    has_ended_ = true;
    for (QueueMailbox& one : woken) one.post(Done{});
  }

  bool is_with_ring() const {
    const PlacedMembers& newest = run_.newest();
    bool is_so = run_.is_installed() && run_.committed().filled == newest.members.epoch;
    for (const PeerId keeper : keepers_of(newest.members)) {
      is_so = is_so && newest.places.at(keeper).value < 2;
    }
    return is_so;
  }

  void go_on() {
    if (!has_begun_ && run_.all_connected()) {
      has_begun_ = true;
      note(run_.begin(monotonic_clock().now()));
    }
    const int64_t version = run_.committed().version.value;
    if (!wants_ring_ && version >= 3) {
      wants_ring_ = true;
      run_.want(sync_mode_from_text("ring:2:0,1,0").value());
    }
    if (stop_at_ == 0 && run_.changes() > 0 && is_with_ring()) stop_at_ = version + 3;
    if (stop_at_ > 0 && version >= stop_at_) run_.stop();
    for (ServerRun::Task& task : run_.take_commands()) {
      const auto process = static_cast<size_t>(task.process.value);
      commands_[process].push_back(std::move(task.command));
      woken[process].post(Done{});
    }
    if (run_.has_finished()) end();
  }

  mutable std::mutex mutex_;  // guards all below
  ServerRun run_;
  std::array<std::deque<HostCommand>, kReplicas> commands_;
  std::map<PeerId, int64_t> updates_;  // of each keeper at the end
  std::string fault_;
  bool has_begun_ = false, wants_ring_ = false, has_ended_ = false;
  int64_t stop_at_ = 0, reports_ = 0;
};

class PartLink : public HostLink {
 public:
  PartLink(PartsHost& host, size_t process) : host_(host), process_(process) {}
  Result<std::optional<HostCommand>> next(Duration limit) override {
    if (limit > Duration{}) {
      [[maybe_unused]] const auto woken = host_.woken[process_].wait(limit);
    }
    return host_.next(process_);
  }
  bool has_ended() const override { return host_.has_ended(); }
  Status report(const HostReport& report) override {
    host_.report(process_, report);
    return ok();
  }

 private:
  PartsHost& host_;
  size_t process_;
};

void run_part(PartsHost& host, MemoryNetwork& network, int32_t number) {
  QueueMailbox mailbox;
  Hello hello;
  hello.self = {number};
  const std::unique_ptr<Transport> transport = make_memory_transport(network, hello, mailbox);
  PartLink link(host, static_cast<size_t>(number));
  QuickTrainer trainer;
  HostSettings settings;
  settings.process = {{number}, ProcessKind::Part, {number}, {0}};
  settings.peers.make_store = [](const ElementRange& range) {
    return std::make_unique<CountingStore>(range);
  };
  settings.peers.decider.micros = 2;
  settings.peers.decider.record = first_record(SyncMode{}, kReplicas);
  settings.peers.decider.children_send_to_parents = true;
  settings.choice.replicas = kReplicas;
  settings.choice.micros = 2;
  settings.trainer = &trainer;
  settings.save = [&host](PeerId keeper, const ServerShard& shard) {
    host.note_state(keeper, count_in(shard.store().save()));
    return ok();
  };
  host.note_end(run_host(*transport, mailbox, link, std::move(settings)));
}

TEST(HostedParts, ReplicasKeepTheParametersAndTheRingTakesThem) {
  PartsHost host;
  MemoryNetwork network;
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < kReplicas; ++i) {
    threads.emplace_back([&host, &network, i] { run_part(host, network, i); });
  }
  for (std::thread& one : threads) one.join();
  ASSERT_EQ(host.fault(), "");
  const ServerRun& run = host.run();
  EXPECT_TRUE(run.has_finished());
  EXPECT_EQ(run.changes(), 1);
  EXPECT_GE(run.committed().version, Version{6});
  const PlacedMembers& newest = run.newest();
  EXPECT_GT(newest.members.epoch, 1);
  ASSERT_EQ(newest.members.ranges.size(), 3u);
  for (const KeptRange& kept : newest.members.ranges) {
    ASSERT_EQ(kept.keepers.size(), 2u);
    for (const PeerId keeper : kept.keepers) {
      EXPECT_LT(newest.places.at(keeper).value, 2) << "the child keeps a range";
      // Those that came later have what the others had before, and all updates after that.
      ASSERT_EQ(run.states().count(keeper), 1u);
      EXPECT_EQ(run.states().at(keeper), run.committed().version);
      ASSERT_EQ(host.updates().count(keeper), 1u);
      EXPECT_EQ(host.updates().at(keeper), run.committed().version.value);
    }
  }
  EXPECT_EQ(run.states().size(), 6u) << "keepers whose ranges were handed over have ended";
  for (const HostedProcess& one : run.processes()) EXPECT_TRUE(one.has_finished);
}

}  // namespace
}  // namespace tenuto::servers
