#include "sync/servers/replica_part.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"

namespace tenuto::servers {

ReplicaPart::ReplicaPart(PeerId self, StageId stage) : self_(self), stage_(stage) {}

template <class Body>
void ReplicaPart::send(PeerId to, Version version, Body body) {
  messages_.push_back({{membership_.epoch, self_, to, version}, std::move(body)});
}

Status ReplicaPart::handle(const Message& message) {
  const Header& header = message.header;
  if (const auto* body = std::get_if<Enter>(&message.body)) return enter(header, body->membership);
  const bool is_keeper = contains(keepers_of(membership_), header.from);
  const bool is_part = is_other_part(header.from), is_decider = header.from == membership_.decider;
  if (header.epoch != membership_.epoch || header.to != self_ ||
      (!is_keeper && !is_part && !is_decider)) {
    ++refused_;
    return ok();
  }
  const auto* assign = std::get_if<Assign>(&message.body);
  if (assign != nullptr && is_decider) return take_assignment(header, *assign);
  const auto* relayed = std::get_if<Relayed>(&message.body);
  if (relayed != nullptr && is_part) return pass_on(header, *relayed);
  const auto* parameters = std::get_if<Parameters>(&message.body);
  if (parameters != nullptr && is_keeper) return take_parameters(header, *parameters);
  return invalid(
      cat("servers: peer ", header.from, " sent part ", self_, " what is not for a part"));
}

Status ReplicaPart::enter(const Header& header, const Membership& membership) {
  if (membership.epoch <= membership_.epoch || membership.epoch != header.epoch ||
      membership.decider != header.from) {
    ++refused_;
    return ok();
  }
  if (const Status fault = check(membership); !fault.ok()) return fault;
  const auto stage = static_cast<size_t>(stage_.value);
  const bool belongs = std::any_of(membership.replicas.begin(), membership.replicas.end(),
                                   [&](const std::vector<PeerId>& parts) {
                                     return stage < parts.size() && parts[stage] == self_;
                                   });
  if (!belongs) {
    return invalid(cat("servers: part ", self_, " is not one of stage ", stage_,
                       " in the members of epoch ", membership.epoch));
  }
  membership_ = membership;
  ranges_ = ranges_of(membership_, stage_);
  started_ = false;
  // What was not sent yet belongs to the epoch before.
  messages_.clear();
  send(membership_.decider, work_ ? work_->offer.version : Version{}, PartReport{});
  return ok();
}

Status ReplicaPart::take_assignment(const Header& header, const Assign& assign) {
  if (assign.work && assign.work->offer.version != header.version) {
    return invalid(cat("servers: part ", self_, " got work ", assign.work->serial, " on version ",
                       assign.work->offer.version.value, " in a message of version ",
                       header.version.value));
  }
  if (assign.parent && !is_other_part(*assign.parent)) {
    return invalid(cat("servers: part ", self_, " expected the part of stage ", stage_,
                       " of another replica as its parent, found peer ", *assign.parent));
  }
  if (assign.work != work_) {
    work_ = assign.work;
    read_ = false;
    parameters_.assign(ranges_.size(), nullptr);
    gradients_.clear();
  }
  have_ = assign.have;
  parent_ = assign.parent;
  started_ = true;
  if (!work_) return ok();
  if (read_) send(membership_.decider, work_->offer.version, Read{work_->serial});
  for (size_t i = 0; i < ranges_.size() && !read_; ++i) {
    if (parameters_[i] == nullptr) send(kept(i).keepers.front(), work_->offer.version, Fetch{});
  }
  send_gradients();
  return ok();
}

Status ReplicaPart::take_parameters(const Header& header, const Parameters& body) {
  size_t range = 0;
  while (range < ranges_.size() && kept(range).keepers.front() != header.from) ++range;
  if (range == ranges_.size() || !work_ || read_ || header.version != work_->offer.version ||
      size_of(body.payload) != size_of(kept(range).range)) {
    return invalid(cat("servers: part ", self_, " got ", size_of(body.payload).count,
                       " bytes of parameters of version ", header.version.value, " from keeper ",
                       header.from, ", for which it has not asked"));
  }
  parameters_[range] = body.payload;
  read_ = !contains(parameters_, nullptr);
  if (read_) send(membership_.decider, header.version, Read{work_->serial});
  return ok();
}

Status ReplicaPart::offer(int64_t serial, std::vector<Payload> gradients) {
  if (!work_ || work_->serial != serial) return ok();
  bool are_right = is_ready() && gradients.size() == ranges_.size();
  for (size_t i = 0; i < gradients.size() && are_right; ++i) {
    are_right = size_of(gradients[i]) == size_of(kept(i).range);
  }
  if (!are_right) {
    return invalid(cat("servers: part ", self_, " expected one gradient of work ", serial,
                       " for each of ", ranges_.size(), " ranges, of their sizes, found ",
                       gradients.size()));
  }
  gradients_ = std::move(gradients);
  // The parameters are not needed any more.
  parameters_.assign(ranges_.size(), nullptr);
  if (started_) send_gradients();
  return ok();
}

void ReplicaPart::send_gradients() {
  if (gradients_.empty()) return;
  const Version version = work_->offer.version;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    std::vector<PeerId> keepers = kept(i).keepers;
    std::erase_if(keepers, [&](PeerId keeper) { return contains(have_, keeper); });
    if (!parent_) {
      for (const PeerId keeper : keepers) {
        send(keeper, version, Gradient{work_->serial, gradients_[i]});
      }
    } else if (!keepers.empty()) {
      const auto range = static_cast<int32_t>(ranges_[i]);
      send(*parent_, version, Relayed{work_->serial, range, std::move(keepers), gradients_[i]});
    }
  }
}

// The part of this stage of another replica.
bool ReplicaPart::is_other_part(PeerId peer) const {
  const auto stage = static_cast<size_t>(stage_.value);
  return peer != self_ && std::any_of(membership_.replicas.begin(), membership_.replicas.end(),
                                      [&](const std::vector<PeerId>& parts) {
                                        return stage < parts.size() && parts[stage] == peer;
                                      });
}

// The sender was given its work in this epoch, so all members have reported.
Status ReplicaPart::pass_on(const Header& header, const Relayed& relayed) {
  const bool is_known = relayed.range >= 0 && relayed.range < std::ssize(membership_.ranges);
  bool fits = false;
  if (is_known) {
    const KeptRange& to = membership_.ranges[static_cast<size_t>(relayed.range)];
    fits = to.range.stage == stage_ && size_of(relayed.payload) == size_of(to.range) &&
           relayed.keepers.size() <= to.keepers.size() &&
           std::all_of(relayed.keepers.begin(), relayed.keepers.end(),
                       [&](PeerId keeper) { return contains(to.keepers, keeper); });
  }
  if (!fits) {
    return invalid(cat("servers: part ", self_, " of stage ", stage_,
                       " expected a gradient to pass on for the keepers of a range of its stage, "
                       "found ",
                       size_of(relayed.payload).count, " bytes for ", relayed.keepers.size(),
                       " keepers of range ", relayed.range, " of peer ", header.from));
  }
  for (const PeerId keeper : relayed.keepers) {
    send(keeper, header.version, Gradient{relayed.serial, relayed.payload});
  }
  return ok();
}

std::vector<Message> ReplicaPart::take_messages() { return std::exchange(messages_, {}); }

}  // namespace tenuto::servers
