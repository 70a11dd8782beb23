#include "ir/update_rule.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// The largest iteration and version that a rule begins or goes on with: far from an overflow.
constexpr int64_t kMostIterations = int64_t{1} << 53;

constexpr int64_t kMostMicros = 1'000'000;

// Whether the rule can run this mode.
Status accept(const SyncMode& mode, int32_t replicas, int64_t micros) {
  if (const Status fault = check_mode_of_run(mode, replicas, micros); !fault.ok()) return fault;
  if (is_formed(mode)) return ok();
  return invalid(cat("sync mode ", to_text(mode),
                     ": expected its groups, parents, shares or window, found none: form it from "
                     "the replicas' times first"));
}

}  // namespace

Mass mass_of(const Update& update) {
  Mass mass;
  for (const Offer& member : update.members) mass += member.mass;
  return mass;
}

Result<UpdateRule> UpdateRule::make(const RuleStart& start) {
  if (const Status fault = accept(start.mode, start.replicas, start.micros); !fault.ok()) {
    return fault.error();
  }
  if (!start.iterations.empty() && std::ssize(start.iterations) != start.replicas) {
    return invalid(cat("expected the iterations of ", start.replicas, " replicas, found ",
                       start.iterations.size()));
  }
  const auto outside = [](auto of) { return of.value < 0 || of.value > kMostIterations; };
  if (outside(start.version) ||
      std::any_of(start.iterations.begin(), start.iterations.end(), outside)) {
    return invalid(cat("expected a version and iterations from 0 to ", kMostIterations));
  }
  return UpdateRule(start);
}

UpdateRule::UpdateRule(const RuleStart& start)
    : start_(start),
      replicas_(static_cast<size_t>(start.replicas)),
      live_(start.replicas),
      free_(start.replicas),
      version_(start.version) {
  for (size_t i = 0; i < start.iterations.size(); ++i) {
    replicas_[i].next = replicas_[i].unapplied = start.iterations[i];
  }
  start_.iterations.clear();
}

Decided UpdateRule::begin() {
  Decided decided;
  release_free(decided);
  return decided;
}

Mass UpdateRule::waiting_mass() const {
  Mass mass;
  for (const Offer& offer : buffer_) mass += offer.mass;
  return mass;
}

void UpdateRule::set_phase(Replica& replica, Phase phase) {
  if (replica.phase == Phase::Free) --free_;
  if (phase == Phase::Free) ++free_;
  replica.phase = phase;
}

bool UpdateRule::is_known(ReplicaId replica) const {
  return replica.value >= 0 && replica.value < start_.replicas;
}

bool UpdateRule::is_waiting(int32_t replica) const {
  return replicas_[static_cast<size_t>(replica)].phase == Phase::Waiting;
}

// Only with backup workers. The limit: no replica is dropped twice in a row, nor at its first
// offer.
bool UpdateRule::is_stale(const Offer& offer) const {
  return start_.mode.kind == SyncKind::Backup && offer.version != version_ &&
         at(offer.replica).was_applied;
}

void UpdateRule::drop(const Offer& offer, DropReason reason, Decided& decided) {
  dropped_ += offer.mass;
  at(offer.replica).was_applied = false;
  decided.dropped.push_back({offer, reason});
}

Status UpdateRule::check_due(const Offer& offer) const {
  if (!is_known(offer.replica)) {
    return invalid(
        cat("an offer of replica ", offer.replica, ": expected one of 0 to ", start_.replicas - 1));
  }
  const Replica& replica = at(offer.replica);
  if (replica.phase == Phase::Lost) {
    return invalid(cat("an offer of replica ", offer.replica, ", which is lost: it has to join"));
  }
  if (offer.iteration < replica.next && replica.phase != Phase::Computing) {
    return invalid(cat("replica ", offer.replica, " has offered iteration ", offer.iteration.value,
                       " before: an offer counts once"));
  }
  if (replica.phase != Phase::Computing) {
    return invalid(
        cat("an offer of replica ", offer.replica, ", which was not released: it has to wait"));
  }
  const Offer& due = replica.work.offer;
  if (offer == due) return ok();
  return invalid(cat("an offer of replica ", offer.replica, ": expected iteration ",
                     due.iteration.value, ", version ", due.version.value, " and mass ",
                     due.mass.micros, " as it was released for, found iteration ",
                     offer.iteration.value, ", version ", offer.version.value, " and mass ",
                     offer.mass.micros));
}

void UpdateRule::count(const Offer& offer) {
  offered_ += offer.mass;
  Replica& replica = at(offer.replica);
  replica.next = offer.iteration + replica.work.local_steps;
}

Result<Decided> UpdateRule::offer(const Offer& offer) {
  if (const Status fault = check_due(offer); !fault.ok()) return fault.error();
  count(offer);
  Replica& replica = at(offer.replica);
  ++replica.clock;
  Decided decided;
  if (is_stale(offer)) {
    set_phase(replica, Phase::Free);
    drop(offer, DropReason::Stale, decided);
  } else {
    set_phase(replica, Phase::Waiting);
    buffer_.push_back(offer);
  }
  proceed(decided);
  return decided;
}

