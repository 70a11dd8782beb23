#include "sync/servers_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

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

Cluster::Cluster(uint64_t seed, int32_t stages) : random_(seed), stages_(stages) {
  replicas_ = static_cast<int32_t>(2 + random_.below(3));
  micros_ = 1 + random_.below(3);
  kept_versions_ = 1 + random_.below(3);
  most_uncommitted_ = 1 + random_.below(kMostUncommittedPerReplica * replicas_);
  event_gap_ = 100 + random_.below(400);
  expected_.emplace_back();
  for (int32_t stage = 0; stage < stages_; ++stage) {
    const int64_t ranges = 1 + random_.below(2);
    for (int64_t i = 0; i < ranges; ++i) {
      const ElementRange range{{stage}, 2 * i, 2 * i + 2};
      membership_.ranges.push_back({range, {}});
      for (int keeper = 0; keeper < 2; ++keeper) {
        const PeerId peer = add_shard(range, true);
        membership_.ranges.back().keepers.push_back(peer);
      }
      expected_.back().push_back(TallyStore(range).elements());
    }
  }
  for (int32_t i = 0; i < replicas_; ++i) membership_.replicas.push_back(add_parts());
  install();
}

// Requires: the range is the last one of the members, or one of them.
PeerId Cluster::add_shard(const ElementRange& range, bool is_filled) {
  const PeerId peer = new_peer();
  ShardStart start{peer, range, is_filled, {}, kept_versions_};
  shards_.emplace(peer, ServerShard(start, std::make_unique<TallyStore>(range)));
  for (size_t i = 0; i < membership_.ranges.size(); ++i) {
    if (membership_.ranges[i].range == range) range_of_[peer] = i;
  }
  return peer;
}

std::vector<PeerId> Cluster::add_parts() {
  std::vector<PeerId> parts;
  for (int32_t stage = 0; stage < stages_; ++stage) {
    parts.push_back(new_peer());
    parts_.emplace(parts.back(), ReplicaPart(parts.back(), {stage}));
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
    const bool is_noticed = random_.below(40) == 0;
    if (is_noticed && (!dead_.empty() || decider_ == nullptr)) notice();
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
    target = decider_->record().version.value + 4;
  }
  audit_micros();
  for (const auto& [peer, shard] : shards_) {
    audit_shard(shard, range_of_.at(peer));
    EXPECT_TRUE(shard.is_filled());
    EXPECT_GE(shard.version(), decider_->record().committed);
    refused_ += shard.refused();
  }
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
  const Status changed = decider_->change(random_mode(random_, replicas_, micros_));
  EXPECT_TRUE(changed.ok()) << message_of(changed);
  after_decider(*decider_);
  return true;
}

bool Cluster::lose_part() {
  if (parts_.empty()) return false;
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
  for (std::vector<PeerId>& parts : membership_.replicas) {
    if (!parts.empty()) continue;
    parts = add_parts();
    install();
    return true;
  }
  return false;
}

bool Cluster::join_keeper() {
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

// The coordinator learns of all deaths so far.
void Cluster::notice() {
  for (size_t i = 0; i < dead_.size(); ++i) {
    const std::vector<std::vector<PeerId>> before = membership_.replicas;
    membership_ = without(std::move(membership_), dead_[i]);
    for (size_t replica = 0; replica < before.size(); ++replica) {
      if (!membership_.replicas[replica].empty()) continue;
      for (const PeerId part : before[replica]) {
        if (is_alive(part)) die(part);  // a replica without one of its parts ends
      }
    }
  }
  dead_.clear();
  install();
}

void Cluster::install() {
  ++membership_.epoch;
  if (decider_ == nullptr) {
    decider_id_ = new_peer();
    DeciderStart start{decider_id_, micros_, first_record(SyncMode{}, replicas_),
                       most_uncommitted_};
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
    if (!is_alive(message.header.to)) continue;
    links_[{message.header.from, message.header.to}].push_back(std::move(message));
  }
}

// ---- the audit -------------------------------------------------------------------------------

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
    if (one.reason == DropReason::Stale) stale_.push_back({decider.record().sequence, one.work});
  }
  observe(decider.record());
}

// The new decider goes on from the newest record of a living keeper. What the one before has
// decided after that has reached nobody.
void Cluster::adopt(const Record& record) {
  const auto version = static_cast<size_t>(record.version.value);
  ASSERT_GE(record.version.value, committed_) << "a committed update is lost";
  ASSERT_LT(version, expected_.size()) << "an update that nobody has decided";
  updates_.resize(version);
  expected_.resize(version + 1);
  std::erase_if(stale_, [&](const Stale& one) { return one.sequence >= record.sequence; });
}

