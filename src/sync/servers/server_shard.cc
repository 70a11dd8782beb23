#include "sync/servers/server_shard.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/contains.h"
#include "base/text.h"

namespace tenuto::servers {

namespace {

// The largest mass of an update that a keeper takes: far from an overflow.
constexpr int64_t kMostMass = int64_t{1} << 53;

// The first mass of an offer that is out of range, alone or with those before it, or zero if there
// is no offer; none = the update can be taken.
std::optional<int64_t> wrong_mass(const Update& update) {
  int64_t left = kMostMass;
  for (const Offer& member : update.members) {
    const int64_t micros = member.mass.micros;
    if (micros < 1 || micros > left) return micros;
    left -= micros;
  }
  if (update.members.empty()) return 0;
  return std::nullopt;
}

// Whether there is a work for each offer, with an outer step that a mode may have.
bool has_right_works(const DecidedUpdate& decided) {
  return decided.works.size() == decided.update.members.size() &&
         std::all_of(decided.works.begin(), decided.works.end(),
                     [](const Work& work) { return is_in_range(work.outer); });
}

}  // namespace

ServerShard::ServerShard(const ShardStart& start, std::unique_ptr<ParameterStore> store)
    : start_(start),
      store_(std::move(store)),
      filled_(start.is_filled),
      version_(start.version),
      tally_(start.tally) {}

template <class Body>
void ServerShard::send(PeerId to, Version version, Body body) {
  messages_.push_back({{membership_.epoch, start_.self, to, version}, std::move(body)});
}

Status ServerShard::handle(const Message& message) {
  const Header& header = message.header;
  if (const auto* body = std::get_if<Enter>(&message.body)) return enter(header, body->membership);
  const bool is_peer = contains(peers_of(membership_), header.from);
  if (header.epoch != membership_.epoch || header.to != start_.self ||
      (!is_peer && header.from != membership_.decider)) {
    ++refused_;
    return ok();
  }
  if (const auto* record = std::get_if<Record>(&message.body)) {
    return take_record(header, *record);
  }
  if (const auto* gradient = std::get_if<Gradient>(&message.body)) {
    return take_gradient(header, *gradient);
  }
  if (std::holds_alternative<Fetch>(message.body)) return answer(header.from, header.version);
  if (const auto* fill = std::get_if<Fill>(&message.body)) return take_fill(header, *fill);
  return invalid(cat("servers: peer ", header.from, " sent keeper ", start_.self,
                     " what is not for a keeper"));
}

// Between its report and the first record of the epoch a keeper changes nothing, so that what it
// reports stays true.
Status ServerShard::enter(const Header& header, const Membership& membership) {
  if (membership.epoch <= membership_.epoch || membership.epoch != header.epoch ||
      membership.decider != header.from) {
    ++refused_;
    return ok();
  }
  if (const Status fault = check(membership); !fault.ok()) return fault;
  const auto own =
      std::find_if(membership.ranges.begin(), membership.ranges.end(), [&](const KeptRange& kept) {
        return kept.range == start_.range && contains(kept.keepers, start_.self);
      });
  if (own == membership.ranges.end()) {
    return invalid(cat("servers: keeper ", start_.self,
                       " is not one of its range in the members of epoch ", membership.epoch));
  }
  membership_ = membership;
  keepers_ = own->keepers;
  has_record_ = false;
  waiting_.clear();
  // What was not sent yet belongs to the epoch before.
  messages_.clear();
  KeeperReport report{filled_, record_, {}};
  for (const auto& [serial, gradient] : gradients_) report.stored.push_back(serial);
  send(membership_.decider, version_, std::move(report));
  return ok();
}

Status ServerShard::take_record(const Header& header, const Record& record) {
  if (header.from != membership_.decider || header.version != record.version ||
      (filled_ && version_ < record.committed) || version_ > record.version ||
      record.save > record.version) {
    return invalid(cat("servers: keeper ", start_.self, " is at version ", version_.value,
                       ": expected a record of the decider whose versions fit, found ",
                       record.committed.value, " to ", record.version.value, " with ",
                       record.save.value, " to be saved, of peer ", header.from,
                       " in a message of version ", header.version.value));
  }
  for (const DecidedUpdate& one : record.updates) {
    const std::optional<int64_t> wrong = wrong_mass(one.update);
    if (!wrong && has_right_works(one)) continue;
    const std::string what =
        wrong ? cat("expected a mass from 1 to ", kMostMass,
                    " of each offer and of all together, found ", *wrong)
              : cat("expected a work for each of ", one.update.members.size(),
                    " offers, with an outer step in range, found ", one.works.size(), " works");
    return invalid(cat("servers: keeper ", start_.self, " cannot take update ", one.update.number,
                       " on version ", one.update.version.value, " of decider ", header.from, ": ",
                       what));
  }
  record_ = record;
  prune();
  note_save();
  if (!has_record_) fill_others();
  has_record_ = true;
  return proceed();
}

// Of several keepers that have the range, the first one gives it to others.
void ServerShard::fill_others() {
  const auto donor = std::find_if(keepers_.begin(), keepers_.end(), [&](PeerId keeper) {
    return !contains(record_.filling, keeper);
  });
  if (!filled_ || donor == keepers_.end() || *donor != start_.self) return;
  for (const PeerId other : keepers_) {
    if (!contains(record_.filling, other)) {
      continue;
    }
    Fill fill{store_->save(), {}, {}, tally_};
    for (const auto& [version, payload] : kept_) fill.versions.push_back({version, payload});
    for (const auto& [serial, gradient] : gradients_) {
      fill.gradients.push_back({serial, gradient.version, gradient.payload});
    }
    send(other, version_, std::move(fill));
  }
}

// Whether this payload of a message has the size of the range.
Status ServerShard::check_size(const char* what, PeerId from, const Payload& payload) const {
  if (size_of(payload) == size_of(start_.range)) return ok();
  return invalid(cat("servers: keeper ", start_.self, " expected ", what, " of ",
                     size_of(start_.range).count, " bytes, found ", size_of(payload).count,
                     " of peer ", from));
}

Status ServerShard::take_fill(const Header& header, const Fill& fill) {
  if (!contains(keepers_, header.from)) {
    return invalid(
        cat("servers: peer ", header.from, " keeps another range than keeper ", start_.self));
  }
  if (filled_) return ok();
  for (const KeptVersion& one : fill.versions) {
    if (const Status fault = check_size("parameters", header.from, one.payload); !fault.ok()) {
      return fault;
    }
  }
  for (const KeptGradient& one : fill.gradients) {
    if (const Status fault = check_size("a gradient", header.from, one.payload); !fault.ok()) {
      return fault;
    }
  }
  if (const Status fault = store_->load(fill.state); !fault.ok()) return fault;
  filled_ = true;
  version_ = header.version;
  tally_ = fill.tally;
  for (const KeptVersion& one : fill.versions) kept_[one.version] = one.payload;
  for (const KeptGradient& one : fill.gradients) {
    gradients_.insert({one.serial, {one.version, one.payload}});
  }
  send(membership_.decider, version_, Applied{});
  if (!has_record_) return ok();
  prune();
  return proceed();
}

Status ServerShard::take_gradient(const Header& header, const Gradient& gradient) {
  if (const Status fault = check_size("a gradient", header.from, gradient.payload); !fault.ok()) {
    return fault;
  }
  if (is_over(gradient.serial)) return ok();
  const int64_t most = kGradientsPerReplica * std::ssize(membership_.replicas);
  if (gradients_.count(gradient.serial) == 0 && std::ssize(gradients_) >= most) {
    return Error{
        Code::Exhausted, Reach::Call,
        cat("servers: keeper ", start_.self, " has ", most, " gradients, and takes no more")};
  }
  gradients_.insert({gradient.serial, {header.version, gradient.payload}});
  send(membership_.decider, header.version, Stored{gradient.serial});
  return proceed();
}

// Parameters of a version, now or once it is there.
Status ServerShard::answer(PeerId reader, Version version) {
  if (!filled_ || version > version_) {
    waiting_[reader] = version;
    return ok();
  }
  if (version == version_) {
    send(reader, version, Parameters{newest()});
    return ok();
  }
  const auto found = kept_.find(version);
  if (found == kept_.end()) {
    return invalid(cat("servers: peer ", reader, " asks keeper ", start_.self, " for version ",
                       version.value, ", which is not kept any more"));
  }
  send(reader, version, Parameters{found->second});
  return ok();
}

const Payload& ServerShard::newest() {
  if (newest_ == nullptr) newest_ = store_->parameters();
  return newest_;
}

// True when the newest record says that nobody waits for the gradient of this work. A serial
// above those of the record is of a work that the record does not know yet.
bool ServerShard::is_over(int64_t serial) const {
  if (serial > record_.last_serial) return false;
  for (const OpenWork& open : record_.open) {
    if (open.work.serial == serial) return false;
  }
  for (const DecidedUpdate& one : record_.updates) {
    if (filled_ && one.update.version < version_) continue;
    for (const Work& work : one.works) {
      if (work.serial == serial) return false;
    }
  }
  return true;
}

// True when a replica may still ask for this version.
bool ServerShard::is_read(Version version) const {
  return std::any_of(record_.open.begin(), record_.open.end(), [&](const OpenWork& open) {
    return !open.read && open.work.offer.version == version;
  });
}

void ServerShard::prune() {
  std::erase_if(gradients_, [&](const auto& one) { return is_over(one.first); });
  std::erase_if(kept_, [&](const auto& one) { return !is_read(one.first); });
}

// A version that the newest record wants to be written down, unless the range is beyond it.
void ServerShard::note_save() {
  if (record_.save <= noted_) return;
  noted_ = record_.save;
  if (filled_ && record_.save < version_) return;
  SavedState& due = due_[record_.save];
  due.version = record_.save;
  due.mass = record_.save_mass;
  if (record_.version == record_.save) due.record = record_;
}

// Makes the state of the version at which the range is now, if it is to be written down here. A
// standby waits with it, because it may become the first keeper before the next update.
void ServerShard::make_saved() {
  due_.erase(due_.begin(), due_.lower_bound(version_));
  const auto due = due_.find(version_);
  if (due == due_.end() || keepers_.front() != start_.self) return;
  due->second.state = store_->save();
  due->second.tally = tally_;
  saved_.push_back(std::move(due->second));
  due_.erase(due);
}

std::optional<SavedState> ServerShard::take_saved(bool all_committed) {
  if (saved_.empty()) return std::nullopt;
  if (!all_committed && saved_.front().version > record_.committed) return std::nullopt;
  std::optional<SavedState> oldest = std::move(saved_.front());
  saved_.pop_front();
  return oldest;
}

// Answers who waits, and takes all updates that can be taken.
Status ServerShard::proceed() {
  if (!filled_ || !has_record_) return ok();
  while (true) {
    make_saved();
    // Each version is answered as it comes by, before it may have to be dropped.
    const std::map<PeerId, Version> waiting = std::exchange(waiting_, {});
    for (const auto& [reader, version] : waiting) {
      if (const Status fault = answer(reader, version); !fault.ok()) return fault;
    }
    const Result<bool> applied = apply_next();
    if (!applied.ok()) return applied.error();
    if (!applied.value()) return ok();
  }
}

// True when an update was taken; false when none can be.
Result<bool> ServerShard::apply_next() {
  const auto next =
      std::find_if(record_.updates.begin(), record_.updates.end(),
                   [&](const DecidedUpdate& one) { return one.update.version == version_; });
  if (next == record_.updates.end()) return false;
  std::vector<Payload> gradients;
  for (const Work& work : next->works) {
    const auto found = gradients_.find(work.serial);
    if (found == gradients_.end()) return false;
    if (found->second.version != work.offer.version) {
      return invalid(cat("servers: keeper ", start_.self, " has a gradient of version ",
                         found->second.version.value, " for work ", work.serial, ": expected ",
                         work.offer.version.value));
    }
    gradients.push_back(found->second.payload);
  }
  if (is_read(version_)) {
    if (std::ssize(kept_) >= start_.kept_versions) return false;
    kept_[version_] = newest();
  }
  store_->apply(*next, gradients);
  add(tally_, *next);
  newest_.reset();
  for (const Work& work : next->works) gradients_.erase(work.serial);
  version_ = version_ + 1;
  send(membership_.decider, version_, Applied{});
  return true;
}

std::vector<Message> ServerShard::take_messages() { return std::exchange(messages_, {}); }

}  // namespace tenuto::servers
