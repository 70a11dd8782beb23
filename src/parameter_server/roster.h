// The host of a run with server shards: it knows which processes live, and says who keeps which
// range, who decides, and which replicas take part.
//
// Idea:  processes join and are lost. Whenever that changes who belongs to the run, there is
//        another epoch (sync/servers/message.h) with new members. A range that has lost its server
//        shard has its standby as the next one; another process that keeps ranges becomes the new
//        standby. A process that comes back is a new process with new peers.
// Parts: without servers the parts of replicas keep the ranges of their stage: those of the *ring*,
//        or of all replicas. Whoever leaves the ring hands its ranges over: one of the two keepers
//        of a range is replaced at a time, and only if the other one has the range. It stays as a
//        third keeper until its successor has the range, so that two have it at any time. So a
//        handover takes several epochs, each of which begins when all keepers of the one before
//        have their ranges. A process that is new in the ring is given ranges of the process that
//        keeps the most, until none keeps more than kMostAhead ranges more than another one.
// Hosts: two keepers of a range are never on one host if they can be on two, so that the loss of a
//        host loses no range. Servers keep ranges where the ports have the least to do
//        (parameter_server/keeper_placement.h); of the servers of one host, the one with the least
//        ranges gets the next one.
// Right: tests/parameter_server/roster_test.cc plays random deaths and joins.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// Where parts keep ranges: how many more a part of the ring may keep than another one of its stage.
inline constexpr int64_t kMostAhead = 2;

// What a process can do in a run.
enum class ProcessKind : uint8_t {
  Server,   // keeps ranges, and decides if nobody else does
  Decider,  // decides, or waits until it has to
  Part,     // computes one stage of a replica; may keep ranges, and decide (RosterStart)
};

// A process of the run. Its number is never used twice.
struct RunProcess {
  WorkerId number;
  ProcessKind kind = ProcessKind::Server;
  ReplicaId replica;      // Part
  StageId stage;          // Part
  std::string host = {};  // its name; empty = not known: no other process is there
  int64_t port = 0;       // of the host, bytes per second in each direction; 0 = not known
};

// The members of an epoch, and the process in which each peer lives.
struct PlacedMembers {
  Membership members;
  std::map<PeerId, WorkerId> places;
  bool operator==(const PlacedMembers&) const = default;
};

// Whether all members have a place.
//
// Errors: those of check(Membership); Invalid/Call  a peer that lives in no process
Status check(const PlacedMembers& placed);

// As one line: each peer is PEER@PROCESS. A replica that is lost has no peers.
//
//     epoch 3 decider 9@2 range 0 0 1064 1@0 2@1 range 0 1064 2074 3@1 replica 4@3 replica
std::string to_text(const PlacedMembers& placed);

// Reads the line back: the same members.
//
// Errors: those of check; Corrupt/Call  a word that is not what such a line has there
Result<PlacedMembers> placed_members_from_text(std::string_view text);

// What the whole run has.
struct RosterStart {
  std::vector<ElementRange> ranges;  // by stage, then by element
  int32_t replicas = 1;
  // Parts keep the ranges of their stage, and servers keep none. If there is no server and no
  // process of kind Decider, a part's process decides.
  bool kept_by_parts = false;
};

// The automaton: what happens to processes in, members out. It has no clock and no thread.
class Roster {
 public:
  // Errors: Invalid/Call  ranges that `check` refuses; no replica
  static Result<Roster> make(const RosterStart& start);

  // A process has come and is connected to all others.
  //
  // Processes may come in another order than that of their numbers.
  //
  // Errors: Invalid/Call  a number that was used before, or is below 0; a part of a replica or of a
  //         stage that the run does not have, or that lives already. Nothing is changed then.
  Status join(const RunProcess& process);

  // A process is lost. One that is not known changes nothing.
  void lose(WorkerId process);

