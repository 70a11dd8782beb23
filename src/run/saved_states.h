// The checkpoints of a run with server shards, collected from what its servers have saved.
//
// Idea:  each range is saved by one process, when it is at the version that is to be saved. A
//        version of which every range is saved, and the decider's record, makes a checkpoint. Its
//        folder is named by its step, so a later version of the same step has the same files: while
//        one is being saved, the earlier one is not finished any more.
// Right: tests/run/saved_states_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ir/mass.h"
#include "ir/version.h"
#include "parameter_server/host_message.h"

namespace tenuto {

// A version that is saved as a whole.
struct SavedVersion {
  Version version;
  Mass mass;
  int64_t step = 0;                              // that its folder is named by
  std::vector<servers::SavedFile> files;         // of the ranges, in their order; then the record
  std::vector<servers::KeptTally> tallies = {};  // of all keepers that have written a range of it
  std::optional<servers::Balance> decided = {};  // by its record
};

// What servers say in, versions out.
class SavedStates {
 public:
  // `ranges`: all of the run. `step`: the mass of a step, above 0.
  SavedStates(std::vector<servers::ElementRange> ranges, Mass step);

  // A range was saved. Gives the version if it is saved as a whole now. A range that the run does
  // not have, and a version that is not newer than the last one that was given, change nothing.
  std::optional<SavedVersion> add(const servers::SavedReport& report);

  // The newest version of which a range was saved, whether or not all others were.
  Version newest() const { return newest_; }
  // The newest version that was given. Version 0: none yet.
  Version complete() const { return complete_; }

 private:
  struct Saving {
    Mass mass;
    std::map<size_t, std::vector<servers::SavedFile>> ranges;  // by their index
    std::optional<servers::SavedFile> record;
    std::vector<servers::KeptTally> tallies;
    std::optional<servers::Balance> decided;
  };
  bool is_overwritten(Version version, int64_t step) const;

  std::vector<servers::ElementRange> ranges_;
  Mass step_;
  std::map<Version, Saving> saving_;
  Version newest_, complete_;
};

}  // namespace tenuto
