// What the decider, the server shards and the parts of replicas tell each other, as values.
//
// The words: a *peer* is one machine of the protocol, a *keeper* a peer that keeps a range of the
// parameters: the server shard that answers reads, or its standby. Keepers live in processes of
// their own, or in those of the replicas' parts. A *work* is what a replica is to compute for one
// offer. An *epoch* is the time between two changes of the members; a message of
// another epoch is refused, so nothing that is sent before a change has to be thought of after it.
//
// Source: parameter servers with key ranges and replicas of them, Li et al., "Scaling distributed
// machine learning with the parameter server", OSDI 2014; a change of members that all confirm
// before anything new is sent, Birman, Joseph, "Exploiting virtual synchrony in distributed
// systems", SOSP 1987.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"
#include "ir/update_rule.h"
#include "sync/servers/tally.h"

namespace tenuto::servers {

// A machine of the protocol. A number is never used twice in a run: a process that comes back has
// new ones.
using PeerId = Id<struct PeerTag>;

// Bytes of a parameter or of a gradient's element: fp32.
inline constexpr int64_t kElementBytes = 4;
// Gradients of each replica that a keeper takes. A decider lets it have fewer (decider.h).
inline constexpr int64_t kGradientsPerReplica = 12;
// The largest epoch.
inline constexpr int64_t kMostEpochs = (int64_t{1} << 31) - 1;

// Elements begin to end - 1 of a stage's parameters, in the order of a checkpoint.
struct ElementRange {
  StageId stage;
  int64_t begin = 0, end = 0;
  bool operator==(const ElementRange&) const = default;
};

// The size of a range's parameters, or of its part of a gradient.
Bytes size_of(const ElementRange& range);

// Bytes that nobody changes any more, so that several messages can have them without a copy.
using Payload = std::shared_ptr<const std::vector<std::byte>>;

// Its size; zero without one.
Bytes size_of(const Payload& payload);

// Micro-batches begin to end - 1 of the data of one replica, counted from the beginning of the run.
struct MicroRange {
  ReplicaId stream;
  int64_t begin = 0, end = 0;
  bool operator==(const MicroRange&) const = default;
};

// What a replica computes for one offer. Its micro-batches are as many as the offer's mass: those
// of lost replicas first, then the next ones of its own data. With several local steps it has the
// micro-batches of as many iterations, each as many of them, in this order.
struct Work {
  int64_t serial = 0;  // names it: above those of all works before, from whichever decider
  Offer offer;
  int32_t local_steps = 1;
  std::vector<MicroRange> micros;
  Mass applied = {};     // to the version that it reads
  OuterStep outer = {};  // that takes its change, if it has several local steps
  bool operator==(const Work&) const = default;
};

// A server shard, its standby, and the successor of one of them while the range is handed over.
inline constexpr size_t kMostKeepersOfRange = 3;

// A range and the peers that keep it: the server shard, then its standbys if there are any.
struct KeptRange {
  ElementRange range;
  std::vector<PeerId> keepers;
  bool operator==(const KeptRange&) const = default;
};

// Serials of works that are given out in this epoch or a later one are above this number; those of
// works that were given out before are not.
constexpr int64_t serials_before(int64_t epoch) { return epoch << 32; }

// Who belongs to the run in one epoch.
struct Membership {
  int64_t epoch = 0;
  PeerId decider;
  std::vector<KeptRange> ranges;  // by stage, then by element
  // Of each replica: its part of each stage. Empty = the replica is lost.
  std::vector<std::vector<PeerId>> replicas;
  bool operator==(const Membership&) const = default;
};

// Whether a run can have these members.
//
// Errors: Invalid/Call  an epoch outside of 1 to kMostEpochs; stages or ranges that are not in
//         order or leave elements out; a range with no or with too many keepers; a replica
//         with another number of parts than there are stages; a peer that has no number, or that
//         is named twice
Status check(const Membership& membership);

// All peers but the decider.
std::vector<PeerId> peers_of(const Membership& membership);

// All keepers.
std::vector<PeerId> keepers_of(const Membership& membership);

// The ranges of a stage, as indices into Membership::ranges.
std::vector<size_t> ranges_of(const Membership& membership, StageId stage);

// The members without this peer. A standby takes the place of a lost server shard. A replica that
// loses a part is lost. The epoch stays: the caller raises it.
Membership without(Membership membership, PeerId lost);

// A work that is in no update yet.
struct OpenWork {
  Work work;
  bool read = false;     // all its parts have read the parameters of its version
  bool offered = false;  // the update rule has its offer
  bool operator==(const OpenWork&) const = default;
};

// An update and what is in it, in the order of its members.
struct DecidedUpdate {
  Update update;
  std::vector<Work> works;
  bool operator==(const DecidedUpdate&) const = default;
};

// Where a replica's data goes on.
struct Stream {
  Iteration next;     // above all that the replica was released for
  int64_t fresh = 0;  // the first micro-batch that was never given to anybody
  bool operator==(const Stream&) const = default;
};

// All that a decider knows and another one needs. Every keeper has the newest one that it was sent,
// so there is no history: a record says how things are, not what has happened.
//
// What holds: every micro-batch below a stream's `fresh` is in an update, was dropped, is in an
// open work, or is in `returned`; once, and in one of them. The record that first names a version
// in `save` is of that version itself. So the states that keepers have at this version and this
// record together are what a run can go on from.
struct Record {
  int64_t sequence = 0;  // of records; 0 = none was sent yet
  SyncMode mode;
  Version version;                     // after all decided updates
  Version committed;                   // every keeper has it
  int64_t updates_decided = 0;         // in the whole run
  int64_t last_serial = 0;             // of the works given out
  std::vector<Stream> streams;         // of each replica
  std::vector<MicroRange> returned;    // of works that were lost, in order: to be given out first
  std::vector<OpenWork> open;          // at most one of each replica
  std::vector<DecidedUpdate> updates;  // those after `committed`, in order
  std::vector<PeerId> filling;         // keepers that wait for their range from another keeper
  Mass applied;                        // in updates
  Mass dropped;                        // in offers that were dropped as stale
  Version save;                        // the newest version that keepers are to write down
  Mass save_mass;                      // what was applied to it; both zero = there is none yet
  uint64_t digest = 0;                 // of all decided updates (sync/servers/tally.h)
  bool operator==(const Record&) const = default;
};

// ---- bodies of messages ----------------------------------------------------------------------

// Decider to all: another epoch begins. Whoever gets it sends nothing but its report until the
// decider, which waits for all reports, sends a record or an assignment.
struct Enter {
  Membership membership;
};
// Keeper to decider.
struct KeeperReport {
  bool is_filled = false;       // it has its range, at the header's version
  Record record;                // the newest one that it was sent
  std::vector<int64_t> stored;  // works whose gradient it has
};
// Part to decider.
struct PartReport {};
// Decider to part: the work to do. A part that has this one already goes on with it.
struct Assign {
  std::optional<Work> work;  // none = wait
  std::vector<PeerId> have;  // keepers that need no gradient of it from this part
  // The part of the same stage of another replica to which the gradient goes, and which passes it
  // on. None = the gradient goes to the keepers.
  std::optional<PeerId> parent = {};
};
// Part to server shard: send the parameters of the header's version.
struct Fetch {};
// Server shard to part.
struct Parameters {
  Payload payload;
};
// Part to decider: the part has read all its ranges.
struct Read {
  int64_t serial = 0;
};
// Part to keeper: the sum of the gradients of the work's micro-batches, for the keeper's range. Of
// a work with several local steps: how far these have moved the parameters, old - new, times its
// mass.
struct Gradient {
  int64_t serial = 0;
  Payload payload;
};
// Keeper to decider: the gradient of this work is here.
struct Stored {
  int64_t serial = 0;
};
// Keeper to decider: the keeper's range is at the header's version.
struct Applied {};
// A gradient that a keeper has.
struct KeptGradient {
  int64_t serial = 0;
  Version version;  // that it was computed with
  Payload payload;
};
// Parameters of a range that somebody may still read.
struct KeptVersion {
  Version version;
  Payload payload;
};
// Keeper to another keeper of its range: everything that it has, at the header's version.
struct Fill {
  Payload state;  // of the parameters and the optimizer
  std::vector<KeptVersion> versions;
  std::vector<KeptGradient> gradients;
  Tally tally = {};  // of what is applied in the state
};
// Part to the part of its parent: a Gradient for these keepers of the range. So the link of a slow
// replica carries its gradient once, and not once for each keeper.
struct Relayed {
  int64_t serial = 0;
  int32_t range = 0;  // index into Membership::ranges
  std::vector<PeerId> keepers;
  Payload payload;
};

// In front of every message.
struct Header {
  int64_t epoch = 0;
  PeerId from, to;
  Version version;  // of the parameters that the message speaks of: of a work, those that it reads
};

// One message. Between two peers messages arrive in the order in which they were sent, or not at
// all if one of them is lost.
struct Message {
  Header header;
  std::variant<Enter, KeeperReport, PartReport, Record, Assign, Fetch, Parameters, Read, Gradient,
               Stored, Applied, Fill, Relayed>
      body;
};

// The bytes of its payloads.
Bytes payload_of(const Message& message);

}  // namespace tenuto::servers
