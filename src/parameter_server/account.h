// What a run with server shards has done, as its processes write it down, and the audit of it.
//
// Idea:  a process that is killed says nothing at the end. So each one writes a line as soon as
//        something has happened, before it sends what follows from it. A keeper writes which update
//        it has applied, a decider which works it has dropped and, at the end, what its record is.
//        What a decider dropped just before it died may never have reached a keeper; the next
//        decider does not know it then, and the line does not count.
// Right: tests/parameter_server/account_test.cc breaks each rule once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sync/servers/decider.h"
#include "sync/simulator.h"

namespace tenuto::servers {

// A keeper has applied an update.
struct AppliedLine {
  PeerId keeper;
  Version version;     // of the parameters before
  int64_t number = 0;  // of the update in the run
  Duration moment{};   // on the monotonic clock
  std::vector<Work> works;
  bool operator==(const AppliedLine&) const = default;
};

// A decider has dropped a work as stale.
struct DroppedLine {
  int64_t epoch = 0;
  int64_t sequence = 0;  // of the first record that knows of it
  Work work;
  bool operator==(const DroppedLine&) const = default;
};

// A decider that has no record of its own goes on from another one's.
struct BegunLine {
  int64_t epoch = 0;
  int64_t sequence = 0;  // of its first record
  bool operator==(const BegunLine&) const = default;
};

// All lines of a run.
struct RunAccount {
  std::vector<AppliedLine> applied;
  std::vector<DroppedLine> dropped;
  std::vector<BegunLine> begun;
  std::optional<Record> last;  // of the decider, at the end
};

// The lines as text. Of a record it has only what the audit asks for: versions, masses, the number
// of updates, where each stream goes on, and what is open or returned.
std::string to_text(const AppliedLine& line);
std::string to_text(const DroppedLine& line);
std::string to_text(const BegunLine& line);
std::string to_text(const Record& last);

// Adds the lines of a text. An incomplete last line was cut off when its writer was killed, and is
// left out.
//
// Errors: Corrupt/Call  a line that none of these functions has written; a second last record
Status add_lines(std::string_view text, RunAccount& account);

// Whether every micro-batch that was given out is in one update, was dropped by name, or waits in
// the last record; whether all keepers have applied the same updates; and whether the version is
// the number of updates, all of which are committed. Returns the update of each version, with the
// moment at which the first keeper had applied it.
//
// Errors: Corrupt/Job  what is not so
Result<std::vector<AppliedLine>> audit(const RunAccount& account);

// What a mode did, from the first of these updates to the last one that was applied by `end`, as
// the simulation measures it (sync/simulator.h). Without the fractions, which ask for offers.
//
// Shapes: updates: one for each version from 0 on
// Units:  `iteration`: micro-batches of one replica's iteration, above 0
SyncMeasure measure_updates(const std::vector<AppliedLine>& updates, Duration end, Mass iteration);

}  // namespace tenuto::servers
