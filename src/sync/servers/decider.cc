#include "sync/servers/decider.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "sync/servers/micros.h"

namespace tenuto::servers {

namespace {

// The rule as it is when all replicas begin with the newest version.
RuleStart rule_start(const Record& record, int64_t micros) {
  RuleStart start{
      record.mode, static_cast<int32_t>(record.streams.size()), micros, record.version, {}};
  for (const Stream& stream : record.streams) start.iterations.push_back(stream.next);
  return start;
}

bool same_ranges(const Membership& left, const Membership& right) {
  return std::equal(left.ranges.begin(), left.ranges.end(), right.ranges.begin(),
                    right.ranges.end(),
                    [](const KeptRange& a, const KeptRange& b) { return a.range == b.range; });
}

}  // namespace

Record first_record(const SyncMode& mode, int32_t replicas) {
  Record record;
  record.mode = mode;
  record.streams.resize(static_cast<size_t>(replicas));
  return record;
}

Record resumed(Record record) {
  for (const OpenWork& open : record.open) give_back(record.returned, open.work);
  record.open.clear();
  record.updates.clear();
  record.filling.clear();
  record.committed = record.version;
  record.sequence = 0;
  record.last_serial = 0;
  record.save = {};
  record.save_mass = {};
  record.digest = 0;
  return record;
}

Result<Decider> Decider::make(const DeciderStart& start) {
  if (auto rule = UpdateRule::make(rule_start(start.record, start.micros)); !rule.ok()) {
    return rule.error();
  }
  const int64_t replicas = std::ssize(start.record.streams);
  const int64_t most = kMostUncommittedPerReplica * replicas;
  if (start.most_uncommitted < 0 || start.most_uncommitted > most) {
    return invalid(cat("servers: expected a limit of 1 to ", most,
                       " uncommitted offers, or 0 for the usual one, found ",
                       start.most_uncommitted));
  }
  if (start.save_every.micros < 0) {
    return invalid(
        cat("servers: expected states to be saved whenever a mass of at least 1 is "
            "applied, or 0 for only on request, found ",
            start.save_every.micros));
  }
  if (start.end.micros < 0) {
    return invalid(cat("servers: expected a run that ends at a mass of at least 1, or 0 for one ",
                       "without an end, found ", start.end.micros));
  }
  const int64_t usual = kUncommittedPerReplica * replicas;
  return Decider(start, start.most_uncommitted > 0 ? start.most_uncommitted : usual);
}

Decider::Decider(const DeciderStart& start, int64_t most_uncommitted)
    : start_(start),
      most_uncommitted_(most_uncommitted),
      record_(start.record),
      joined_(start.record.streams.size()),
      assigned_(start.record.streams.size(), -1) {}

template <class Body>
void Decider::send(PeerId to, Version version, Body body) {
  messages_.push_back({{membership_.epoch, start_.self, to, version}, std::move(body)});
}

// ---- epochs ----------------------------------------------------------------------------------

Status Decider::install(const Membership& membership) {
  if (const Status fault = check(membership); !fault.ok()) return fault;
  if (membership.decider != start_.self) {
    return invalid(cat("servers: expected members whose decider is peer ", start_.self, ", found ",
                       membership.decider));
  }
  if (membership.epoch <= membership_.epoch) {
    return invalid(
        cat("servers: expected an epoch after ", membership_.epoch, ", found ", membership.epoch));
  }
  if (membership.replicas.size() != joined_.size()) {
    return invalid(
        cat("servers: expected ", joined_.size(), " replicas, found ", membership.replicas.size()));
  }
  if (!membership_.ranges.empty() && !same_ranges(membership_, membership)) {
    return invalid("servers: expected the same ranges of parameters as before");
  }
  membership_ = membership;
  ready_ = false;
  versions_.clear();
  reports_.clear();
  reported_.clear();
  // What was not sent yet belongs to the epoch before.
  messages_.clear();
  for (const PeerId peer : peers_of(membership_)) send(peer, record_.version, Enter{membership_});
  return ok();
}

Status Decider::report(PeerId from, Version version, KeeperReport report) {
  if (ready_) return invalid(cat("servers: peer ", from, " reports a second time in an epoch"));
  if (report.record.sequence > 0 && report.record.streams.size() != joined_.size()) {
    return invalid(cat("servers: expected a record of ", joined_.size(), " replicas of peer ", from,
                       ", found one of ", report.record.streams.size()));
  }
  reported_.insert(from);
  if (contains(keepers_of(membership_), from)) {
    versions_[from] = version;
    reports_[from] = std::move(report);
  }
  return reported_.size() == peers_of(membership_).size() ? begin_epoch() : ok();
}

// All have reported: what was known before meets what they have.
Status Decider::begin_epoch() {
  if (const Status fault = find_donors(); !fault.ok()) return fault;
  record_.last_serial = std::max(record_.last_serial, serials_before(membership_.epoch));
  if (!rule_) {
    if (const Status fault = adopt_newest(); !fault.ok()) return fault;
  }
  for (const auto& [keeper, version] : versions_) {
    if (version >= record_.committed && version <= record_.version) continue;
    return Error{Code::Invalid, Reach::Job,
                 cat("servers: peer ", keeper, " is at version ", version.value, ": expected ",
                     record_.committed.value, " to ", record_.version.value)};
  }
  ready_ = true;
  commit();
  resume_works();
  follow_members();
  std::fill(assigned_.begin(), assigned_.end(), -1);
  sent_ = {};
  sent_.sequence = -1;
  feed();
  flush();
  reports_.clear();
  return ok();
}

// A keeper without its range gets it from the first one that has it, as it is now: it has, in
// effect, the same version and the same gradients already.
Status Decider::find_donors() {
  std::vector<PeerId> filling;
  for (size_t i = 0; i < membership_.ranges.size(); ++i) {
    const std::vector<PeerId>& keepers = membership_.ranges[i].keepers;
    const auto donor = std::find_if(keepers.begin(), keepers.end(),
                                    [&](PeerId keeper) { return reports_.at(keeper).is_filled; });
    if (donor == keepers.end()) {
      return Error{Code::Infeasible, Reach::Job,
                   cat("servers: no living process has range ", i,
                       " of the parameters: resume from a checkpoint")};
    }
    for (const PeerId keeper : keepers) {
      KeeperReport& found = reports_.at(keeper);
      if (found.is_filled) continue;
      filling.push_back(keeper);
      versions_[keeper] = versions_.at(*donor);
      const std::vector<int64_t>& stored = reports_.at(*donor).stored;
      found.stored.insert(found.stored.end(), stored.begin(), stored.end());
    }
  }
  record_.filling = std::move(filling);
  return ok();
}

// A fresh decider goes on from the newest record. Works that were under way begin again, with
// the newest parameters: nobody knows how far the decider before had come with them.
Status Decider::adopt_newest() {
  const std::vector<PeerId> filling = record_.filling;
  for (const auto& [keeper, found] : reports_) {
    if (found.record.sequence > record_.sequence) record_ = found.record;
  }
  record_.filling = filling;
  record_.last_serial = std::max(record_.last_serial, serials_before(membership_.epoch));
  auto rule = UpdateRule::make(rule_start(record_, start_.micros));
  if (!rule.ok()) return rule.error();
  for (const OpenWork& open : record_.open) {
    give_back(record_.returned, open.work);
    dropped_.push_back({open.work, DropReason::Lost});
  }
  record_.open.clear();
  number_before_ = record_.updates_decided;
  rule_ = std::move(rule).value();
  joined_ = membership_.replicas;
  const Decided begun = rule_->begin();
  for (size_t i = 0; i < joined_.size(); ++i) {
    const ReplicaId replica{static_cast<int32_t>(i)};
    if (joined_[i].empty()) take(rule_->lose(replica).value());
  }
  take(begun);
  return ok();
}

// Which keepers have which gradients now.
void Decider::resume_works() {
  held_.clear();
  for (OpenWork& open : record_.open) {
    Arrived& arrived = arrived_[open.work.serial];
    arrived.stored.clear();
    arrived.is_complete = open.offered;
  }
  for (const auto& [keeper, found] : reports_) {
    for (const int64_t serial : found.stored) {
      if (find_open(serial) != nullptr) arrived_[serial].stored.insert(keeper);
    }
  }
}

// Losses first, so that those that remain get the micro-batches of the lost ones.
void Decider::follow_members() {
  for (size_t i = 0; i < joined_.size(); ++i) {
    if (!joined_[i].empty() && joined_[i] != membership_.replicas[i]) lose_replica(i);
  }
  for (size_t i = 0; i < joined_.size(); ++i) {
    if (joined_[i] == membership_.replicas[i]) continue;
    joined_[i] = membership_.replicas[i];
    const ReplicaId replica{static_cast<int32_t>(i)};
    take(rule_->join(replica, record_.streams[i].next).value());
  }
  std::vector<int64_t> serials;
  for (const OpenWork& open : record_.open) serials.push_back(open.work.serial);
  for (const int64_t serial : serials) note_if_complete(serial);
}

void Decider::lose_replica(size_t replica) {
  const ReplicaId lost{static_cast<int32_t>(replica)};
  joined_[replica].clear();
  const bool has_work =
      std::any_of(record_.open.begin(), record_.open.end(),
                  [&](const OpenWork& open) { return open.work.offer.replica == lost; });
  if (has_work) {
    Work work = remove_open(lost);
    give_back(record_.returned, work);
    dropped_.push_back({std::move(work), DropReason::Lost});
  }
  take(rule_->lose(lost).value());
}

// ---- decisions -------------------------------------------------------------------------------

void Decider::take(const Decided& decided) {
  for (const Dropped& dropped : decided.dropped) {
    // A lost replica's work is gone already.
    if (dropped.reason == DropReason::Lost) continue;
    record_.dropped += dropped.offer.mass;
    dropped_.push_back({remove_open(dropped.offer.replica), dropped.reason});
  }
  for (const Update& update : decided.updates) {
    DecidedUpdate one{update, {}};
    one.update.number += number_before_;
    for (const Offer& member : update.members) one.works.push_back(remove_open(member.replica));
    record_.applied += mass_of(update);
    record_.version = update.version + 1;
    ++record_.updates_decided;
    record_.digest = digest_after(record_.digest, one);
    record_.updates.push_back(std::move(one));
  }
  for (const Release& released : decided.released) release(released);
  if (decided.window) window_ = decided.window;
}

void Decider::release(const Release& release) {
  const auto replica = static_cast<size_t>(release.offer.replica.value);
  if (joined_[replica].empty()) return;
  Stream& stream = record_.streams[replica];
  Work work{++record_.last_serial, release.offer, release.local_steps, {}};
  work.micros = deal(record_.returned, stream, release.offer.replica, release.offer.mass);
  work.applied = record_.applied;
  // One decision may make several updates, and the work may read what the first ones have made.
  for (const DecidedUpdate& later : record_.updates) {
    if (later.update.version < release.offer.version) continue;
    work.applied = work.applied - mass_of(later.update);
  }
  work.outer = rule_->mode().outer;
  stream.next = release.offer.iteration + release.local_steps;
  arrived_[work.serial] = {};
  record_.open.push_back({std::move(work), false, false});
}

// Requires: the replica has an open work.
Work Decider::remove_open(ReplicaId replica) {
  const auto found =
      std::find_if(record_.open.begin(), record_.open.end(),
                   [&](const OpenWork& open) { return open.work.offer.replica == replica; });
  CHECK(found != record_.open.end(), "an offer is of an open work");
  Work work = std::move(found->work);
  record_.open.erase(found);
  arrived_.erase(work.serial);
  return work;
}

OpenWork* Decider::find_open(int64_t serial) {
  for (OpenWork& open : record_.open) {
    if (open.work.serial == serial) return &open;
  }
  return nullptr;
}

// An offer is here once every keeper has its gradient.
void Decider::note_if_complete(int64_t serial) {
  if (find_open(serial) == nullptr) return;
  Arrived& arrived = arrived_[serial];
  if (arrived.is_complete) return;
  for (const PeerId keeper : keepers_of(membership_)) {
    if (arrived.stored.count(keeper) == 0) return;
  }
  arrived.is_complete = true;
  held_.push_back(serial);
}

bool Decider::is_done() const {
  return start_.end.micros > 0 && record_.applied.micros >= start_.end.micros;
}

// Gives complete offers to the rule, as long as not too much waits for its commit. Before all have
// reported nobody knows which offers are complete.
void Decider::feed() {
  if (!ready_) return;
  while (!held_.empty() && !is_done()) {
    int64_t uncommitted = 0;
    for (const DecidedUpdate& update : record_.updates) uncommitted += std::ssize(update.works);
    if (uncommitted >= most_uncommitted_) return;
    OpenWork* open = find_open(held_.front());
    held_.pop_front();
    if (open == nullptr) continue;  // its replica was lost
    open->offered = true;
    const Offer offer = open->work.offer;
    take(rule_->offer(offer).value());
  }
}

// What all keepers have is final, and nobody asks for its list any more.
void Decider::commit() {
  Version frontier = record_.version;
  for (const auto& [keeper, version] : versions_) frontier = std::min(frontier, version);
  record_.committed = std::max(record_.committed, frontier);
  std::erase_if(record_.updates,
                [&](const DecidedUpdate& one) { return one.update.version < record_.committed; });
}

// The record that goes out next names its own version, if it is time to write it down. A run that
// has gone on from saved states begins to count with the mass of these.
void Decider::mark_save() {
  const int64_t every = start_.save_every.micros;
  const Mass last = std::max(record_.save_mass, start_.record.applied);
  const bool is_due = every > 0 && record_.applied.micros / every > last.micros / every;
  if (is_due || wants_save_) {
    record_.save = record_.version;
    record_.save_mass = record_.applied;
  }
  wants_save_ = false;
}

// The parts of the replica to which this one sends its gradient; nullptr = it sends it to the
// keepers, also when its parent is lost.
const std::vector<PeerId>* Decider::parents_of(size_t replica) const {
  const SyncMode& mode = record_.mode;
  if (!start_.children_send_to_parents || mode.kind != SyncKind::Ring) return nullptr;
  const auto parent = static_cast<size_t>(mode.parents[replica].value);
  return parent == replica || joined_[parent].empty() ? nullptr : &joined_[parent];
}

// Sends what is different from what was sent last.
void Decider::flush() {
  if (!ready_) return;
  mark_save();
  if (record_ != sent_) {
    ++record_.sequence;
    sent_ = record_;
    for (const PeerId keeper : keepers_of(membership_)) send(keeper, record_.version, record_);
  }
  for (size_t i = 0; i < joined_.size(); ++i) {
    Assign assign;
    int64_t serial = 0;
    for (const OpenWork& open : record_.open) {
      if (open.work.offer.replica.value != static_cast<int32_t>(i)) continue;
      assign.work = open.work;
      serial = open.work.serial;
      const std::set<PeerId>& stored = arrived_[serial].stored;
      assign.have.assign(stored.begin(), stored.end());
    }
    if (assigned_[i] == serial) continue;
    assigned_[i] = serial;
    const Version version = assign.work ? assign.work->offer.version : record_.version;
    const std::vector<PeerId>* parents = assign.work ? parents_of(i) : nullptr;
    for (size_t stage = 0; stage < joined_[i].size(); ++stage) {
      if (parents != nullptr) assign.parent = (*parents)[stage];
      send(joined_[i][stage], version, assign);
    }
  }
}

// ---- inputs ----------------------------------------------------------------------------------

Status Decider::handle(const Message& message) {
  const Header& header = message.header;
  if (header.epoch != membership_.epoch || header.to != start_.self ||
      !contains(peers_of(membership_), header.from)) {
    ++refused_;
    return ok();
  }
  const bool is_keeper = contains(keepers_of(membership_), header.from);
  if (const auto* keeper = std::get_if<KeeperReport>(&message.body); keeper && is_keeper) {
    return report(header.from, header.version, *keeper);
  }
  if (std::holds_alternative<PartReport>(message.body) && !is_keeper) {
    return report(header.from, header.version, {});
  }
  if (!ready_) return invalid(cat("servers: peer ", header.from, " did not report before"));
  if (const auto* stored = std::get_if<Stored>(&message.body); stored && is_keeper) {
    if (find_open(stored->serial) != nullptr) {
      arrived_[stored->serial].stored.insert(header.from);
      note_if_complete(stored->serial);
    }
  } else if (std::holds_alternative<Applied>(message.body) && is_keeper) {
    if (header.version > record_.version) {
      return invalid(cat("servers: peer ", header.from, " is at version ", header.version.value,
                         ", which is not decided: expected at most ", record_.version.value));
    }
    std::erase(record_.filling, header.from);
    versions_[header.from] = std::max(versions_[header.from], header.version);
    commit();
  } else if (const auto* read = std::get_if<Read>(&message.body); read && !is_keeper) {
    note_read(header.from, read->serial);
  } else {
    return invalid(cat("servers: peer ", header.from, " sent the decider what is not for it"));
  }
  feed();
  flush();
  return ok();
}

void Decider::note_read(PeerId from, int64_t serial) {
  OpenWork* open = find_open(serial);
  if (open == nullptr) return;
  const std::vector<PeerId>& parts = joined_[static_cast<size_t>(open->work.offer.replica.value)];
  if (!contains(parts, from)) return;
  std::set<PeerId>& readers = arrived_[serial].read;
  readers.insert(from);
  open->read = readers.size() == parts.size();
}

Status Decider::change(const SyncMode& mode) {
  if (!rule_) {
    return invalid(
        "servers: expected a change of the sync mode after the first members have "
        "reported, found one before: try again");
  }
  auto decided = rule_->change(mode);
  if (!decided.ok()) return decided.error();
  record_.mode = mode;
  take(decided.value());
  feed();
  flush();
  return ok();
}

void Decider::close(int64_t window) {
  if (!rule_) return;
  take(rule_->close(window));
  feed();
  flush();
}

void Decider::save() {
  wants_save_ = true;
  flush();
}

std::vector<Message> Decider::take_messages() { return std::exchange(messages_, {}); }

std::vector<DroppedWork> Decider::take_dropped() { return std::exchange(dropped_, {}); }

}  // namespace tenuto::servers
