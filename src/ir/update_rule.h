// Which offers make which update: one rule for all sync modes, as a pure automaton.
//
// One decider runs it: a server, the leader of a ring, or the coordinator. It fixes the list of
// each update for all stages and shards, so no update is torn. A simulation runs the same
// automaton.
//
// The words: an *iteration* is counted by each replica, a *version* of the parameters by the
// updates that made it (ir/version.h), and *mass* is the number of micro-batches whose gradients
// are in an offer (ir/mass.h). Parameters, momentum and schedules advance by mass, so the mode may
// change at any update.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "ir/sync_mode.h"
#include "ir/version.h"

namespace tenuto {

// A replica has computed a gradient, and waits.
struct Offer {
  ReplicaId replica;
  Iteration iteration;  // of the replica; with local steps the first one of the offer
  Version version;      // of the parameters that it read
  Mass mass;
  auto operator<=>(const Offer&) const = default;
};

// The offers that change the parameters together. It leads from `version` to `version` + 1.
struct Update {
  int64_t number = 0;              // of the updates that this rule has decided, from 0
  Version version;                 // of the parameters that it is applied to
  std::vector<Offer> members;      // by replica, whatever the order of arrival
  std::vector<ReplicaId> parents;  // of each member: the member of the ring that adds its offer to
                                   // its own; itself = it is in the ring
  auto operator<=>(const Update&) const = default;
};

// The micro-batches of an update.
Mass mass_of(const Update& update);

// What a replica computes next: it reads the parameters of `version`, and its next offer has these
// numbers.
struct Release {
  Offer offer;
  int32_t local_steps = 1;  // iterations from offer.iteration on
  auto operator<=>(const Release&) const = default;
};

// Why an offer is in no update.
enum class DropReason : uint8_t {
  Stale,    // it came too late in the mode with backup workers; its replica goes on
  Lost,     // its replica is lost: other replicas have to compute these micro-batches
  Refused,  // the caller has no use for it (UpdateRule::refuse); its replica goes on
};
// An offer that is in no update.
struct Dropped {
  Offer offer;
  DropReason reason = DropReason::Stale;
  auto operator<=>(const Dropped&) const = default;
};

// The caller calls UpdateRule::close with `number` when `length` is over.
struct OpenWindow {
  int64_t number = 0;  // of the window, from 0
  Duration length{};
  auto operator<=>(const OpenWindow&) const = default;
};

// What follows from one input, in this order.
struct Decided {
  std::vector<Dropped> dropped;
  std::vector<Update> updates;
  std::vector<Release> released;  // by replica
  std::optional<OpenWindow> window;
  auto operator<=>(const Decided&) const = default;
};

// What a rule begins with.
struct RuleStart {
  SyncMode mode;
  int32_t replicas = 1;
  int64_t micros = 1;  // micro-batches of one replica's iteration, apart from rebalanced shares
  Version version;     // of the parameters that all replicas have
  std::vector<Iteration> iterations;  // of each replica, the next one; empty = 0
  auto operator<=>(const RuleStart&) const = default;
};

// The automaton: inputs in, decisions out. It has no clock and can be copied; equal inputs give
// equal decisions.
//
// What holds after every input:
// - each offer is in one update, or named as dropped once, or waits; a replica has at most one;
// - offered mass = applied mass + dropped mass + waiting mass, in whole micro-batches;
// - a replica's offer is dropped as stale only if its offer before was applied, so at least half of
//   its offers are applied, apart from those that the caller refuses;
// - with a bound S, a replica was at most S offers ahead of the one with the fewest when it was
//   released, counted from the last change of mode, without what was refused;
// - some replica computes, or a window is open: the rule never waits for itself.
//
// A mode whose count is above the number of live replicas waits for all of these. In a ring, a
// child whose parent is lost goes to the next live member; when the whole ring is lost, the lowest
// live replica becomes the ring.
class UpdateRule {
 public:
  // Errors: check's; Invalid/Call  a mode that is not formed; shares that do not add up to replicas
  //         x micros; no micro-batch; iterations of another number of replicas; a version
  //         or an iteration below 0 or above 2^53
  static Result<UpdateRule> make(const RuleStart& start);

  // The first releases: of all replicas. Called once, before all inputs.
  Decided begin();

  // A replica offers what it was released for.
  //
  // Errors: Invalid/Call  an unknown or lost replica; a replica that is not computing; an offer of
  //         other numbers than those of its release. The rule is unchanged then.
  Result<Decided> offer(const Offer& offer);