  // These replicas keep the ranges from the next members on, if parts keep them; empty = all, as at
  // the beginning. Where none of them has a living part of a stage, all replicas keep that stage.
  void set_ring(const std::vector<ReplicaId>& ring) { ring_ = ring; }

  // Every keeper of the members of this epoch has its range: next() may go on with a handover. An
  // epoch before one that was noted already, or that there was not, changes nothing.
  void note_filled(int64_t epoch);

  // From now on a range changes its place only when a process is lost, as at the end of a run.
  void end_handovers() { hands_over_ = false; }

  // Parts keep the ranges.
  bool kept_by_parts() const { return kept_by_parts_; }

  // Why the keepers of servers are on the hosts where they are, as a clause; empty before the first
  // members, and if parts keep the ranges.
  const std::string& placement() const { return placement_; }

  // The members of the next epoch; none if they are those of the epoch before. The first one has
  // two keepers of each range if there are two servers, or two parts of its stage.
  //
  // Errors: Infeasible/Job   a range whose keepers are all lost
  //         Infeasible/Call  before the first epoch, no server, or no part of some stage: try again
  //                          when one has joined
  //         check's
  Result<std::optional<PlacedMembers>> next();

  // The members of the newest epoch; those of epoch 0 before the first one.
  const PlacedMembers& newest() const { return newest_; }

 private:
  struct Kept {
    ElementRange range;
    std::vector<PeerId> keepers;
    // Goes as soon as the one that takes its place, the last one, has the range.
    std::optional<PeerId> leaving = {};
  };

  explicit Roster(const RosterStart& start);
  // Ranges that a process keeps.
  struct Load {
    int64_t first = 0;  // of which it is the first keeper
    int64_t all = 0;
  };
  bool lives(PeerId peer) const { return places_.count(peer) > 0; }
  // It has its range, as far as is known.
  bool is_filled(PeerId keeper) const { return since_.at(keeper) <= filled_; }
  bool keeps(WorkerId process, const Kept& kept) const;
  PeerId add_peer(WorkerId process);
  void add_keeper(WorkerId process, Kept& kept);
  void remove_keeper(size_t index, Kept& kept);
  std::map<WorkerId, Load> loads() const;
  bool shares_host(WorkerId process, const Kept& kept) const;
  void place_on_hosts();
  std::string wanted_host(const Kept& kept) const;
  void find_ring();
  std::optional<WorkerId> keeper_for(const Kept& kept) const;
  Status find_keepers();
  void forget_lost(Kept& kept) const;
  void replace(size_t index, WorkerId to, Kept& kept);
  void end_leaving(Kept& kept);
  void hand_over(Kept& kept);
  void balance(StageId stage, int64_t most_ahead);
  bool comes_together(size_t index, WorkerId to, const Kept& kept) const;
  bool move_range(WorkerId from, WorkerId to);
  bool change_first();
  void find_decider();
  void find_parts();

  int32_t stages_;
  bool kept_by_parts_, hands_over_ = true;
  std::vector<ReplicaId> ring_;               // as it was set
  std::set<WorkerId> in_ring_;                // processes that should keep ranges
  std::set<ReplicaId> whole_;                 // replicas whose parts all live
  std::map<WorkerId, RunProcess> processes_;  // that live
  std::set<WorkerId> used_;                   // all numbers so far
  std::map<PeerId, WorkerId> places_;         // of the peers that live
  int32_t next_peer_ = 0;
  std::vector<Kept> ranges_;
  // Where servers keep ranges and some keeper is missing: the hosts of each range's keepers.
  std::vector<std::vector<std::string>> wanted_hosts_;
  std::string placement_;            // why they are there
  std::map<PeerId, int64_t> since_;  // the first epoch of each keeper
  int64_t filled_ = 1;               // keepers of the first epoch begin with their ranges
  PeerId decider_;
  std::vector<std::vector<PeerId>> replicas_;
  PlacedMembers newest_;
};

}  // namespace tenuto::servers
