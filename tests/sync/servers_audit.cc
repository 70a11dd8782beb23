// What holds after every input of a cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sync/servers_cluster.h"

namespace tenuto::servers {

namespace {

using Micros = std::set<std::pair<int32_t, int64_t>>;

// Notes these micro-batches, of which none is there yet.
void note_micros(const std::vector<MicroRange>& ranges, Micros& seen) {
  for (const MicroRange& range : ranges) {
    for (int64_t micro = range.begin; micro < range.end; ++micro) {
      EXPECT_TRUE(seen.insert({range.stream.value, micro}).second)
          << "micro-batch " << micro << " of replica " << range.stream.value << " is there twice";
    }
  }
}

int64_t given_by(const std::vector<Stream>& streams) {
  int64_t given = 0;
  for (const Stream& stream : streams) given += stream.fresh;
  return given;
}

}  // namespace

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
  // The rule by which a run audits itself says the same.
  const Balance balance = balance_of(record);
  EXPECT_EQ(balance, (Balance{record.version, tally_of(record), given, stale, open, returned}));
  EXPECT_TRUE(check_balance(balance).ok());
  for (const auto& [peer, shard] : shards_) {
    if (shard.is_filled()) {
      EXPECT_GE(shard.version(), record.committed) << "not every keeper has a committed update";
    }
  }
}

// Of all decided updates before this version.
Tally Cluster::tally_at(Version version) const {
  Tally tally = tally_of(first_);
  for (auto i = static_cast<size_t>(first_.version.value); i < static_cast<size_t>(version.value);
       ++i) {
    add(tally, updates_[i]);
  }
  return tally;
}

// At the end keepers may be at several versions: all have the tally of theirs, and those that have
// everything pass the audit of a run.
void Cluster::audit_tallies() const {
  const Record& record = decider_->record();
  EXPECT_EQ(tally_of(record), tally_at(record.version));
  std::vector<KeptTally> kept;
  for (const auto& [peer, shard] : shards_) {
    EXPECT_EQ(shard.tally(), tally_at(shard.version())) << "keeper " << peer.value;
    if (shard.version() != record.version) continue;
    kept.push_back({"a keeper", record.version, shard.tally()});
  }
  if (kept.empty()) return;
  const Status right = check_tallies(kept, balance_of(record));
  EXPECT_TRUE(right.ok()) << (right.ok() ? "" : right.error().message);
  ++kept.front().tally.digest;
  EXPECT_FALSE(check_tallies(kept, balance_of(record)).ok());
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
  Micros seen;
  const auto count_work = [&](const Work& work) {
    EXPECT_TRUE(serials.insert(work.serial).second) << "work " << work.serial << " is there twice";
    Mass mass;
    for (const MicroRange& range : work.micros) mass += Mass{range.end - range.begin};
    EXPECT_EQ(mass, work.offer.mass);
    note_micros(work.micros, seen);
  };
  for (const DecidedUpdate& one : updates_) {
    for (const Work& work : one.works) count_work(work);
  }
  for (const Stale& one : stale_) count_work(one.work);
  for (const OpenWork& one : record.open) count_work(one.work);
  note_micros(record.returned, seen);
  EXPECT_EQ(std::ssize(seen), given_by(record.streams)) << "a micro-batch is lost";
}

// ---- what is written down --------------------------------------------------------------------

// Takes what the keeper has to write down: the bits of exactly that version, which is committed.
void Cluster::audit_saved(ServerShard& shard, size_t range) {
  while (const std::optional<SavedState> saved = shard.take_saved()) {
    const int64_t version = saved->version.value;
    ASSERT_LE(version, committed_) << "another decider can still make another update";
    Elements expected = expected_[static_cast<size_t>(version)][range];
    expected.push_back(static_cast<uint32_t>(version));  // a TallyStore counts its updates
    EXPECT_EQ(elements_in(saved->state), expected) << "at version " << version;
    Mass applied;
    for (size_t i = 0; i < static_cast<size_t>(version); ++i)
      applied += mass_of(updates_[i].update);
    EXPECT_EQ(saved->mass, applied);
    EXPECT_EQ(saved->tally, tally_at(saved->version));
    Save& save = saves_[version];
    if (const auto [place, is_new] = save.states.insert({range, saved->state}); !is_new) {
      EXPECT_EQ(elements_in(place->second), elements_in(saved->state)) << "keepers differ";
    }
    if (!saved->record) continue;
    EXPECT_EQ(saved->record->version, saved->version);
    EXPECT_EQ(saved->record->save, saved->version);
    EXPECT_EQ(tally_of(*saved->record), saved->tally);
    if (!save.record) audit_resumed(*saved->record);
    save.record = saved->record;
  }
}

// A run that goes on from this record and the states of its version has each micro-batch once, as
// this one has.
void Cluster::audit_resumed(const Record& record) const {
  const Record next = resumed(record);
  EXPECT_EQ(next.committed, record.version);
  EXPECT_EQ(next.streams, record.streams);
  EXPECT_EQ(next.applied, record.applied);
  EXPECT_EQ(tally_of(next), (Tally{record.version.value, record.applied, 0}));
  EXPECT_TRUE(next.open.empty());
  EXPECT_TRUE(next.updates.empty());
  EXPECT_TRUE(next.filling.empty());
  Micros seen;
  for (size_t i = 0; i < static_cast<size_t>(record.version.value); ++i) {
    for (const Work& work : updates_[i].works) note_micros(work.micros, seen);
  }
  for (const Stale& one : stale_) {
    if (one.sequence <= record.sequence) note_micros(one.work.micros, seen);
  }
  note_micros(next.returned, seen);
  EXPECT_EQ(std::ssize(seen), given_by(next.streams)) << "a micro-batch is lost";
}

std::optional<int64_t> Cluster::newest_save() const {
  std::optional<int64_t> newest;
  for (const auto& [version, save] : saves_) {
    const bool is_whole = save.record && save.states.size() == membership_.ranges.size();
    if (is_whole) newest = version;
  }
  return newest;
}

int64_t Cluster::whole_saves() const {
  return std::count_if(saves_.begin(), saves_.end(), [&](const auto& one) {
    return one.second.record && one.second.states.size() == membership_.ranges.size();
  });
}

}  // namespace tenuto::servers
