#include "adapt/layout/draft.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Of a stage with more kinds, rates are not looked up pair by pair.
constexpr size_t kManyKinds = 64;

// Fast 64-bit hash of two words (the finalizer of splitmix64).
uint64_t hash(uint64_t one, uint64_t other) {
  uint64_t word = one * 0x9E3779B97F4A7C15u + other + 0x632BE59BD9B4E019u;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

uint64_t hash(uint64_t one, double other) { return hash(one, std::bit_cast<uint64_t>(other)); }

// Hashes what the devices of a kind have in common: speed, memory, and for each third device its
// rate. The second device of a pair is told from the third ones only by its rate to the first,
// which is the fastest of both in the clusters that have kinds; so the device itself counts with
// its fastest rate.
class KindProfiles {
 public:
  explicit KindProfiles(const LayoutProblem& problem)
      : problem_(problem), sums_(problem.class_count(), 0), counts_(problem.class_count(), 0) {
    for (int32_t device = 0; device < problem.device_count(); ++device) {
      factors_.push_back(hash(static_cast<uint64_t>(device), uint64_t{1}) | 1);
      sums_[problem.class_of(device)] += factors_.back();
      ++counts_[problem.class_of(device)];
    }
  }

  uint64_t of(int32_t device) {
    const size_t own = problem_.class_of(device);
    --counts_[own];
    uint64_t sum =
        0 - std::bit_cast<uint64_t>(problem_.class_rate(own, own)) * factors_[at(device)];
    double fastest = 0;
    for (const RateException& exception : problem_.exceptions(device)) {
      const size_t its = problem_.class_of(exception.other);
      const auto usual = std::bit_cast<uint64_t>(problem_.class_rate(own, its));
      sum += (std::bit_cast<uint64_t>(exception.rate) - usual) * factors_[at(exception.other)];
      fastest = std::max(fastest, exception.rate);
      --counts_[its];
    }
    for (size_t its = 0; its < counts_.size(); ++its) {
      const double rate = problem_.class_rate(own, its);
      sum += std::bit_cast<uint64_t>(rate) * sums_[its];
      if (counts_[its] > 0) fastest = std::max(fastest, rate);
    }
    ++counts_[own];
    for (const RateException& exception : problem_.exceptions(device)) {
      ++counts_[problem_.class_of(exception.other)];
    }
    sum += std::bit_cast<uint64_t>(fastest) * factors_[at(device)];
    return hash(hash(sum, problem_.speed(device)), problem_.memory(device));
  }

 private:
  const LayoutProblem& problem_;
  std::vector<uint64_t> factors_;  // of each device: a random odd number
  std::vector<uint64_t> sums_;     // of each class: of its factors
  std::vector<int64_t> counts_;    // of each class: its devices that have the rates of the class
};

bool exchangeable(const LayoutProblem& problem, int32_t one, int32_t other) {
  if (problem.speed(one) != problem.speed(other) || problem.memory(one) != problem.memory(other)) {
    return false;
  }
  if (problem.class_of(one) == problem.class_of(other)) {
    // Only their exceptions can differ.
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      for (const RateException& exception : problem.exceptions(from)) {
        if (exception.other == to) continue;
        if (problem.rate(to, exception.other) != exception.rate) return false;
      }
    }
    return true;
  }
  for (int32_t third = 0; third < problem.device_count(); ++third) {
    if (third == one || third == other) continue;
    if (problem.rate(one, third) != problem.rate(other, third)) return false;
  }
  return true;
}

// Adds a number of devices of a kind, which may be negative.
void add(std::vector<KindCount>& devices, KindCount more) {
  const auto place =
      std::lower_bound(devices.begin(), devices.end(), more.kind,
                       [](const KindCount& entry, int32_t kind) { return entry.kind < kind; });
  if (place == devices.end() || place->kind != more.kind) {
    CHECK(more.count > 0, "devices are taken from where there are none");
    devices.insert(place, more);
    return;
  }
  place->count += more.count;
  CHECK(place->count >= 0, "more devices are taken than there are");
  if (place->count == 0) devices.erase(place);
}

}  // namespace

