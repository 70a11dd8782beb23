#include "sync/servers_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "ir/random_mode.h"

namespace tenuto::servers {

namespace {

// Steps in which everything has to happen that is waited for.
constexpr int64_t kMostSteps = 200'000;

std::string message_of(const Status& status) {
  return status.ok() ? std::string() : status.error().message;
}

}  // namespace

Payload payload_with(const Elements& elements) {
  std::vector<std::byte> bytes(elements.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Elements elements_in(const Payload& payload) {
  Elements elements(payload->size() / sizeof(uint32_t));
  std::memcpy(elements.data(), payload->data(), elements.size() * sizeof(uint32_t));
  return elements;
}

Elements gradient_of(const Work& work, const ElementRange& range) {
  Elements sum(static_cast<size_t>(range.end - range.begin), 0);
  for (const MicroRange& micros : work.micros) {
    for (int64_t micro = micros.begin; micro < micros.end; ++micro) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += static_cast<uint32_t>(
            mix(static_cast<uint64_t>(micros.stream.value), static_cast<uint64_t>(micro),
                static_cast<uint64_t>(range.stage.value), static_cast<uint64_t>(range.begin) + i));
      }
    }
  }
  return sum;
}

void apply_to(Elements& parameters, const std::vector<Elements>& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] *= 3;
    for (const Elements& gradient : gradients) parameters[i] += gradient[i];
  }
}

TallyStore::TallyStore(const ElementRange& range)
    : elements_(static_cast<size_t>(range.end - range.begin), 1) {}

void TallyStore::apply(const DecidedUpdate& update, std::span<const Payload> gradients) {
  EXPECT_EQ(update.works.size(), gradients.size());
  std::vector<Elements> taken;
  for (const Payload& gradient : gradients) taken.push_back(elements_in(gradient));
  apply_to(elements_, taken);
  ++updates_;
}

Payload TallyStore::parameters() const { return payload_with(elements_); }

Payload TallyStore::save() const {
  Elements all = elements_;
  all.push_back(updates_);
  return payload_with(all);
}

Status TallyStore::load(const Payload& state) {
  Elements all = elements_in(state);
  if (all.size() != elements_.size() + 1) {
    return Error{Code::Corrupt, Reach::Call, "a state of another range"};
  }
  updates_ = all.back();
  all.pop_back();
  elements_ = std::move(all);
  return ok();
}

// ---- the cluster -----------------------------------------------------------------------------

Cluster::Cluster(uint64_t seed, int32_t stages, Architecture architecture)
    : random_(seed), save_random_(mix(seed, 1)), architecture_(architecture), stages_(stages) {
  replicas_ = static_cast<int32_t>(2 + random_.below(3));
  micros_ = 1 + random_.below(3);
  kept_versions_ = 1 + random_.below(3);
  most_uncommitted_ = 1 + random_.below(kMostUncommittedPerReplica * replicas_);
  event_gap_ = 100 + random_.below(400);
  save_every_ = {1 + save_random_.below(8 * micros_ * replicas_)};
  first_ = first_record(SyncMode{}, replicas_);
  expected_.emplace_back();
  hosts_.resize(static_cast<size_t>(replicas_));
  for (size_t i = 0; i < hosts_.size(); ++i) add_hosts(i);
  for (int32_t stage = 0; stage < stages_; ++stage) {
    const int64_t ranges = replicas_keep() ? replicas_ : 1 + random_.below(2);
    for (int64_t i = 0; i < ranges; ++i) {
      const ElementRange range{{stage}, 2 * i, 2 * i + 2};
      add_first_keepers(range);
      expected_.back().push_back(TallyStore(range).elements());
    }
  }
  for (size_t i = 0; i < hosts_.size(); ++i) membership_.replicas.push_back(add_parts(i));
  install();
}

Cluster Cluster::resume(const Cluster& before, uint64_t seed) {
  return Cluster(before, seed, *before.newest_save());
}

