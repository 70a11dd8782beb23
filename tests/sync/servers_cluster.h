// A run with server shards on one thread: every machine of the protocol, links that deliver in
// order but one before the other at random, deaths, joins, replaced deciders and changes of mode,
// and an audit of every input. Where replicas keep the parameters, keepers and the decider live in
// the processes of the replicas' parts and die with them, and ranges are handed over to the ring.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sync/servers/decider.h"
#include "sync/servers/replica_part.h"
#include "sync/servers/server_shard.h"

namespace tenuto::servers {

// Elements of a range of parameters, or of a gradient; 4 bytes each, as in a payload.
using Elements = std::vector<uint32_t>;

// Elements as a payload, and back.
Payload payload_with(const Elements& elements);
Elements elements_in(const Payload& payload);

// The gradient of a work: a sum over its micro-batches, each with a random number for each element.
Elements gradient_of(const Work& work, const ElementRange& range);

// Takes an update: where the order matters, and an offer that is in it twice or not at all shows.
void apply_to(Elements& parameters, const std::vector<Elements>& gradients);

// Parameters that such updates make, with a count of them as the optimizer's state.
class TallyStore : public ParameterStore {
 public:
  explicit TallyStore(const ElementRange& range);
  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override;
  Payload parameters() const override;
  Payload save() const override;
  Status load(const Payload& state) override;
  const Elements& elements() const { return elements_; }
  int64_t updates() const { return updates_; }

 private:
  Elements elements_;
  uint32_t updates_ = 0;
};

// What can happen to a cluster.
enum class Event : uint8_t {
  Mode,
  LosePart,
  LoseKeeper,
  LoseDecider,
  ReplaceDecider,  // the old one lives on for a while
  JoinReplica,
  JoinKeeper,
};
constexpr size_t kEvents = 7;

// Who keeps the parameters.
enum class Architecture : uint8_t {
  Servers,    // processes of their own; each peer is a process
  AllReduce,  // the processes of the replicas' parts
};

class Cluster {
 public:
  Cluster(uint64_t seed, int32_t stages, Architecture architecture);

  // The run that goes on from the newest save of another cluster, which has one: with new peers,
  // and with all that was applied or dropped before.
  static Cluster resume(const Cluster& before, uint64_t seed);

  // Steps until so many events have happened.
  void run(int64_t events);
  // Everybody comes back, and synchronous updates are made and committed.
  void finish();

  // Of each Event.
  const std::array<int64_t, kEvents>& happened() const { return happened_; }
  int64_t applied_updates() const { return std::ssize(updates_); }
  int64_t dropped_works() const { return dropped_works_; }
  int64_t filled() const { return filled_; }
  int64_t refused() const { return refused_; }
  // With AllReduce: keepers whose range went to another process while they lived, gradients that
  // were sent to a parent, and changes of the mode from or to a ring.
  int64_t handed_over() const { return handed_over_; }
  int64_t relayed() const { return relayed_; }
  int64_t ring_changes() const { return ring_changes_; }
  // The newest version of which the states of all ranges and a record were taken; none = none.
  std::optional<int64_t> newest_save() const;
  // How many such versions there were.
  int64_t whole_saves() const;
  // Whether a keeper had as many old versions as it may have.
  bool met_kept_limit() const { return met_kept_limit_; }

 private:
  using Link = std::pair<PeerId, PeerId>;
  struct Stale {
    int64_t sequence = 0;  // of the first record that knows of it
    Work work;
  };
  // What was written down at one version.
  struct Save {
    std::map<size_t, Payload> states;  // by range
    std::optional<Record> record;
  };

  Cluster(const Cluster& before, uint64_t seed, int64_t version);
  PeerId new_peer() { return {next_peer_++}; }
  PeerId add_shard(const ElementRange& range, bool is_filled);
  void add_first_keepers(const ElementRange& range);
  std::vector<PeerId> add_parts(size_t replica);
  bool is_alive(PeerId peer) const;
  bool decides() const { return decider_ != nullptr && deciding_ == number_; }
  bool is_open(int64_t serial) const;

  void step();
  bool deliver();
  bool compute();
  bool close_window();
  void when_idle();

  bool cause_event();
  bool cause(Event event);
  bool change_mode();
  bool lose_part();
  bool lose_keeper();
  bool lose_decider();
  bool replace_decider();
  bool join_replica();
  bool join_keeper();
  bool can_lose(const KeptRange& kept, PeerId keeper) const;
  void die(PeerId peer);
  void end_replicas();
  void notice();
  void install();

  // Where replicas keep the parameters: in servers_handover.cc.
  bool replicas_keep() const { return architecture_ == Architecture::AllReduce; }
  void add_hosts(size_t replica);
  std::vector<int32_t> hosts_of(StageId stage, bool ring_only) const;
  std::optional<int32_t> free_host(const KeptRange& kept, bool ring_only);
  int32_t host_of_decider();
  bool can_kill(int32_t process) const;
  bool kill_one_of(const std::set<int32_t>& processes);
  void set_ring(const SyncMode& mode);
  bool move_keepers();

  void post(std::vector<Message> messages);
  void after_decider(Decider& decider);
  void adopt(const Record& record);
  void observe(const Record& record);
  void audit_record(const Record& record);
  Tally tally_at(Version version) const;
  void audit_tallies() const;
  void audit_shard(const ServerShard& shard, size_t range);
  void audit_micros();
  void audit_saved(ServerShard& shard, size_t range);
  void audit_resumed(const Record& record) const;

  Random random_;
  Random save_random_;  // of its own, so that saves change nothing else
  Record first_;        // with which the run begins
  Architecture architecture_;
  int32_t stages_, replicas_;
  int64_t micros_, kept_versions_, most_uncommitted_;
  int64_t event_gap_;  // steps between two events, on average
  int32_t next_peer_ = 0;
  Membership membership_;
  std::map<PeerId, ServerShard> shards_;
  std::map<PeerId, size_t> range_of_;  // of the keepers
  std::map<PeerId, ReplicaPart> parts_;
  std::unique_ptr<Decider> decider_, old_decider_;
  PeerId decider_id_, old_decider_id_;
  std::map<Link, std::deque<Message>> links_;
  std::vector<PeerId> dead_;  // which the coordinator has not noticed
  // With AllReduce: of each replica, the process of each of its parts, also when it has died; those
  // that live; and where each peer was made.
  std::vector<std::vector<int32_t>> hosts_;
  std::set<int32_t> processes_;
  std::map<PeerId, int32_t> process_of_;
  int32_t next_process_ = 0;
  std::vector<ReplicaId> ring_;  // empty = all
  // Deciders have numbers in the order in which they were started. The one whose decisions count is
  // the last one to which all have reported.
  int64_t number_ = 0, old_number_ = 0, deciding_ = 0;
  int64_t closed_ = -1;  // the last window that was closed

  std::vector<DecidedUpdate> updates_;           // by version
  std::vector<std::vector<Elements>> expected_;  // by version and range
  std::vector<Stale> stale_;
  std::map<int64_t, Save> saves_;           // by version
  std::map<size_t, Payload> first_states_;  // of the ranges of a resumed run
  Mass save_every_;
  int64_t committed_ = 0;
  std::array<int64_t, kEvents> happened_{};
  int64_t dropped_works_ = 0, filled_ = 0, refused_ = 0, steps_ = 0;
  int64_t handed_over_ = 0, relayed_ = 0, ring_changes_ = 0;
  bool met_kept_limit_ = false;
};

}  // namespace tenuto::servers