DeviceKinds::DeviceKinds(const LayoutProblem& problem) : problem_(&problem) {
  KindProfiles profiles(problem);
  std::unordered_multimap<uint64_t, int32_t> kinds_of;
  for (int32_t device = 0; device < problem.device_count(); ++device) {
    const uint64_t profile = profiles.of(device);
    int32_t found = -1;
    const auto [first, last] = kinds_of.equal_range(profile);
    for (auto entry = first; entry != last && found < 0; ++entry) {
      if (exchangeable(problem, devices(entry->second).front(), device)) found = entry->second;
    }
    if (found < 0) {
      found = count();
      devices_.emplace_back();
      kinds_of.emplace(profile, found);
    }
    devices_[at(found)].push_back(device);
    kind_.push_back(found);
  }
}

double DeviceKinds::rate(int32_t one, int32_t other) const {
  if (one != other) return problem_->rate(devices(one).front(), devices(other).front());
  const std::vector<int32_t>& all = devices(one);
  return all.size() < 2 ? kUnlimited : problem_->rate(all[0], all[1]);
}

std::vector<int32_t> DeviceKinds::some(const std::vector<KindCount>& counts) const {
  std::vector<int32_t> all;
  for (const KindCount& some : counts) {
    const std::vector<int32_t>& of = devices(some.kind);
    all.insert(all.end(), of.begin(), of.begin() + some.count);
  }
  return all;
}

std::vector<int32_t> DeviceKinds::last(const std::vector<KindCount>& counts) const {
  std::vector<int32_t> all;
  for (const KindCount& some : counts) {
    const std::vector<int32_t>& of = devices(some.kind);
    all.insert(all.end(), of.end() - some.count, of.end());
  }
  return all;
}

Draft DraftTable::draft(const Layout& layout) const {
  Draft draft;
  draft.loads.micros = problem_->settings().micros;
  draft.loads.half_duplex = problem_->half_duplex();
  for (int32_t kind = 0; kind < kinds_.count(); ++kind) {
    draft.idle.push_back({kind, static_cast<int32_t>(kinds_.devices(kind).size())});
  }
  for (const Stage& stage : layout) {
    DraftStage& own = draft.stages.emplace_back();
    own.layers = {stage.layer_first, stage.layer_end};
    for (const WorkerId holder : stage.holders) {
      const int32_t kind = kinds_.kind(problem_->device(holder));
      add(own.devices, {kind, 1});
      add(draft.idle, {kind, -1});
    }
  }
  draft.loads.stages.resize(layout.size());
  draft.loads.links.resize(layout.size() - 1);
  draft.between.resize(layout.size() - 1);
  const auto count = static_cast<int32_t>(layout.size());
  for (int32_t n = 0; n < count; ++n) refresh_devices(draft, n);
  for (int32_t n = 0; n + 1 < count; ++n) refresh_link(draft, n);
  return draft;
}

Layout DraftTable::layout(const Draft& draft) const {
  std::vector<size_t> used(at(kinds_.count()), 0);
  Layout layout;
  for (const DraftStage& own : draft.stages) {
    Stage& stage = layout.emplace_back();
    stage.layer_first = own.layers.first;
    stage.layer_end = own.layers.end;
    for (const KindCount& some : own.devices) {
      for (int32_t i = 0; i < some.count; ++i) {
        const int32_t device = kinds_.devices(some.kind)[used[at(some.kind)]++];
        stage.holders.push_back(problem_->worker(device));
      }
    }
    std::sort(stage.holders.begin(), stage.holders.end());
  }
  return layout;
}

