// The decider: makes the list of each update once, for all shards and stages.
//
// Idea:  an offer counts as here when every keeper of every range has its gradient. The update rule
//        then decides, and what it decides can always be applied: no loss of a replica tears an
//        update. What the decider knows is a Record, which it sends to all keepers whenever it
//        changes. A keeper that has a decision has the record that it belongs to, so the newest
//        record that any of them reports is enough for another decider to go on.
// Limit: offers are held back while the updates that are not committed have L offers, which is
//        DeciderStart::most_uncommitted. With R replicas, decided updates then have at most L + 2 R
//        offers, because one input decides on at most R that wait, and as many may have waited
//        before. A keeper that gets its records late may also have as many gradients that were
//        dropped as stale, and another 2 R. These are at most 2 L + 6 R, and L is at most 3 R.
// Right: tests/sync/servers_test.cc audits every micro-batch and every keeper over random deaths,
//        joins and changes of mode.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// Offers of each replica that may be in updates which are not committed: unless told otherwise,
// and at most.
inline constexpr int64_t kUncommittedPerReplica = 2, kMostUncommittedPerReplica = 3;

// What a decider begins with.
struct DeciderStart {
  PeerId self;
  int64_t micros = 1;  // micro-batches of one replica's iteration
  // Of a fresh run: the mode, the version that all keepers have, and where each replica's data
  // begins. It is used if no keeper reports a record.
  Record record;
  int64_t most_uncommitted = 0;  // offers; 0 = kUncommittedPerReplica for each replica
  // Keepers write down what they have whenever another multiple of this mass is applied. 0 = only
  // when save() is called.
  Mass save_every{};
  // In mode ring, replicas outside of the ring send their gradients to their parents, which pass
  // them on.
  bool children_send_to_parents = false;
  // Once this mass is applied, the run is done: further offers are held back, so that the state at
  // the end is that of the last step. 0 = the run goes on until it is stopped.
  Mass end{};
};

// The record of a run that begins with version 0. One that begins with a checkpoint sets the
// version and the committed version to that of the checkpoint, and the streams to its data.
Record first_record(const SyncMode& mode, int32_t replicas);

// With what a run goes on from states that keepers have written down at the version of this record.
// Micro-batches of works that were open come first into `returned`, and are given out again. Nobody
// of the run before lives, so its works and keepers are forgotten, and serials begin again.
Record resumed(Record record);

// A work that is in no update: of a lost replica, so that others get its micro-batches, or late.
struct DroppedWork {
  Work work;
  DropReason reason = DropReason::Lost;
};

// The automaton: messages and changes in, messages out. It has no clock and no thread.
//
// After each input the caller sends take_messages(), writes down take_dropped(), and, when window()
// has a new number, calls close() once its length is over.
class Decider {
 public:
  // Errors: those of UpdateRule::make; Invalid/Call  a limit below 0, or above
  //         kMostUncommittedPerReplica for each replica; a mass below 0 after which to save
  static Result<Decider> make(const DeciderStart& start);

  // Another epoch: the coordinator says who belongs to the run from now on. Nothing is decided
  // until all of these have reported.
  //
  // Errors: check's; Invalid/Call  another decider; an epoch that is not newer; other ranges or
  //         another number of replicas than before. Nothing is changed then.
  Status install(const Membership& membership);

  // Takes a message in. One of another epoch, or of a peer that is no member, is refused: it
  // changes nothing but refused().
  //
  // Errors: Invalid/Call    a message that a decider does not get
  //         Infeasible/Job  no keeper of some range has it: the run has to begin again from a
  //                         checkpoint
  Status handle(const Message& message);

  // Another mode, from the next update on.
  //
  // Errors: those of UpdateRule::change; Invalid/Call  before the first members have reported
  Status change(const SyncMode& mode);

  // The window of grace of this number is over.
  void close(int64_t window);

  // Keepers are to write down what they have: the record that goes out next names its own version
  // in `save`. Before all have reported, this is the first one after that. If keepers were told to
  // write down this version before, nothing is sent.
  void save();

  // What is to be sent, in this order. Empty afterwards.
  std::vector<Message> take_messages();
  // The works that were dropped since the last call.
  std::vector<DroppedWork> take_dropped();

  // The window that was opened last.
  const std::optional<OpenWindow>& window() const { return window_; }
  // All members of the epoch have reported.
  bool is_ready() const { return ready_; }
  // What it knows.
  const Record& record() const { return record_; }
  // Who belongs to the run.
  const Membership& membership() const { return membership_; }
  // Messages that were refused.
  int64_t refused() const { return refused_; }

 private:
  // What has come of an open work.
  struct Arrived {
    std::set<PeerId> read, stored;
    bool is_complete = false;  // every keeper has it
  };

  Decider(const DeciderStart& start, int64_t most_uncommitted);
  Status report(PeerId from, Version version, KeeperReport report);
  Status begin_epoch();
  Status find_donors();
  Status adopt_newest();
  void follow_members();
  void resume_works();
  void lose_replica(size_t replica);
  void take(const Decided& decided);
  void release(const Release& release);
  Work remove_open(ReplicaId replica);
  OpenWork* find_open(int64_t serial);
  void note_read(PeerId from, int64_t serial);
  void note_if_complete(int64_t serial);
  bool is_done() const;
  const std::vector<PeerId>* parents_of(size_t replica) const;
  void feed();
  void commit();
  void mark_save();
  void flush();
  template <class Body>
  void send(PeerId to, Version version, Body body);

  DeciderStart start_;
  int64_t most_uncommitted_;
  std::optional<UpdateRule> rule_;  // none until the first members have reported
  int64_t number_before_ = 0;       // updates of earlier deciders
  Record record_, sent_;
  Membership membership_;
  bool ready_ = false;
  bool wants_save_ = false;                  // save() was called
  std::map<PeerId, Version> versions_;       // of the keepers
  std::map<PeerId, KeeperReport> reports_;   // of the keepers, until all have reported
  std::set<PeerId> reported_;                // all that have, in this epoch
  std::vector<std::vector<PeerId>> joined_;  // parts of the replicas that the rule counts as live
  std::vector<int64_t> assigned_;            // serial sent to each replica's parts; -1 = nothing
  std::map<int64_t, Arrived> arrived_;       // by serial of the open works
  std::deque<int64_t> held_;                 // serials of complete offers that the rule has not got
  std::vector<Message> messages_;
  std::vector<DroppedWork> dropped_;
  std::optional<OpenWindow> window_;
  int64_t refused_ = 0;
};

}  // namespace tenuto::servers
