#include "survivors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/check.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

// Converts the rest of a step into what a cluster runs; the test fails if check() refuses it.
TestCluster::Left left_of(const Rest& rest) {
  const Status right = check(rest.plan, {}, rest.stores);
  EXPECT_TRUE(right.ok()) << right.error().message;
  TestCluster::Left left{rest.plan, {}};
  for (const std::vector<Value>& stored : rest.stores) left.parts.push_back({stored, {}, {}});
  for (const TakenBack& it : rest.back) {
    left.parts[static_cast<size_t>(it.worker.value)].back.push_back(it.stage);
  }
  return left;
}

// A device that refuses ops of one kind at the first stage.
struct Refusing : ForwardingDevice {
  Refusing(Device& under, const std::optional<OpKind>& kind)
      : ForwardingDevice(under), refused(kind) {}
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    if (op.kind == refused && op.stage.value == 0) return invalid("not this one");
    return under_.start(op, inputs_at, ticket);
  }
  const std::optional<OpKind>& refused;
};

}  // namespace

Survivors::Survivors(TestCluster& cluster, const Plan& plan)
    : cluster_(cluster), plan_(plan), alive_(plan.schedule.lists.size(), true) {
  cluster_.commits = true;
  cluster_.wrap_compute = [this](WorkerId self, Device& under) -> std::unique_ptr<Device> {
    if (self != cut_.victim) return nullptr;
    return std::make_unique<TrapDevice>(under, cut_);
  };
  cluster_.wrap_transport = [this, inner = cluster_.wrap_transport](
                                WorkerId self,
                                std::unique_ptr<Transport> under) -> std::unique_ptr<Transport> {
    if (inner) under = inner(self, std::move(under));
    if (self != cut_.victim) return under;
    return std::make_unique<TrapTransport>(std::move(under), cut_);
  };
  cut_.deed = [this] { cluster_.network().lose(cut_.victim); };
}

bool Survivors::run_and_lose(WorkerId victim, int64_t at, int64_t end) {
  cut_.victim = victim;
  cut_.at = at;
  cut_.calls = 0;
  cluster_.mute = victim;
  cluster_.connect();
  const int64_t first = version_;
  const std::vector<ThreadRun> runs = cluster_.run(first, end - first);
  const bool reached = cut_.calls > at;
  cut_.victim = {};
  alive_[static_cast<size_t>(victim.value)] = false;
  version_ = common_version();
  note_losses(runs, first);
  take_stock();
  return reached;
}

std::vector<ThreadRun> Survivors::finish(int64_t end) {
  cluster_.mute = {};
  cluster_.connect();
  const int64_t first = version_;
  std::vector<ThreadRun> runs = cluster_.run(first, end - first);
  version_ = common_version();
  note_losses(runs, first);
  return runs;
}

// Collects the losses of ended steps; what dead workers knew of the open step is lost.
void Survivors::note_losses(const std::vector<ThreadRun>& runs, int64_t first) {
  for (size_t w = 0; w < runs.size(); ++w) {
    for (size_t i = 0; i < runs[w].outcomes.size(); ++i) {
      const int64_t step = first + static_cast<int64_t>(i);
      if (!alive_[w] && step >= version_) continue;
      auto& known = losses_[step];
      for (const MicroLoss& of : runs[w].outcomes[i].losses) known[of.micro.value] = of.loss;
    }
  }
}

// The micro-batches of the open step whose losses no survivor knows.
std::vector<MicroId> Survivors::unknown_losses() {
  auto known = losses_[version_];
  for (int32_t w = 0; w < cluster_.size(); ++w) {
    if (!alive(w) || !cluster_.runs_step(w, version_)) continue;
    for (const MicroLoss& of : cluster_.compute(w).outcome().losses) known[of.micro.value] = 0;
  }
  std::vector<MicroId> unknown;
  for (int32_t m = 0; m < plan_.schedule.micro_count; ++m) {
    if (!known.contains(m)) unknown.push_back({m});
  }
  return unknown;
}