Cluster::Cluster(const Cluster& before, uint64_t seed, int64_t version)
    : random_(seed),
      save_random_(mix(seed, 1)),
      architecture_(before.architecture_),
      stages_(before.stages_),
      replicas_(before.replicas_),
      micros_(before.micros_),
      kept_versions_(before.kept_versions_),
      most_uncommitted_(before.most_uncommitted_),
      event_gap_(before.event_gap_),
      updates_(before.updates_),
      expected_(before.expected_),
      save_every_(before.save_every_),
      committed_(version) {
  const Save& save = before.saves_.at(version);
  first_ = resumed(*save.record);
  first_states_ = save.states;
  updates_.resize(static_cast<size_t>(version));
  expected_.resize(static_cast<size_t>(version) + 1);
  for (const Stale& one : before.stale_) {
    if (one.sequence <= save.record->sequence) stale_.push_back({0, one.work});
  }
  // Serials begin again in the new run.
  int64_t serial = 0;
  for (DecidedUpdate& one : updates_) {
    for (Work& work : one.works) work.serial = --serial;
  }
  for (Stale& one : stale_) one.work.serial = --serial;
  hosts_.resize(static_cast<size_t>(replicas_));
  for (size_t i = 0; i < hosts_.size(); ++i) add_hosts(i);
  for (const KeptRange& kept : before.membership_.ranges) add_first_keepers(kept.range);
  for (size_t i = 0; i < hosts_.size(); ++i) membership_.replicas.push_back(add_parts(i));
  install();
}

// The keepers of a range when the run begins.
void Cluster::add_first_keepers(const ElementRange& range) {
  const size_t index = membership_.ranges.size();
  membership_.ranges.push_back({range, {}});
  for (size_t keeper = 0; keeper < 2; ++keeper) {
    const PeerId peer = add_shard(range, true);
    membership_.ranges.back().keepers.push_back(peer);
    if (!replicas_keep()) continue;
    const std::vector<int32_t>& hosts = hosts_[(index + keeper) % hosts_.size()];
    process_of_[peer] = hosts[static_cast<size_t>(range.stage.value)];
  }
}

// Requires: the range is the last one of the members, or one of them.
PeerId Cluster::add_shard(const ElementRange& range, bool is_filled) {
  const PeerId peer = new_peer();
  for (size_t i = 0; i < membership_.ranges.size(); ++i) {
    if (membership_.ranges[i].range == range) range_of_[peer] = i;
  }
  const ShardStart start{peer, range, is_filled, first_.version, kept_versions_, tally_of(first_)};
  auto store = std::make_unique<TallyStore>(range);
  const auto state = first_states_.find(range_of_.at(peer));
  if (is_filled && state != first_states_.end()) {
    const Status loaded = store->load(state->second);
    EXPECT_TRUE(loaded.ok()) << message_of(loaded);
  }
  shards_.emplace(peer, ServerShard(start, std::move(store)));
  return peer;
}

std::vector<PeerId> Cluster::add_parts(size_t replica) {
  add_hosts(replica);
  std::vector<PeerId> parts;
  for (int32_t stage = 0; stage < stages_; ++stage) {
    parts.push_back(new_peer());
    parts_.emplace(parts.back(), ReplicaPart(parts.back(), {stage}));
    if (!replicas_keep()) continue;
    process_of_[parts.back()] = hosts_[replica][static_cast<size_t>(stage)];
  }
  return parts;
}

bool Cluster::is_alive(PeerId peer) const {
  return shards_.count(peer) > 0 || parts_.count(peer) > 0 ||
         (decider_ != nullptr && peer == decider_id_) ||
         (old_decider_ != nullptr && peer == old_decider_id_);
}

bool Cluster::is_open(int64_t serial) const {
  if (!decides()) return false;
  const std::vector<OpenWork>& open = decider_->record().open;
  return std::any_of(open.begin(), open.end(),
                     [&](const OpenWork& one) { return one.work.serial == serial; });
}

void Cluster::run(int64_t events) {
  const int64_t until = steps_ + kMostSteps;
  int64_t count = 0;
  while (count < events && !testing::Test::HasFailure()) {
    ASSERT_LT(steps_, until) << "the events do not end";
    step();
    if (save_random_.below(200) == 0 && decides()) {
      decider_->save();
      after_decider(*decider_);
    }
    const bool is_noticed = random_.below(40) == 0;
    if (is_noticed && (!dead_.empty() || decider_ == nullptr)) notice();
    if (replicas_keep() && random_.below(150) == 0 && decider_ != nullptr && move_keepers()) {
      install();
    }
    if (random_.below(event_gap_) > 0) continue;
    if (!cause_event()) continue;
    ++count;
    if (count % 10 == 0) audit_micros();
  }
}