void DraftTable::refresh_stage_load(Draft& draft, int32_t stage) const {
  const DraftStage& own = draft.stages[at(stage)];
  draft.loads.stages[at(stage)] =
      split_load(*problem_, own.layers, {static_cast<double>(own.replicas), own.speed, own.inside});
}

void DraftTable::refresh_link_load(Draft& draft, int32_t stage) const {
  const DraftStage& before = draft.stages[at(stage)];
  const DraftStage& after = draft.stages[at(stage + 1)];
  const double pairs = static_cast<double>(before.replicas) * after.replicas;
  const double time = problem_->cut(after.layers.first) / (pairs * draft.between[at(stage)]);
  draft.loads.links[at(stage)] = {time, time};
}

void DraftTable::refresh_devices(Draft& draft, int32_t stage) const {
  DraftStage& own = draft.stages[at(stage)];
  own.replicas = 0;
  own.inside = own.speed = own.memory = kUnlimited;
  const bool many = own.devices.size() > kManyKinds;
  for (size_t i = 0; i < own.devices.size(); ++i) {
    const KindCount& some = own.devices[i];
    own.replicas += some.count;
    own.speed = std::min(own.speed, kinds_.speed(some.kind));
    own.memory = std::min(own.memory, kinds_.memory(some.kind));
    if (many) continue;
    if (some.count > 1) own.inside = std::min(own.inside, kinds_.rate(some.kind, some.kind));
    for (size_t j = i + 1; j < own.devices.size(); ++j) {
      own.inside = std::min(own.inside, kinds_.rate(some.kind, own.devices[j].kind));
    }
  }
  if (many) own.inside = slowest_inside(*problem_, kinds_.some(own.devices));
  refresh_stage_load(draft, stage);
}

void DraftTable::refresh_link(Draft& draft, int32_t stage) const {
  const std::vector<KindCount>& before = draft.stages[at(stage)].devices;
  const std::vector<KindCount>& after = draft.stages[at(stage + 1)].devices;
  double slowest = kUnlimited;
  if (before.size() * after.size() > kManyKinds * kManyKinds) {
    slowest = slowest_between(*problem_, kinds_.some(before), kinds_.last(after));
  } else {
    for (const KindCount& one : before) {
      for (const KindCount& other : after) {
        slowest = std::min(slowest, kinds_.rate(one.kind, other.kind));
      }
    }
  }
  draft.between[at(stage)] = slowest;
  refresh_link_load(draft, stage);
}

void DraftTable::set_cut(Draft& draft, int32_t stage, int32_t layer) const {
  draft.stages[at(stage)].layers.end = layer;
  draft.stages[at(stage + 1)].layers.first = layer;
  refresh_stage_load(draft, stage);
  refresh_stage_load(draft, stage + 1);
  refresh_link_load(draft, stage);
}

void DraftTable::move_devices(Draft& draft, int32_t from, int32_t to, KindCount devices) const {
  const auto refresh = [&](int32_t stage) {
    if (stage == kIdle) return;
    refresh_devices(draft, stage);
    if (stage > 0) refresh_link(draft, stage - 1);
    if (at(stage) + 1 < draft.stages.size()) refresh_link(draft, stage);
  };
  add(from == kIdle ? draft.idle : draft.stages[at(from)].devices, {devices.kind, -devices.count});
  add(to == kIdle ? draft.idle : draft.stages[at(to)].devices, devices);
  refresh(from);
  refresh(to);
}

void DraftTable::exchange(Draft& draft, int32_t one, int32_t other) const {
  std::swap(draft.stages[at(one)].devices, draft.stages[at(other)].devices);
  refresh_devices(draft, one);
  refresh_devices(draft, other);
  for (const int32_t stage : {one - 1, one, other - 1, other}) {
    if (stage >= 0 && at(stage) + 1 < draft.stages.size()) refresh_link(draft, stage);
  }
}

