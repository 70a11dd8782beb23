#include "parameter_server/roster.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/contains.h"
#include "base/number.h"
#include "base/text.h"
#include "parameter_server/keeper_placement.h"

namespace tenuto::servers {

namespace {

constexpr size_t kMostKeepers = 2;  // of a range

std::string host_name_of(const RunProcess& process) {
  return process.host.empty() ? cat("of process ", process.number) : process.host;
}

}  // namespace

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
    : stages_(start.ranges.back().stage.value + 1),
      kept_by_parts_(start.kept_by_parts),
      replicas_(static_cast<size_t>(start.replicas)) {
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

bool Roster::keeps(WorkerId process, const Kept& kept) const {
  return std::any_of(kept.keepers.begin(), kept.keepers.end(),
                     [&](PeerId keeper) { return places_.at(keeper) == process; });
}

void Roster::add_keeper(WorkerId process, Kept& kept) {
  const PeerId keeper = add_peer(process);
  since_[keeper] = newest_.members.epoch + 1;
  kept.keepers.push_back(keeper);
}

void Roster::remove_keeper(size_t index, Kept& kept) {
  const PeerId keeper = kept.keepers[index];
  kept.keepers.erase(kept.keepers.begin() + static_cast<std::ptrdiff_t>(index));
  since_.erase(keeper);
  places_.erase(keeper);
}

void Roster::note_filled(int64_t epoch) {
  if (epoch <= newest_.members.epoch) filled_ = std::max(filled_, epoch);
}

// Of the processes that keep any.
std::map<WorkerId, Roster::Load> Roster::loads() const {
  std::map<WorkerId, Load> all;
  for (const Kept& kept : ranges_) {
    for (size_t i = 0; i < kept.keepers.size(); ++i) {
      const auto place = places_.find(kept.keepers[i]);
      if (place == places_.end() || kept.keepers[i] == kept.leaving) continue;
      Load& load = all[place->second];
      ++load.all;
      load.first += i == 0 ? 1 : 0;
    }
  }
  return all;
}

// Whether some other process on this one's host keeps the range.
bool Roster::shares_host(WorkerId process, const Kept& kept) const {
  const std::string host = host_name_of(processes_.at(process));
  return std::any_of(kept.keepers.begin(), kept.keepers.end(), [&](PeerId keeper) {
    const WorkerId other = places_.at(keeper);
    return other != process && host_name_of(processes_.at(other)) == host;
  });
}

// Says on which hosts the keepers of servers shall be, if some are missing or lost.
void Roster::place_on_hosts() {
  wanted_hosts_.clear();
  if (kept_by_parts_) return;
  std::vector<std::string> servers;
  std::vector<PartHost> parts;
  std::map<std::string, int64_t> ports;
  for (const auto& [number, process] : processes_) {
    const std::string host = host_name_of(process);
    if (process.kind == ProcessKind::Server) servers.push_back(host);
    if (process.kind == ProcessKind::Part) parts.push_back({host, process.stage});
    ports[host] = std::max(ports[host], process.port);
  }
  const size_t keepers = std::min(kMostKeepers, servers.size());
  const bool is_as_before =
      std::equal(ranges_.begin(), ranges_.end(), newest_.members.ranges.begin(),
                 newest_.members.ranges.end(), [&](const Kept& kept, const KeptRange& before) {
                   return kept.keepers == before.keepers && kept.keepers.size() >= keepers;
                 });
  if (servers.empty() || is_as_before) return;
  std::vector<RangeHosts> ranges;
  for (const Kept& kept : ranges_) {
    RangeHosts of{kept.range, {}};
    for (const PeerId keeper : kept.keepers) {
      of.hosts.push_back(host_name_of(processes_.at(places_.at(keeper))));
    }
    ranges.push_back(std::move(of));
  }
  KeeperPlacement made =
      place_keepers(ranges, servers, parts, static_cast<int32_t>(replicas_.size()), ports);
  wanted_hosts_ = std::move(made.hosts);
  placement_ = std::move(made.reason);
}

// Where the next keeper of the range shall be; empty = anywhere.
std::string Roster::wanted_host(const Kept& kept) const {
  if (wanted_hosts_.empty()) return {};
  const std::vector<std::string>& of = wanted_hosts_[static_cast<size_t>(&kept - ranges_.data())];
  return kept.keepers.size() < of.size() ? of[kept.keepers.size()] : std::string();
}

// Who should keep ranges now, and whose replica is whole.
void Roster::find_ring() {
  in_ring_.clear();
  whole_.clear();
  if (!kept_by_parts_) return;
  std::map<ReplicaId, int32_t> parts;
  std::set<StageId> has_ring;  // stages of which a part of the ring lives
  for (const auto& [number, process] : processes_) {
    if (process.kind != ProcessKind::Part) continue;
    if (++parts[process.replica] == stages_) whole_.insert(process.replica);
    if (contains(ring_, process.replica)) has_ring.insert(process.stage);
  }
  for (const auto& [number, process] : processes_) {
    if (process.kind != ProcessKind::Part) continue;
    const bool is_wanted = contains(ring_, process.replica) || has_ring.count(process.stage) == 0;
    if (is_wanted) in_ring_.insert(number);
  }
}

// The process that gets another keeper of this range: the one with the least to do, where a first
// keeper counts before a standby, because it also answers reads. Parts of the ring come before
// others, and of these the parts of whole replicas, and then those on another host than the other
// keeper. A server has to be on the host where the keeper shall be. None = all keep it, or nobody
// can.
std::optional<WorkerId> Roster::keeper_for(const Kept& kept) const {
  const ProcessKind kind = kept_by_parts_ ? ProcessKind::Part : ProcessKind::Server;
  std::map<WorkerId, Load> loads_now = loads();
  const std::string host = wanted_host(kept);
  std::optional<WorkerId> best;
  std::tuple<bool, bool, bool, int64_t, int64_t> least;
  for (const auto& [number, process] : processes_) {
    const bool is_able = !kept_by_parts_ || process.stage == kept.range.stage;
    if (process.kind != kind || !is_able || keeps(number, kept)) continue;
    if (!host.empty() && host_name_of(process) != host) continue;
    const Load load = loads_now[number];
    const std::tuple cost(kept_by_parts_ && in_ring_.count(number) == 0,
                          kept_by_parts_ && whole_.count(process.replica) == 0,
                          kept_by_parts_ && shares_host(number, kept), load.first, load.all);
    if (best && cost >= least) continue;
    best = number;
    least = cost;
  }
  return best;
}

Status Roster::find_keepers() {
  const bool has_begun = newest_.members.epoch > 0;
  std::erase_if(since_, [&](const auto& one) { return !lives(one.first); });
  for (size_t i = 0; i < ranges_.size(); ++i) {
    Kept& kept = ranges_[i];
    forget_lost(kept);
    if (!kept.keepers.empty() || !has_begun) continue;
    return Error{Code::Infeasible, Reach::Job,
                 cat("all processes that had range ", i,
                     " of the parameters are lost: resume from a checkpoint")};
  }
  place_on_hosts();
  for (Kept& kept : ranges_) {
    if (!kept.keepers.empty()) continue;
    const std::optional<WorkerId> process = keeper_for(kept);
    if (!process) {
      return Error{
          Code::Infeasible, Reach::Call,
          cat("no process can keep parameters yet: expected at least one ",
              kept_by_parts_ ? cat("part of stage ", kept.range.stage) : std::string("server"))};
    }
    add_keeper(*process, kept);
  }
  const bool hands_over = kept_by_parts_ && hands_over_;
  for (size_t i = 0; i < ranges_.size() && hands_over; ++i) end_leaving(ranges_[i]);
  for (size_t i = 0; i < ranges_.size() && hands_over; ++i) hand_over(ranges_[i]);
  // Standbys after all first keepers, so that these are spread over the processes first.
  for (Kept& kept : ranges_) {
    if (kept.keepers.size() > 1) continue;
    const std::optional<WorkerId> process = keeper_for(kept);
    if (process) add_keeper(*process, kept);
  }
  if (!hands_over) return ok();
  // Before the run has begun nobody has anything that would have to be moved.
  for (int32_t i = 0; i < stages_; ++i) balance({i}, has_begun ? kMostAhead : 1);
  while (change_first()) {
  }
  return ok();
}

// Leaves out keepers that are lost. Of three, the one that was to leave stays then.
void Roster::forget_lost(Kept& kept) const {
  std::erase_if(kept.keepers, [&](PeerId keeper) { return !lives(keeper); });
  if (kept.keepers.size() <= kMostKeepers) kept.leaving.reset();
}

// The process takes the place of a keeper, which goes at once if it does not have the range itself,
// or was never told of it.
//
// Requires: two keepers, of which the other one has the range
void Roster::replace(size_t index, WorkerId to, Kept& kept) {
  const bool was_told = since_.at(kept.keepers[index]) <= newest_.members.epoch;
  if (was_told && is_filled(kept.keepers[index])) {
    kept.leaving = kept.keepers[index];
  } else {
    remove_keeper(index, kept);
  }
  add_keeper(to, kept);
}

void Roster::end_leaving(Kept& kept) {
  if (!kept.leaving || !is_filled(kept.keepers.back())) return;
  const auto at = std::find(kept.keepers.begin(), kept.keepers.end(), *kept.leaving);
  remove_keeper(static_cast<size_t>(at - kept.keepers.begin()), kept);
  kept.leaving.reset();
}

// Replaces a keeper outside of the ring if the other one has the range and a part of the ring can
// take its place. The standby goes first, so that reads go to the same keeper for longer.
void Roster::hand_over(Kept& kept) {
  for (size_t i = kept.keepers.size(); i-- > 0;) {
    if (in_ring_.count(places_.at(kept.keepers[i])) > 0) continue;
    if (kept.keepers.size() != kMostKeepers || !is_filled(kept.keepers[1 - i])) continue;
    const std::optional<WorkerId> next = keeper_for(kept);
    if (next && in_ring_.count(*next) > 0) replace(i, *next, kept);
  }
}

// Gives ranges of the part that keeps the most to the one that keeps the fewest, as far as needed.
void Roster::balance(StageId stage, int64_t most_ahead) {
  while (true) {
    std::map<WorkerId, Load> loads_now = loads();
    WorkerId most, fewest;
    for (const WorkerId number : in_ring_) {
      const RunProcess& process = processes_.at(number);
      if (process.stage != stage) continue;
      const int64_t count = loads_now[number].all;
      if (most.value < 0 || count > loads_now[most].all) most = number;
      if (whole_.count(process.replica) == 0) continue;
      if (fewest.value < 0 || count < loads_now[fewest].all) fewest = number;
    }
    if (fewest.value < 0 || loads_now[most].all - loads_now[fewest].all <= most_ahead) return;
    if (!move_range(most, fewest)) return;
  }
}

// Whether both keepers of the range would be on one host if this one was replaced by the process,
// and are not now.
bool Roster::comes_together(size_t index, WorkerId to, const Kept& kept) const {
  const auto host_of = [&](size_t one) {
    return host_name_of(processes_.at(places_.at(kept.keepers[one])));
  };
  const std::string other = host_of(1 - index);
  return host_name_of(processes_.at(to)) == other && host_of(index) != other;
}

// False when the process has no range that can be moved now. Standbys are moved before first
// keepers.
bool Roster::move_range(WorkerId from, WorkerId to) {
  for (const size_t index : {size_t{1}, size_t{0}}) {
    for (Kept& kept : ranges_) {
      if (kept.keepers.size() != kMostKeepers || places_.at(kept.keepers[index]) != from) continue;
      if (!is_filled(kept.keepers[1 - index]) || keeps(to, kept)) continue;
      if (comes_together(index, to, kept)) continue;
      replace(index, to, kept);
      return true;
    }
  }
  return false;
}

// Lets the other keeper of a range answer its reads, where both have the range: if only that one is
// in the ring, or if it answers for two ranges less. True = there was such a range.
bool Roster::change_first() {
  std::map<WorkerId, Load> loads_now = loads();
  for (Kept& kept : ranges_) {
    if (kept.keepers.size() != kMostKeepers) continue;
    if (!is_filled(kept.keepers[0]) || !is_filled(kept.keepers[1])) continue;
    const WorkerId first = places_.at(kept.keepers[0]), other = places_.at(kept.keepers[1]);
    const bool first_is_in = in_ring_.count(first) > 0, other_is_in = in_ring_.count(other) > 0;
    const bool has_less = loads_now[other].first + 1 < loads_now[first].first;
    if (first_is_in == other_is_in ? !has_less : first_is_in) continue;
    std::swap(kept.keepers[0], kept.keepers[1]);
    return true;
  }
  return false;
}

// Processes that do nothing else come first, then servers, then parts of the ring.
//
// Requires: a server, or a part that may decide, since each range has a keeper
void Roster::find_decider() {
  const auto choose = [&](ProcessKind kind, bool in_ring_only) {
    for (const auto& [number, process] : processes_) {
      if (lives(decider_)) return;
      if (process.kind != kind || (in_ring_only && in_ring_.count(number) == 0)) continue;
      decider_ = add_peer(number);
    }
  };
  choose(ProcessKind::Decider, false);
  choose(ProcessKind::Server, false);
  if (kept_by_parts_) choose(ProcessKind::Part, true);
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
  find_ring();
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