void Cluster::finish() {
  if (testing::Test::HasFailure()) return;
  notice();
  while (join_replica() || join_keeper()) {
  }
  int64_t target = -1;
  const int64_t until = steps_ + kMostSteps;
  while (target < 0 || decider_->record().committed.value < target) {
    if (testing::Test::HasFailure()) return;
    ASSERT_LT(steps_, until) << "no update is committed any more";
    step();
    if (target >= 0 || !decides() || !decider_->is_ready()) continue;
    const Status changed = decider_->change(SyncMode{});
    ASSERT_TRUE(changed.ok()) << message_of(changed);
    after_decider(*decider_);
    set_ring(SyncMode{});
    target = decider_->record().version.value + 4;
  }
  audit_micros();
  for (const auto& [peer, shard] : shards_) {
    audit_shard(shard, range_of_.at(peer));
    EXPECT_TRUE(shard.is_filled());
    EXPECT_GE(shard.version(), decider_->record().committed);
    refused_ += shard.refused();
  }
  audit_tallies();
  for (const auto& [peer, part] : parts_) refused_ += part.refused();
  refused_ += decider_->refused();
}

// ---- what happens in a step ------------------------------------------------------------------

void Cluster::step() {
  ++steps_;
  const int64_t choice = random_.below(10);
  bool acted = false;
  if (choice < 7) {
    acted = deliver();
  } else if (choice < 9) {
    acted = compute();
  } else {
    acted = close_window();
  }
  if (!acted && !deliver() && !compute() && !close_window()) when_idle();
}

bool Cluster::deliver() {
  if (links_.empty()) return false;
  const auto link = std::next(links_.begin(), random_.below(std::ssize(links_)));
  const Message message = std::move(link->second.front());
  link->second.pop_front();
  if (link->second.empty()) links_.erase(link);
  const PeerId to = message.header.to;
  if (const auto shard = shards_.find(to); shard != shards_.end()) {
    const bool was_filled = shard->second.is_filled();
    const Status handled = shard->second.handle(message);
    EXPECT_TRUE(handled.ok()) << message_of(handled);
    filled_ += !was_filled && shard->second.is_filled() ? 1 : 0;
    audit_shard(shard->second, range_of_.at(to));
    audit_saved(shard->second, range_of_.at(to));
    post(shard->second.take_messages());
  } else if (const auto part = parts_.find(to); part != parts_.end()) {
    const Status handled = part->second.handle(message);
    EXPECT_TRUE(handled.ok()) << message_of(handled);
    post(part->second.take_messages());
  } else if (is_alive(to)) {
    Decider& decider = to == decider_id_ ? *decider_ : *old_decider_;
    const Status handled = decider.handle(message);
    EXPECT_TRUE(handled.ok()) << message_of(handled);
    after_decider(decider);
  }
  return true;
}

bool Cluster::compute() {
  std::vector<PeerId> ready;
  for (const auto& [peer, part] : parts_) {
    if (part.is_ready()) ready.push_back(peer);
  }
  if (ready.empty()) return false;
  const PeerId peer = ready[static_cast<size_t>(random_.below(std::ssize(ready)))];
  ReplicaPart& part = parts_.at(peer);
  const Work work = *part.work();
  const auto version = static_cast<size_t>(work.offer.version.value);
  // It may read an update that died with its only keeper, until it gets other work.
  const bool is_known = is_open(work.serial);
  std::vector<Payload> gradients;
  for (size_t i = 0; i < membership_.ranges.size(); ++i) {
    const ElementRange& range = membership_.ranges[i].range;
    const bool is_own = std::any_of(membership_.replicas.begin(), membership_.replicas.end(),
                                    [&](const std::vector<PeerId>& parts) {
                                      const auto stage = static_cast<size_t>(range.stage.value);
                                      return stage < parts.size() && parts[stage] == peer;
                                    });
    if (!is_own) continue;
    if (is_known) {
      EXPECT_EQ(elements_in(part.parameters()[gradients.size()]), expected_.at(version)[i])
          << "part " << peer.value << " reads something else than version " << version;
    }
    gradients.push_back(payload_with(gradient_of(work, range)));
  }
  const Status offered = part.offer(work.serial, std::move(gradients));
  EXPECT_TRUE(offered.ok()) << message_of(offered);
  post(part.take_messages());
  return true;
}