void Cluster::observe(const Record& record) {
  for (const DecidedUpdate& one : record.updates) {
    const auto version = static_cast<size_t>(one.update.version.value);
    if (version < updates_.size()) {
      ASSERT_TRUE(updates_[version] == one) << "version " << version << " is decided twice";
      continue;
    }
    ASSERT_EQ(version, updates_.size());
    EXPECT_EQ(one.update.number, static_cast<int64_t>(version));
    updates_.push_back(one);
    std::vector<Elements> next = expected_.back();
    for (size_t i = 0; i < next.size(); ++i) {
      std::vector<Elements> gradients;
      for (const Work& work : one.works) {
        gradients.push_back(gradient_of(work, membership_.ranges[i].range));
      }
      apply_to(next[i], gradients);
    }
    expected_.push_back(std::move(next));
  }
  EXPECT_EQ(record.version.value, std::ssize(updates_));
  EXPECT_GE(record.committed.value, committed_) << "a committed update is lost";
  committed_ = record.committed.value;
  audit_record(record);
}

// What was given out was applied, dropped as stale, is under way, or is to be given out again.
void Cluster::audit_record(const Record& record) {
  Mass given, open, returned, stale, applied;
  for (const Stream& stream : record.streams) given += Mass{stream.fresh};
  std::set<int32_t> owners;
  for (const OpenWork& one : record.open) {
    open += one.work.offer.mass;
    EXPECT_TRUE(owners.insert(one.work.offer.replica.value).second) << "two works of a replica";
  }
  for (const MicroRange& range : record.returned) returned += Mass{range.end - range.begin};
  for (const Stale& one : stale_) stale += one.work.offer.mass;
  for (const DecidedUpdate& one : updates_) applied += mass_of(one.update);
  EXPECT_EQ(record.applied, applied);
  EXPECT_EQ(record.dropped, stale);
  EXPECT_EQ(given, applied + stale + open + returned);
  for (const auto& [peer, shard] : shards_) {
    if (shard.is_filled()) {
      EXPECT_GE(shard.version(), record.committed) << "not every keeper has a committed update";
    }
  }
}

void Cluster::audit_shard(const ServerShard& shard, size_t range) {
  const int64_t kept = shard.kept_versions();
  met_kept_limit_ = met_kept_limit_ || kept == kept_versions_;
  EXPECT_LE(kept, kept_versions_);
  EXPECT_LE(shard.gradients(), kGradientsPerReplica * replicas_);
  if (!shard.is_filled()) return;
  const auto version = static_cast<size_t>(shard.version().value);
  ASSERT_LT(version, expected_.size()) << "a version that was not decided";
  const auto& store = static_cast<const TallyStore&>(shard.store());
  EXPECT_EQ(store.elements(), expected_[version][range]) << "at version " << version;
  EXPECT_EQ(store.updates(), shard.version().value);
}

// The same as audit_record, by name: each micro-batch once.
void Cluster::audit_micros() {
  if (!decides()) return;
  const Record& record = decider_->record();
  std::set<int64_t> serials;
  std::set<std::pair<int32_t, int64_t>> seen;
  const auto count = [&](const std::vector<MicroRange>& ranges) {
    for (const MicroRange& range : ranges) {
      for (int64_t micro = range.begin; micro < range.end; ++micro) {
        EXPECT_TRUE(seen.insert({range.stream.value, micro}).second)
            << "micro-batch " << micro << " of replica " << range.stream.value << " is there twice";
      }
    }
  };
  const auto count_work = [&](const Work& work) {
    EXPECT_TRUE(serials.insert(work.serial).second) << "work " << work.serial << " is there twice";
    Mass mass;
    for (const MicroRange& range : work.micros) mass += Mass{range.end - range.begin};
    EXPECT_EQ(mass, work.offer.mass);
    count(work.micros);
  };
  for (const DecidedUpdate& one : updates_) {
    for (const Work& work : one.works) count_work(work);
  }
  for (const Stale& one : stale_) count_work(one.work);
  for (const OpenWork& one : record.open) count_work(one.work);
  count(record.returned);
  int64_t given = 0;
  for (const Stream& stream : record.streams) given += stream.fresh;
  EXPECT_EQ(std::ssize(seen), given) << "a micro-batch is lost";
}

}  // namespace tenuto::servers
