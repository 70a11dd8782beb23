// Checkpoints on disk: a folder checkpoint-STEP with one safetensors file a stage and, written
// last, a manifest that names them with size and checksum. A run with server shards has other
// files: one for each range that its servers keep, and one with the decider's record. The folder is
// filled under the name checkpoint-STEP.tmp and renamed when all is durable: a checkpoint-STEP is
// whole unless it has been damaged since.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "protocol/report.h"
#include "protocol/saved_shard.h"

namespace tenuto {

// Whether a file of a checkpoint of server shards may have this name: no folder in it, and .state
// at its end.
bool is_state_file(std::string_view name);

// What a checkpoint of server shards says beside its step.
struct ServedState {
  int64_t version = 0;  // updates since initialisation
  int64_t mass = 0;     // micro-batches in these updates
  auto operator<=>(const ServedState&) const = default;
};

// The content of a manifest.
struct Manifest {
  int64_t step = 0;  // version of the parameters: steps taken since initialisation; server shards:
                     // their mass, divided by that of a step
  int64_t epoch = 0;
  std::string job;                // effective settings, TOML
  std::vector<Stage> partition;   // layers of each stage (holders are not kept)
  std::vector<SavedShard> files;  // one a stage; server shards: one a range, and the record
  std::optional<ServedState> servers = {};  // none: not of server shards
};

// Writes the manifest into RUN/checkpoint-STEP.tmp, makes all of it durable and renames the folder
// to checkpoint-STEP; returns that path.
//
// Errors: Exhausted/Job or Invalid/Job with the path and the system's reason
Result<std::string> finish_checkpoint(const std::string& run, const Manifest& manifest);

// The steps of all checkpoint folders in `run`, ascending.
std::vector<int64_t> list_checkpoints(const std::string& run);

// Reads the manifest of a checkpoint and checks every file against it, and the manifest itself
// against the folder's name and the settings that it holds.
//
// Errors: Corrupt/Job  missing or malformed manifest, missing, truncated or changed file; the
//                      sentence names the file, what was expected and what was found
Result<Manifest> verify_checkpoint(const std::string& path);

// The checkpoint of `step` (-1 = the newest), verified. `flag`: the command-line option that names
// a step, for the advice in errors.
//
// Errors: Invalid/Job  there is none
//         Corrupt/Job  it is damaged; the sentence ends with advise_older()
Result<Manifest> find_checkpoint(const std::string& run, int64_t step, std::string_view flag);

// Advice for when the checkpoint of `step` cannot be used: names the newest older checkpoint that
// is whole, or says that there is none.
std::string advise_older(const std::string& run, int64_t step, std::string_view flag);

// Removes the oldest checkpoints until `keep` are left.
void prune_checkpoints(const std::string& run, int32_t keep);

// Removes the folders of unfinished checkpoints of steps up to `last_step`, but not of later ones:
// workers may be writing the next checkpoint already.
void remove_unfinished(const std::string& run, int64_t last_step);

// A checkpoint that has been set aside: its step, and the name of its folder from now on.
struct SetAside {
  int64_t step = 0;
  std::string name;
  auto operator<=>(const SetAside&) const = default;
};

// Renames the checkpoints of steps after `after_step` to checkpoint-STEP.aside, where nothing reads
// or removes them: otherwise a run that goes on from an older step would use them as its own. If
// that name is taken, they become checkpoint-STEP.aside-2 and so on. Returns them in the order of
// their steps.
//
// Errors: Invalid/Job with the path and the system's reason
Result<std::vector<SetAside>> set_aside_checkpoints(const std::string& run, int64_t after_step);

}  // namespace tenuto