bool Cluster::close_window() {
  if (decider_ == nullptr || !decider_->window()) return false;
  const int64_t number = decider_->window()->number;
  if (number == closed_) return false;
  closed_ = number;
  decider_->close(number);
  after_decider(*decider_);
  return true;
}

// Nothing is under way: this may be so only while a death is not noticed, or without replicas.
void Cluster::when_idle() {
  if (!dead_.empty() || decider_ == nullptr) {
    notice();
    return;
  }
  for (const std::vector<PeerId>& parts : membership_.replicas) {
    ASSERT_TRUE(parts.empty()) << "the run stands still in mode "
                               << to_text(decider_->record().mode);
  }
  join_replica();
}

// ---- events ----------------------------------------------------------------------------------

bool Cluster::cause_event() {
  const auto first = static_cast<size_t>(random_.below(kEvents));
  for (size_t i = 0; i < kEvents; ++i) {
    const size_t event = (first + i) % kEvents;
    if (!cause(static_cast<Event>(event))) continue;
    ++happened_[event];
    return true;
  }
  return false;
}

bool Cluster::cause(Event event) {
  switch (event) {
    case Event::Mode:
      return change_mode();
    case Event::LosePart:
      return lose_part();
    case Event::LoseKeeper:
      return lose_keeper();
    case Event::LoseDecider:
      return lose_decider();
    case Event::ReplaceDecider:
      return replace_decider();
    case Event::JoinReplica:
      return join_replica();
    case Event::JoinKeeper:
      break;
  }
  return join_keeper();
}

bool Cluster::change_mode() {
  if (!decides()) return false;
  SyncMode mode = random_mode(random_, replicas_, micros_);
  // Half of the modes have a ring where that makes a difference.
  while (replicas_keep() && mode.kind != SyncKind::Ring && random_.below(8) > 0) {
    mode = random_mode(random_, replicas_, micros_);
  }
  const Status changed = decider_->change(mode);
  EXPECT_TRUE(changed.ok()) << message_of(changed);
  after_decider(*decider_);
  set_ring(mode);
  return true;
}

bool Cluster::lose_part() {
  if (parts_.empty()) return false;
  if (replicas_keep()) {
    std::set<int32_t> processes;
    for (const auto& one : parts_) processes.insert(process_of_.at(one.first));
    return kill_one_of(processes);
  }
  die(std::next(parts_.begin(), random_.below(std::ssize(parts_)))->first);
  return true;
}

// True when another living keeper of the range has it.
bool Cluster::can_lose(const KeptRange& kept, PeerId keeper) const {
  if (!is_alive(keeper)) return false;
  return std::any_of(kept.keepers.begin(), kept.keepers.end(), [&](PeerId other) {
    return other != keeper && is_alive(other) && shards_.at(other).is_filled();
  });
}

bool Cluster::lose_keeper() {
  if (replicas_keep()) {
    std::set<int32_t> processes;
    for (const auto& one : shards_) processes.insert(process_of_.at(one.first));
    return kill_one_of(processes);
  }
  std::vector<PeerId> found;
  for (const KeptRange& kept : membership_.ranges) {
    for (const PeerId keeper : kept.keepers) {
      if (can_lose(kept, keeper)) found.push_back(keeper);
    }
  }
  if (found.empty()) return false;
  die(found[static_cast<size_t>(random_.below(std::ssize(found)))]);
  return true;
}

bool Cluster::lose_decider() {
  if (decider_ == nullptr) return false;
  if (replicas_keep()) return kill_one_of({process_of_.at(decider_id_)});
  die(decider_id_);
  return true;
}