Result<Decided> UpdateRule::refuse(const Offer& offer) {
  if (const Status fault = check_due(offer); !fault.ok()) return fault.error();
  count(offer);
  Decided decided;
  set_phase(at(offer.replica), Phase::Free);
  drop(offer, DropReason::Refused, decided);
  proceed(decided);
  return decided;
}

Decided UpdateRule::close(int64_t number) {
  Decided decided;
  if (!open_ || number != windows_ - 1) return decided;
  over_ = true;
  proceed(decided);
  return decided;
}

Result<Decided> UpdateRule::change(const SyncMode& mode) {
  if (const Status fault = accept(mode, start_.replicas, start_.micros); !fault.ok()) {
    return fault.error();
  }
  start_.mode = mode;
  open_ = over_ = false;
  for (Replica& replica : replicas_) replica.clock = replica.phase == Phase::Waiting ? 1 : 0;
  Decided decided;
  proceed(decided);
  return decided;
}

Result<Decided> UpdateRule::lose(ReplicaId replica) {
  if (!is_known(replica) || at(replica).phase == Phase::Lost) {
    return invalid(cat("replica ", replica, " cannot be lost: expected a live replica"));
  }
  Decided decided;
  const auto waits = std::find_if(buffer_.begin(), buffer_.end(),
                                  [&](const Offer& of) { return of.replica == replica; });
  if (waits != buffer_.end()) {
    drop(*waits, DropReason::Lost, decided);
    buffer_.erase(waits);
  }
  set_phase(at(replica), Phase::Lost);
  --live_;
  proceed(decided);
  return decided;
}

Result<Decided> UpdateRule::join(ReplicaId replica, Iteration iteration) {
  if (!is_known(replica) || at(replica).phase != Phase::Lost || iteration.value < 0 ||
      iteration.value > kMostIterations) {
    return invalid(cat("replica ", replica, " cannot join with iteration ", iteration.value,
                       ": expected a lost replica and an iteration from 0 to ", kMostIterations));
  }
  const Iteration unapplied = at(replica).unapplied;
  if (iteration < unapplied) {
    return invalid(cat("replica ", replica, " cannot join with iteration ", iteration.value,
                       ", which is applied already: expected one from ", unapplied.value, " on"));
  }
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const Replica& other : replicas_) {
    if (other.phase != Phase::Lost) fewest = std::min(fewest, other.clock);
  }
  const int64_t clock = live_ == 0 ? 0 : fewest;  // it is not behind: the others need not wait
  at(replica) = Replica{Phase::Free, {}, iteration, clock, false, unapplied};
  ++live_;
  ++free_;
  Decided decided;
  proceed(decided);
  return decided;
}

// True once `count` of the live replicas' offers are here, or all of them.
bool UpdateRule::is_complete(size_t count) const {
  return !buffer_.empty() && buffer_.size() >= std::min(count, static_cast<size_t>(live_));
}

std::vector<Offer> UpdateRule::taken(size_t count) {
  return {buffer_.begin(), buffer_.begin() + static_cast<int64_t>(std::min(count, buffer_.size()))};
}

// The first group whose live members all wait.
std::vector<Offer> UpdateRule::group_members() const {
  if (buffer_.empty()) return {};
  const std::vector<int32_t>& groups = start_.mode.groups;
  std::vector<int32_t> missing(groups.size(), 0), here(groups.size(), 0);
  for (size_t i = 0; i < groups.size(); ++i) {
    const Phase phase = replicas_[i].phase;
    (phase == Phase::Waiting ? here : missing)[static_cast<size_t>(groups[i])] +=
        phase != Phase::Lost;
  }
  std::vector<Offer> members;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (here[group] == 0 || missing[group] > 0) continue;
    for (const Offer& offer : buffer_) {
      if (groups[static_cast<size_t>(offer.replica.value)] == static_cast<int32_t>(group)) {
        members.push_back(offer);
      }
    }
    break;
  }
  return members;
}

ReplicaId UpdateRule::parent_of(ReplicaId replica) const {
  const std::vector<ReplicaId>& parents = start_.mode.parents;
  if (start_.mode.kind != SyncKind::Ring) return replica;
  const ReplicaId wanted = parents[static_cast<size_t>(replica.value)];
  int32_t lowest = -1;
  for (int32_t step = 0; step < start_.replicas; ++step) {
    const ReplicaId one{(wanted.value + step) % start_.replicas};
    if (at(one).phase == Phase::Lost) continue;
    if (parents[static_cast<size_t>(one.value)] == one) return one;
    lowest = lowest < 0 ? one.value : std::min(lowest, one.value);
  }
  return {lowest};
}

// All that wait, once every live member of the ring does.
std::vector<Offer> UpdateRule::ring_members() const {
  for (int32_t i = 0; i < start_.replicas; ++i) {
    const bool lost = replicas_[static_cast<size_t>(i)].phase == Phase::Lost;
    if (!lost && !is_waiting(i) && parent_of({i}) == ReplicaId{i}) return {};
  }
  return {buffer_.begin(), buffer_.end()};
}