void DraftTable::insert(Draft& draft, int32_t stage, int32_t layer, bool after,
                        KindCount devices) const {
  const int32_t place = after ? stage + 1 : stage;
  DraftStage own;
  own.devices = {devices};
  Layers& old = draft.stages[at(stage)].layers;
  own.layers = after ? Layers{layer, old.end} : Layers{old.first, layer};
  (after ? old.end : old.first) = layer;
  add(draft.idle, {devices.kind, -devices.count});
  draft.stages.insert(draft.stages.begin() + place, std::move(own));
  draft.loads.stages.insert(draft.loads.stages.begin() + place, StageLoad{});
  draft.loads.links.insert(draft.loads.links.begin() + stage, LinkLoad{});
  draft.between.insert(draft.between.begin() + stage, 0);
  refresh_devices(draft, stage);
  refresh_devices(draft, stage + 1);
  for (const int32_t link : {stage - 1, stage, stage + 1}) {
    if (link >= 0 && at(link) + 1 < draft.stages.size()) refresh_link(draft, link);
  }
}

void DraftTable::remove(Draft& draft, int32_t stage, bool layers_before, int32_t to) const {
  const DraftStage removed = std::move(draft.stages[at(stage)]);
  if (layers_before) {
    draft.stages[at(stage - 1)].layers.end = removed.layers.end;
  } else {
    draft.stages[at(stage + 1)].layers.first = removed.layers.first;
  }
  for (const KindCount& some : removed.devices) {
    add(to == kIdle ? draft.idle : draft.stages[at(to)].devices, some);
  }
  draft.stages.erase(draft.stages.begin() + stage);
  draft.loads.stages.erase(draft.loads.stages.begin() + stage);
  const int32_t link = std::max(0, stage - 1);
  draft.loads.links.erase(draft.loads.links.begin() + link);
  draft.between.erase(draft.between.begin() + link);
  // Stages are numbered anew. The one with more layers and the one with more devices changed.
  const int32_t longer = layers_before ? stage - 1 : stage;
  const int32_t larger = to == kIdle ? longer : to > stage ? to - 1 : to;
  for (const int32_t changed : {longer, larger}) {
    refresh_devices(draft, changed);
    for (const int32_t beside : {changed - 1, changed}) {
      if (beside >= 0 && at(beside) + 1 < draft.stages.size()) refresh_link(draft, beside);
    }
  }
  if (stage > 0 && at(stage) < draft.stages.size()) refresh_link(draft, stage - 1);
}

std::vector<int32_t> DraftTable::most_in_flight(const Draft& draft) const {
  std::vector<int32_t> most;
  for (const DraftStage& own : draft.stages) {
    most.push_back(held_bytes(*problem_, own.layers)
                       .most_in_flight(own.memory, problem_->settings().micros, own.replicas));
  }
  return most;
}

double DraftTable::missing(const Draft& draft, int32_t stage) const {
  const DraftStage& own = draft.stages[at(stage)];
  const auto count = static_cast<int32_t>(draft.stages.size());
  const int32_t in_flight = least_in_flight(problem_->settings(), count - stage - 1);
  const double need = held_bytes(*problem_, own.layers).bytes(in_flight, own.replicas);
  return std::max(0.0, need - own.memory);
}

MemoryShortage DraftTable::shortage(const Draft& draft) const {
  MemoryShortage worst;
  if (!problem_->memory_is_limited()) return worst;
  const auto count = static_cast<int32_t>(draft.stages.size());
  for (int32_t n = 0; n < count; ++n) {
    const double bytes = missing(draft, n);
    if (bytes > worst.missing) worst = {n, -1, bytes};
  }
  return worst;
}

uint64_t key_of(const LayoutLoads& loads) {
  uint64_t key = loads.stages.size();
  for (const StageLoad& stage : loads.stages) {
    key = hash(hash(hash(key, stage.forward), stage.backward), stage.reduction);
  }
  for (const LinkLoad& link : loads.links) key = hash(hash(key, link.forward), link.backward);
  return key;
}

}  // namespace tenuto
