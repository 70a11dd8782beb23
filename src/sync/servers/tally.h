// How a run with server shards audits itself: each keeper counts what it has applied, the decider
// counts what it has decided, and whoever leads the run compares both.
//
// Idea:  a tally has the number of updates, their mass, and a digest of who computed which
//        micro-batches in which order. All keepers take the same updates in the same order, so
//        their tallies at one version are equal. The comparison costs a few numbers at each
//        checkpoint, whatever the size of the model.
// Limit: it is about which gradients are in the parameters, not about the bits of the sums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "ir/version.h"

namespace tenuto::servers {

struct DecidedUpdate;
struct Record;

// What has been applied, or decided, up to a version. A run that goes on from a checkpoint goes on
// with its updates and mass, and begins with the digest 0: serials begin again there, too.
struct Tally {
  int64_t updates = 0;
  Mass applied = {};    // in these updates
  uint64_t digest = 0;  // digest_after of them, in their order
  bool operator==(const Tally&) const = default;
};

// The digest of updates so far, and then of this one: of its number and version, and for each of
// its works of serial, replica, iteration and micro-batches.
uint64_t digest_after(uint64_t digest, const DecidedUpdate& update);

// Counts an update.
void add(Tally& tally, const DecidedUpdate& update);

// What a record's decider has decided up to the record's version.
Tally tally_of(const Record& record);

// Where all micro-batches are that were given out in a run, as a decider's record says.
struct Balance {
  Version version;     // of the record
  Tally tally = {};    // to this version
  Mass given = {};     // to works, of all streams together
  Mass dropped = {};   // in offers that were dropped as stale
  Mass in_work = {};   // in works that are in no update yet
  Mass returned = {};  // of works that were lost: they wait to be given out again
  bool operator==(const Balance&) const = default;
};

// The balance of this record.
Balance balance_of(const Record& record);

// Whether each micro-batch that was given out is applied, dropped, in work or returned.
//
// Errors: Corrupt/Job  their masses do not add up
Status check_balance(const Balance& balance);

// What one keeper has applied.
struct KeptTally {
  std::string keeper;  // as sentences name it: "keeper 3"
  Version version;
  Tally tally;
};

// Whether all keepers have applied what the decider has decided, up to the same version, and
// whether the decider's balance is right.
//
// Errors: Corrupt/Job  they have not, with the first keeper that differs; no balance, or no keeper;
//         those of check_balance
Status check_tallies(std::span<const KeptTally> kept, const std::optional<Balance>& decided);

// What check_tallies has found to be so, for people: "12 updates, 48 micro-batches applied, 0
// dropped, the same at all 4 keepers".
std::string audit_text(const Balance& decided, size_t keepers);

}  // namespace tenuto::servers