  // A replica offers what it was released for, and the caller has no use for it: it is dropped as
  // Refused. It is the caller who knows such offers, since the rule sees no gradients. A refused
  // offer does not count for the bound on staleness, so its replica can go on at once.
  //
  // Errors: as offer
  Result<Decided> refuse(const Offer& offer);

  // The window of this number is over. One that is not open any more changes nothing.
  Decided close(int64_t number);

  // Another mode from now on. Waiting offers stay, whatever version they read, and are tested
  // against it at once; a replica that computes makes the offer that it was released for.
  //
  // Errors: as make. The rule is unchanged then.
  Result<Decided> change(const SyncMode& mode);

  // The replica is lost: nobody waits for it any more. Its waiting offer is dropped as Lost, since
  // its gradient may be nowhere else.
  //
  // Errors: Invalid/Call  an unknown or lost replica
  Result<Decided> lose(ReplicaId replica);

  // A lost replica is back, has the newest version, and goes on with this iteration.
  //
  // Errors: Invalid/Call  an unknown or live replica; an iteration below 0 or above 2^53, or one
  //         that is in an update already. The rule is unchanged then.
  Result<Decided> join(ReplicaId replica, Iteration iteration);

  // The mode in force.
  const SyncMode& mode() const { return start_.mode; }
  // Of the parameters, after all updates so far.
  Version version() const { return version_; }
  // The micro-batches of one iteration of all replicas.
  Mass full_mass() const { return {start_.replicas * start_.micros}; }
  // Micro-batches in all offers, in updates, in dropped offers, and in offers that wait.
  Mass offered_mass() const { return offered_; }
  Mass applied_mass() const { return applied_; }
  Mass dropped_mass() const { return dropped_; }
  Mass waiting_mass() const;

  bool operator==(const UpdateRule&) const = default;

 private:
  enum class Phase : uint8_t { Computing, Waiting, Free, Lost };  // Free: may be released
  struct Replica {
    Phase phase = Phase::Free;
    Release work;              // what it computes, or has offered
    Iteration next;            // its next one
    int64_t clock = 0;         // its offers since the last change of mode, without refused ones
    bool was_applied = false;  // its offer before
    Iteration unapplied;       // the iteration behind the last one that is in an update
    bool operator==(const Replica&) const = default;
  };

  explicit UpdateRule(const RuleStart& start);
  Replica& at(ReplicaId replica) { return replicas_[static_cast<size_t>(replica.value)]; }
  const Replica& at(ReplicaId replica) const {
    return replicas_[static_cast<size_t>(replica.value)];
  }
  void set_phase(Replica& replica, Phase phase);
  bool is_known(ReplicaId replica) const;
  bool is_waiting(int32_t replica) const;
  bool is_stale(const Offer& offer) const;
  // Whether it is the offer that its replica was released for.
  Status check_due(const Offer& offer) const;
  void count(const Offer& offer);
  void drop(const Offer& offer, DropReason reason, Decided& decided);
  // All that follows from the offers that are here.
  void proceed(Decided& decided);
  std::vector<Offer> next_members();
  std::vector<Offer> taken(size_t count);
  std::vector<Offer> group_members() const;
  std::vector<Offer> ring_members() const;
  ReplicaId parent_of(ReplicaId replica) const;
  bool is_complete(size_t count) const;
  void apply(std::vector<Offer> members, Decided& decided);
  void release_free(Decided& decided);

  RuleStart start_;
  std::vector<Replica> replicas_;
  std::deque<Offer> buffer_;     // waiting offers, in order of arrival
  int32_t live_ = 0, free_ = 0;  // replicas that are not lost; those that may be released
  Version version_;
  int64_t number_ = 0;
  int64_t windows_ = 0;  // opened so far
  bool open_ = false, over_ = false;
  Mass offered_, applied_, dropped_;
};

// Whether a run can have this mode. It need not be formed: one that leaves its groups, parents,
// shares or window open is formed from the replicas' times while the run goes on.
//
// Errors: those of UpdateRule::make, except for a mode that is not formed
Status check_mode_of_run(const SyncMode& mode, int32_t replicas, int64_t micros);

// An update as one line: its number and version, then its members by replica, each with iteration,
// version read and mass, and with its parent where that is another one.
//
//     update 3 on version 7: 0 iteration 4 version 6 mass 8, 2 iteration 3 version 7 mass 8 child
//     of 0
std::string to_text(const Update& update);

}  // namespace tenuto
