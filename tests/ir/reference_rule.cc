#include "ir/reference_rule.h"

#include <algorithm>

namespace tenuto {

ReferenceRule::ReferenceRule(const RuleStart& start)
    : mode_(start.mode), replicas_(start.replicas), micros_(start.micros), version_(start.version) {
  for (int32_t i = 0; i < replicas_; ++i) {
    next_iteration_[i] =
        start.iterations.empty() ? Iteration{} : start.iterations[static_cast<size_t>(i)];
    clock_[i] = 0;
  }
}

Decided ReferenceRule::begin() { return follow({}); }

Decided ReferenceRule::offer(const Offer& offer) {
  const int32_t replica = offer.replica.value;
  next_iteration_[replica].value += computing_.at(replica).local_steps;
  clock_[replica] += 1;
  computing_.erase(replica);
  Decided decided;
  const bool late = mode_.kind == SyncKind::Backup && offer.version < version_;
  if (late && before_[replica] == 'a') {
    decided.dropped.push_back({offer, DropReason::Stale});
    before_[replica] = 'd';
  } else {
    waiting_.push_back(offer);
  }
  return follow(decided);
}

Decided ReferenceRule::close(int64_t number) {
  if (open_window() != number) return {};
  over_ = true;
  return follow({});
}

Decided ReferenceRule::change(const SyncMode& mode) {
  mode_ = mode;
  open_ = over_ = false;
  for (auto& [replica, clock] : clock_) clock = 0;
  for (const Offer& offer : waiting_) clock_[offer.replica.value] = 1;
  return follow({});
}

Decided ReferenceRule::lose(int32_t replica) {
  Decided decided;
  lost_.insert(replica);
  computing_.erase(replica);
  for (const Offer& offer : waiting_) {
    if (offer.replica.value == replica) decided.dropped.push_back({offer, DropReason::Lost});
  }
  std::erase_if(waiting_, [&](const Offer& offer) { return offer.replica.value == replica; });
  return follow(decided);
}

Decided ReferenceRule::join(int32_t replica, Iteration iteration) {
  int64_t fewest = -1;
  for (const auto& [other, clock] : clock_) {
    if (lost_.count(other) == 0 && (fewest < 0 || clock < fewest)) fewest = clock;
  }
  lost_.erase(replica);
  clock_[replica] = std::max<int64_t>(fewest, 0);
  next_iteration_[replica] = iteration;
  before_[replica] = 'd';
  return follow({});
}

int32_t ReferenceRule::ring_parent(int32_t replica) const {
  std::set<int32_t> ring, live;
  for (int32_t i = 0; i < replicas_; ++i) {
    if (lost_.count(i) > 0) continue;
    live.insert(i);
    if (mode_.parents[static_cast<size_t>(i)].value == i) ring.insert(i);
  }
  if (ring.empty()) return *live.begin();
  const auto parent = ring.lower_bound(mode_.parents[static_cast<size_t>(replica)].value);
  return parent == ring.end() ? *ring.begin() : *parent;
}

// The replicas whose offers make the next update.
std::set<int32_t> ReferenceRule::next() const {
  std::vector<int32_t> order;  // of arrival
  std::set<int32_t> here, live;
  int32_t newest = 0;
  for (const Offer& offer : waiting_) {
    order.push_back(offer.replica.value);
    here.insert(offer.replica.value);
    newest += offer.version == version_;
  }
  for (int32_t i = 0; i < replicas_; ++i) {
    if (lost_.count(i) == 0) live.insert(i);
  }
  if (here.empty()) return {};
  const bool all = here == live;
  switch (mode_.kind) {
    case SyncKind::Asynchronous:
      return {order.front()};
    case SyncKind::Synchronous:
    case SyncKind::Rebalanced:
      return all ? here : std::set<int32_t>();
    case SyncKind::Grace:
      return all || over_ ? here : std::set<int32_t>();
    case SyncKind::Backup:
      return all || newest >= mode_.count ? here : std::set<int32_t>();
    case SyncKind::Count: {
      const int32_t wanted = std::min(mode_.count, static_cast<int32_t>(live.size()));
      if (static_cast<int32_t>(order.size()) < wanted) return {};
      return {order.begin(), order.begin() + wanted};
    }
    case SyncKind::Groups:
      for (int32_t group = 0; group < replicas_; ++group) {
        std::set<int32_t> members;
        for (const int32_t one : live) {
          if (mode_.groups[static_cast<size_t>(one)] == group) members.insert(one);
        }
        const bool ready = std::includes(here.begin(), here.end(), members.begin(), members.end());
        if (!members.empty() && ready) return members;
      }
      return {};
    case SyncKind::Ring:
      for (const int32_t one : live) {
        if (ring_parent(one) == one && here.count(one) == 0) return {};
      }
      return here;
  }
  return {};
}

Decided ReferenceRule::follow(Decided decided) {
  const auto enough = [&] {
    const auto live = static_cast<size_t>(replicas_) - lost_.size();
    return !waiting_.empty() && waiting_.size() >= std::min<size_t>(live, size_t(mode_.count));
  };
  if (open_ && !enough()) open_ = over_ = false;
  for (std::set<int32_t> members = next(); !members.empty(); members = next()) {
    Update update{number_++, version_, {}, {}};
    ++version_.value;
    for (const int32_t member : members) {
      const auto offer = std::find_if(waiting_.begin(), waiting_.end(),
                                      [&](const Offer& of) { return of.replica.value == member; });
      update.members.push_back(*offer);
      update.parents.push_back({mode_.kind == SyncKind::Ring ? ring_parent(member) : member});
      waiting_.erase(offer);
      before_[member] = 'a';
    }
    decided.updates.push_back(update);
    open_ = over_ = false;
  }
  if (mode_.kind == SyncKind::Grace && !open_ && enough()) {
    open_ = true;
    decided.window = OpenWindow{windows_++, mode_.window};
  }
  std::set<int32_t> busy = lost_;
  for (const auto& [replica, work] : computing_) busy.insert(replica);
  for (const Offer& offer : waiting_) busy.insert(offer.replica.value);
  for (int32_t i = 0; i < replicas_; ++i) {
    bool allowed = busy.count(i) == 0;
    for (int32_t other = 0; other < replicas_; ++other) {
      if (!mode_.bound || lost_.count(other) > 0) continue;
      allowed = allowed && clock_.at(i) - clock_.at(other) <= *mode_.bound;
    }
    if (!allowed) continue;
    const int64_t share =
        mode_.kind == SyncKind::Rebalanced ? mode_.shares[static_cast<size_t>(i)] : micros_;
    const int32_t steps = mode_.local_steps;
    computing_[i] = {{{i}, next_iteration_[i], version_, {share * steps}}, steps};
    decided.released.push_back(computing_[i]);
  }
  return decided;
}

}  // namespace tenuto