// The coordinator takes the decider for dead. It is not, and goes on for those that do not know
// of the other one yet.
bool Cluster::replace_decider() {
  if (decider_ == nullptr) return false;
  if (old_decider_ != nullptr) die(old_decider_id_);
  old_decider_ = std::move(decider_);
  old_decider_id_ = decider_id_;
  old_number_ = number_;
  install();
  return true;
}

bool Cluster::join_replica() {
  for (size_t i = 0; i < membership_.replicas.size(); ++i) {
    if (!membership_.replicas[i].empty()) continue;
    membership_.replicas[i] = add_parts(i);
    install();
    return true;
  }
  return false;
}

bool Cluster::join_keeper() {
  if (replicas_keep()) {
    if (!move_keepers()) return false;
    install();
    return true;
  }
  for (KeptRange& kept : membership_.ranges) {
    if (kept.keepers.size() != 1) continue;
    kept.keepers.push_back(add_shard(kept.range, false));
    install();
    return true;
  }
  return false;
}

// What it has sent arrives up to some message of each link; what is sent to it is lost.
void Cluster::die(PeerId peer) {
  shards_.erase(peer);
  parts_.erase(peer);
  if (peer == decider_id_) decider_.reset();
  if (peer == old_decider_id_) old_decider_.reset();
  for (auto link = links_.begin(); link != links_.end();) {
    if (link->first.first == peer) {
      const int64_t arriving = random_.below(std::ssize(link->second) + 1);
      link->second.resize(static_cast<size_t>(arriving));
    }
    const bool is_gone = link->first.second == peer || link->second.empty();
    link = is_gone ? links_.erase(link) : std::next(link);
  }
  dead_.push_back(peer);
}

// A replica without one of its parts ends. Its other processes go on keeping ranges.
void Cluster::end_replicas() {
  for (size_t i = 0; i < dead_.size(); ++i) {
    const std::vector<std::vector<PeerId>> before = membership_.replicas;
    membership_ = without(std::move(membership_), dead_[i]);
    for (size_t replica = 0; replica < before.size(); ++replica) {
      if (!membership_.replicas[replica].empty()) continue;
      for (const PeerId part : before[replica]) {
        if (is_alive(part)) die(part);
      }
    }
  }
  dead_.clear();
}

// The coordinator learns of all deaths so far.
void Cluster::notice() {
  end_replicas();
  if (replicas_keep()) move_keepers();
  install();
}

void Cluster::install() {
  ++membership_.epoch;
  if (decider_ == nullptr) {
    decider_id_ = new_peer();
    if (replicas_keep()) process_of_[decider_id_] = host_of_decider();
    const DeciderStart start{decider_id_,       micros_,     first_,
                             most_uncommitted_, save_every_, replicas_keep()};
    auto made = Decider::make(start);
    ASSERT_TRUE(made.ok()) << made.error().message;
    decider_ = std::make_unique<Decider>(std::move(made).value());
    membership_.decider = decider_id_;
    ++number_;
    closed_ = -1;
  }
  const Status installed = decider_->install(membership_);
  ASSERT_TRUE(installed.ok()) << message_of(installed);
  after_decider(*decider_);
}

void Cluster::post(std::vector<Message> messages) {
  for (Message& message : messages) {
    relayed_ += std::holds_alternative<Relayed>(message.body) ? 1 : 0;
    if (!is_alive(message.header.to)) continue;
    links_[{message.header.from, message.header.to}].push_back(std::move(message));
  }
}

void Cluster::after_decider(Decider& decider) {
  post(decider.take_messages());
  const std::vector<DroppedWork> dropped = decider.take_dropped();
  const int64_t number = &decider == decider_.get() ? number_ : old_number_;
  // Once all have reported to a later decider, nobody listens to this one.
  if (number < deciding_) return;
  if (number > deciding_) {
    if (!decider.is_ready()) return;
    deciding_ = number;
    adopt(decider.record());
  }
  for (const DroppedWork& one : dropped) {
    ++dropped_works_;
    if (one.reason != DropReason::Stale) continue;
    // Before all have reported, the record that knows of it is the next one.
    const int64_t later = decider.is_ready() ? 0 : 1;
    stale_.push_back({decider.record().sequence + later, one.work});
  }
  observe(decider.record());
}

}  // namespace tenuto::servers