// The offers of the next update in order of arrival; none when it has to wait.
std::vector<Offer> UpdateRule::next_members() {
  const size_t all = buffer_.size();
  const auto count = static_cast<size_t>(start_.mode.count);
  const bool everybody = is_complete(static_cast<size_t>(live_));
  switch (start_.mode.kind) {
    case SyncKind::Synchronous:
    case SyncKind::Rebalanced:
      return everybody ? taken(all) : std::vector<Offer>();
    case SyncKind::Asynchronous:
      return taken(1);
    case SyncKind::Count:
      return is_complete(count) ? taken(count) : std::vector<Offer>();
    case SyncKind::Grace:
      return everybody || over_ ? taken(all) : std::vector<Offer>();
    case SyncKind::Groups:
      return group_members();
    case SyncKind::Ring:
      return ring_members();
    case SyncKind::Backup: {
      // This many offers have to be here before it is worth counting those of the newest version.
      if (!everybody && all < count) return {};
      const auto newest = std::count_if(buffer_.begin(), buffer_.end(), [&](const Offer& offer) {
        return offer.version == version_;
      });
      return everybody || newest >= start_.mode.count ? taken(all) : std::vector<Offer>();
    }
  }
  return {};
}

void UpdateRule::apply(std::vector<Offer> members, Decided& decided) {
  // An update has at most one offer of a replica, so it is enough to compare the replicas.
  std::sort(members.begin(), members.end(),
            [](const Offer& left, const Offer& right) { return left.replica < right.replica; });
  Update update{number_++, version_, std::move(members), {}};
  version_ = version_ + 1;
  update.parents.reserve(update.members.size());
  for (const Offer& member : update.members) {
    Replica& replica = at(member.replica);
    CHECK(replica.phase == Phase::Waiting, "a member of an update waits");
    set_phase(replica, Phase::Free);
    replica.was_applied = true;
    replica.unapplied = member.iteration + replica.work.local_steps;
    update.parents.push_back(parent_of(member.replica));
  }
  std::erase_if(buffer_, [&](const Offer& offer) { return !is_waiting(offer.replica.value); });
  applied_ += mass_of(update);
  open_ = over_ = false;
  decided.updates.push_back(std::move(update));
}

void UpdateRule::proceed(Decided& decided) {
  // After a loss there may be fewer offers than those that opened the window.
  if (open_ && !is_complete(static_cast<size_t>(start_.mode.count))) open_ = over_ = false;
  while (true) {
    std::vector<Offer> members = next_members();
    if (members.empty()) break;
    apply(std::move(members), decided);
  }
  if (start_.mode.kind == SyncKind::Grace && !open_ &&
      is_complete(static_cast<size_t>(start_.mode.count))) {
    open_ = true;
    decided.window = OpenWindow{windows_++, start_.mode.window};
  }
  release_free(decided);
}

void UpdateRule::release_free(Decided& decided) {
  if (free_ == 0) return;
  int64_t most = std::numeric_limits<int64_t>::max();
  if (start_.mode.bound && live_ > 0) {
    for (const Replica& replica : replicas_) {
      if (replica.phase != Phase::Lost) most = std::min(most, replica.clock);
    }
    most += *start_.mode.bound;
  }
  decided.released.reserve(static_cast<size_t>(free_));
  int32_t left = free_;
  for (int32_t i = 0; i < start_.replicas && left > 0; ++i) {
    Replica& replica = at({i});
    if (replica.phase != Phase::Free) continue;
    --left;
    if (replica.clock > most) continue;
    const int64_t share = start_.mode.kind == SyncKind::Rebalanced
                              ? start_.mode.shares[static_cast<size_t>(i)]
                              : start_.micros;
    const int32_t steps = start_.mode.local_steps;
    replica.work = {{{i}, replica.next, version_, {share * steps}}, steps};
    set_phase(replica, Phase::Computing);
    decided.released.push_back(replica.work);
  }
}

Status check_mode_of_run(const SyncMode& mode, int32_t replicas, int64_t micros) {
  if (micros < 1 || micros > kMostMicros) {
    return invalid(
        cat("expected 1 to ", kMostMicros, " micro-batches per replica, found ", micros));
  }
  if (const Status fault = check(mode, replicas); !fault.ok()) return fault;
  int64_t sum = 0;
  for (const int64_t share : mode.shares) sum += share;
  if (mode.shares.empty() || sum == replicas * micros) return ok();
  return invalid(cat("sync mode rebalanced: expected shares that add up to ", replicas * micros,
                     " micro-batches, those of ", replicas, " replicas, found ", sum));
}

std::string to_text(const Update& update) {
  std::string text = cat("update ", update.number, " on version ", update.version.value, ":");
  for (size_t i = 0; i < update.members.size(); ++i) {
    const Offer& of = update.members[i];
    text += cat(i == 0 ? " " : ", ", of.replica, " iteration ", of.iteration.value, " version ",
                of.version.value, " mass ", of.mass.micros);
    if (update.parents[i] != of.replica) text += cat(" child of ", update.parents[i]);
  }
  return text;
}

}  // namespace tenuto