int64_t Survivors::common_version() {
  int64_t version = 1 << 20;
  for (int32_t w = 0; w < cluster_.size(); ++w) {
    if (alive(w)) version = std::min(version, cluster_.compute(w).version());
  }
  return version;
}

// Collects the survivors' inventories and computes what is left of the open step.
void Survivors::take_stock() {
  // A version that all survivors have is committed.
  cluster_.set_standing({std::max(version_, cluster_.committed()), false});
  std::vector<Inventory> inventories;
  for (int32_t w = 0; w < cluster_.size(); ++w) {
    inventories.push_back(cluster_.inventory(w, version_));
  }
  const std::vector<MicroId> losses = unknown_losses();
  const auto rest = salvage(plan_, inventories, alive_, losses);
  ASSERT_TRUE(rest.ok()) << rest.error().message;
  expect_nothing_twice(inventories, rest.value(), static_cast<int64_t>(losses.size()));
  cluster_.left = left_of(rest.value());
  ops_ += rest.value().ops;
  taken_back_ += static_cast<int64_t>(rest.value().back.size());
  copied_ += rest.value().totals_copied;
  const auto after = without_workers(plan_, alive_);
  ASSERT_TRUE(after.ok());
  for (int32_t w = 0; w < cluster_.size(); ++w) {
    if (!alive(w)) cluster_.lose({w}, after.value());
  }
}

// How far each worker has come when one is lost depends on the machine, but two things always hold.
// A weight gradient that a living worker has added to its sum is not computed again. The forward
// and the input gradient of that micro-batch are not computed again either, unless the dead worker
// alone knew the loss. The second holds only at the first death, with every sent message kept,
// before any sum is complete, and when each worker holds one stage: what a worker hands to another
// stage of its own is not sent, and so is not kept.
void Survivors::expect_nothing_twice(const std::vector<Inventory>& inventories, const Rest& rest,
                                     int64_t losses) {
  int64_t spared = 0, gradients = 0;
  const auto dead = std::count(alive_.begin(), alive_.end(), false);
  bool all_kept = dead == 1 && cluster_.keep_bytes != 0;
  for (int32_t w = 0; w < cluster_.size(); ++w) {
    if (!alive(w)) continue;
    all_kept &= cluster_.stages_of(w).size() == 1;
    for (const Value& value : inventories[static_cast<size_t>(w)].values) {
      spared += value.kind == ValueKind::Partial;
      all_kept &= value.kind != ValueKind::Total;
    }
  }
  for (const auto& list : rest.plan.schedule.lists) {
    gradients += std::count_if(list.begin(), list.end(),
                               [](const Op& op) { return op.kind == OpKind::BackwardWeight; });
  }
  const int64_t of_a_step = int64_t{plan_.schedule.stage_count} * plan_.schedule.micro_count;
  EXPECT_LE(gradients, of_a_step - spared);
  EXPECT_LE(rest.ops, all_kept ? 3 * gradients + losses : 2 * of_a_step + gradients);
  spared_ += spared;
}

Ended::Ended(TestCluster& cluster, const Plan& plan) : cluster_(cluster), plan_(plan) {
  cluster_.keep_bytes = 0;
  cluster_.commits = true;
  cluster_.wrap_compute = [this](WorkerId, Device& under) {
    return std::make_unique<Refusing>(under, refused_);
  };
  run();
}

void Ended::run() {
  stock_.clear();
  cluster_.connect();
  runs_ = cluster_.run(0, 1);
  for (int32_t w = 0; w < cluster_.size(); ++w) stock_.push_back(cluster_.inventory(w, 0));
}

void Ended::lose(ValueKind kind, int32_t stage) {
  for (Inventory& inventory : stock_) {
    std::erase_if(inventory.values, [&](const Value& value) {
      return value.kind == kind && (stage < 0 || value.stage.value == stage);
    });
  }
}

void Ended::resume(std::optional<OpKind> refused) {
  const auto rest = salvage(plan_, stock_, std::vector<bool>(stock_.size(), true));
  ASSERT_TRUE(rest.ok()) << rest.error().message;
  taken_back_ = rest.value().back.size();
  refused_ = refused;
  cluster_.left = left_of(rest.value());
  run();
}

}  // namespace tenuto
