#include "parameter_server/roster.h"

#include <algorithm>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/contains.h"
#include "base/number.h"
#include "base/text.h"

namespace tenuto::servers {

Status check(const PlacedMembers& placed) {
  if (const Status fault = check(placed.members); !fault.ok()) return fault;
  std::vector<PeerId> peers = peers_of(placed.members);
  peers.push_back(placed.members.decider);
  for (const PeerId peer : peers) {
    const auto place = placed.places.find(peer);
    if (place != placed.places.end() && place->second.value >= 0) continue;
    return invalid(cat("the members of epoch ", placed.members.epoch,
                       ": expected a process in which peer ", peer, " lives, found none"));
  }
  return ok();
}

// ---- text ------------------------------------------------------------------------------------

std::string to_text(const PlacedMembers& placed) {
  const auto peer_text = [&](PeerId peer) { return cat(" ", peer, "@", placed.places.at(peer)); };
  const Membership& members = placed.members;
  std::string text = cat("epoch ", members.epoch, " decider", peer_text(members.decider));
  for (const KeptRange& kept : members.ranges) {
    const ElementRange& range = kept.range;
    text += cat(" range ", range.stage, " ", range.begin, " ", range.end);
    for (const PeerId keeper : kept.keepers) text += peer_text(keeper);
  }
  for (const std::vector<PeerId>& parts : members.replicas) {
    text += " replica";
    for (const PeerId part : parts) text += peer_text(part);
  }
  return text;
}

namespace {

// Reads the words of a line one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : stream_(std::string(text)) { advance(); }

  bool is(std::string_view word) const { return has_word_ && word_ == word; }
  bool at_end() const { return !has_word_; }
  // Whether the next word is a peer with its place.
  bool at_peer() const { return has_word_ && word_.find('@') != std::string::npos; }

  // The next word is this one, and is left behind.
  void expect(std::string_view word) {
    if (!is(word)) fail(word);
    advance();
  }
  template <class Number>
  Number number() {
    const auto found = has_word_ ? number_in<Number>(word_) : std::optional<Number>();
    if (!found) fail("a number");
    advance();
    return found.value_or(Number{});
  }
  // Notes where the peer lives.
  PeerId peer(std::map<PeerId, WorkerId>& places) {
    const size_t sign = word_.find('@');
    const auto peer = number_in<int32_t>(std::string_view(word_).substr(0, sign));
    const auto process =
        number_in<int32_t>(std::string_view(word_).substr(std::min(sign, word_.size() - 1) + 1));
    if (!at_peer() || !peer || process.value_or(-1) < 0) fail("PEER@PROCESS");
    advance();
    if (fault_) return {};
    places[{*peer}] = {*process};
    return {*peer};
  }

  const std::optional<Error>& fault() const { return fault_; }

 private:
  void advance() { has_word_ = !fault_ && static_cast<bool>(stream_ >> word_); }
  void fail(std::string_view expected) {
    if (fault_) return;
    fault_ = Error{Code::Corrupt, Reach::Call,
                   cat("members as text: expected ", expected, ", found ",
                       has_word_ ? cat("'", word_, "'") : "the end of the line")};
    has_word_ = false;
  }

  std::istringstream stream_;
  std::string word_;
  bool has_word_ = false;
  std::optional<Error> fault_;
};

}  // namespace

Result<PlacedMembers> placed_members_from_text(std::string_view text) {
  PlacedMembers placed;
  Membership& members = placed.members;
  Words words(text);
  words.expect("epoch");
  members.epoch = words.number<int64_t>();
  words.expect("decider");
  members.decider = words.peer(placed.places);
  while (words.is("range")) {
    words.expect("range");
    KeptRange kept;
    kept.range.stage.value = words.number<int32_t>();
    kept.range.begin = words.number<int64_t>();
    kept.range.end = words.number<int64_t>();
    while (words.at_peer()) kept.keepers.push_back(words.peer(placed.places));
    members.ranges.push_back(std::move(kept));
  }
  while (!words.at_end()) {
    words.expect("replica");
    members.replicas.emplace_back();
    while (words.at_peer()) members.replicas.back().push_back(words.peer(placed.places));
  }
  if (words.fault()) return *words.fault();
  if (const Status fault = check(members); !fault.ok()) return fault.error();
  return placed;
}

// ---- the automaton ---------------------------------------------------------------------------

Result<Roster> Roster::make(const RosterStart& start) {
  if (start.replicas < 1) {
    return invalid(
        cat("a run with server shards needs at least one replica, found ", start.replicas));
  }
  // Members that differ from real ones only in their peers.
  Membership members{1, {0}, {}, {}};
  for (size_t i = 0; i < start.ranges.size(); ++i) {
    members.ranges.push_back({start.ranges[i], {{static_cast<int32_t>(i + 1)}}});
  }
  if (const Status fault = check(members); !fault.ok()) return fault.error();
  return Roster(start);
}

// Requires: ranges that were checked.
Roster::Roster(const RosterStart& start)
    : stages_(start.ranges.back().stage.value + 1), replicas_(static_cast<size_t>(start.replicas)) {
  for (const ElementRange& range : start.ranges) ranges_.push_back({range, {}});
}

Status Roster::join(const RunProcess& process) {
  if (process.number.value < 0 || used_.count(process.number) > 0) {
    return invalid(cat("process ", process.number,
                       " joins a run: expected a number that no process has had before"));
  }
  if (process.kind == ProcessKind::Part) {
    const bool is_known = process.replica.value >= 0 &&
                          process.replica.value < std::ssize(replicas_) &&
                          process.stage.value >= 0 && process.stage.value < stages_;
    if (!is_known) {
      return invalid(cat("process ", process.number, " is stage ", process.stage, " of replica ",
                         process.replica, " in a run of ", replicas_.size(), " replicas of ",
                         stages_, " stages"));
    }
    for (const auto& [number, other] : processes_) {
      if (other.kind != ProcessKind::Part || other.replica != process.replica ||
          other.stage != process.stage) {
        continue;
      }
      return invalid(cat("process ", process.number, " is stage ", process.stage, " of replica ",
                         process.replica, ", and so is process ", number,
                         ": expected a part whose process is lost"));
    }
  }
  used_.insert(process.number);
  processes_[process.number] = process;
  return ok();
}

void Roster::lose(WorkerId process) {
  if (processes_.erase(process) == 0) return;
  std::erase_if(places_, [&](const auto& one) { return one.second == process; });
}

PeerId Roster::add_peer(WorkerId process) {
  const PeerId peer{next_peer_++};
  places_[peer] = process;
  return peer;
}

// Ranges that the process keeps; `first_only`: only those of which it is the server shard.
int64_t Roster::kept_by(WorkerId process, bool first_only) const {
  int64_t count = 0;
  for (const Kept& kept : ranges_) {
    for (size_t i = 0; i < kept.keepers.size() && (i == 0 || !first_only); ++i) {
      const auto place = places_.find(kept.keepers[i]);
      count += place != places_.end() && place->second == process ? 1 : 0;
    }
  }
  return count;
}

// The server that gets another keeper of this range: the one with the least to do, where a server
// shard counts before a standby, because it also answers reads. None = all keep it, or there is no
// server.
std::optional<WorkerId> Roster::server_for(const Kept& kept) const {
  std::optional<WorkerId> best;
  std::tuple<int64_t, int64_t> least;
  for (const auto& [number, process] : processes_) {
    const bool keeps_it =
        std::any_of(kept.keepers.begin(), kept.keepers.end(),
                    [&, own = number](PeerId keeper) { return places_.at(keeper) == own; });
    if (process.kind != ProcessKind::Server || keeps_it) continue;
    const std::tuple load(kept_by(number, true), kept_by(number, false));
    if (best && load >= least) continue;
    best = number;
    least = load;
  }
  return best;
}

Status Roster::find_keepers() {
  const bool has_begun = newest_.members.epoch > 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    Kept& kept = ranges_[i];
    std::erase_if(kept.keepers, [&](PeerId keeper) { return !lives(keeper); });
    if (!kept.keepers.empty()) continue;
    if (has_begun) {
      return Error{Code::Infeasible, Reach::Job,
                   cat("all processes that had range ", i,
                       " of the parameters are lost: resume from a checkpoint")};
    }
    const std::optional<WorkerId> server = server_for(kept);
    if (!server) {
      return Error{Code::Infeasible, Reach::Call,
                   "no process can keep parameters yet: expected at least one server"};
    }
    kept.keepers.push_back(add_peer(*server));
  }
  // Standbys after all server shards, so that these are spread over the servers first.
  for (Kept& kept : ranges_) {
    if (kept.keepers.size() > 1) continue;
    const std::optional<WorkerId> server = server_for(kept);
    if (server) kept.keepers.push_back(add_peer(*server));
  }
  return ok();
}

// Processes that do nothing else come first. Requires: a server, since each range has a keeper
void Roster::find_decider() {
  for (const ProcessKind kind : {ProcessKind::Decider, ProcessKind::Server}) {
    for (const auto& [number, process] : processes_) {
      if (lives(decider_)) return;
      if (process.kind == kind) decider_ = add_peer(number);
    }
  }
}

// A replica whose stages all have a process takes part. If one of them is another process than
// before, all its parts are new.
void Roster::find_parts() {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    std::vector<PeerId>& parts = replicas_[i];
    const bool is_whole = !parts.empty() && std::all_of(parts.begin(), parts.end(),
                                                        [&](PeerId part) { return lives(part); });
    if (is_whole) continue;
    for (const PeerId part : parts) places_.erase(part);
    parts.clear();
    std::map<StageId, WorkerId> found;
    for (const auto& [number, process] : processes_) {
      const bool is_its =
          process.kind == ProcessKind::Part && process.replica.value == static_cast<int32_t>(i);
      if (is_its) found[process.stage] = number;
    }
    if (std::ssize(found) < stages_) continue;
    for (const auto& [stage, number] : found) parts.push_back(add_peer(number));
  }
}

Result<std::optional<PlacedMembers>> Roster::next() {
  if (const Status fault = find_keepers(); !fault.ok()) return fault.error();
  find_decider();
  find_parts();
  PlacedMembers placed{{newest_.members.epoch, decider_, {}, replicas_}, places_};
  for (const Kept& kept : ranges_) placed.members.ranges.push_back({kept.range, kept.keepers});
  if (placed == newest_) return std::optional<PlacedMembers>();
  ++placed.members.epoch;
  if (const Status fault = check(placed.members); !fault.ok()) return fault.error();
  newest_ = placed;
  return std::optional(std::move(placed));
}

}  // namespace tenuto::servers
