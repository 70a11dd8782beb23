// The files of a checkpoint, as workers write them and the coordinator reads them: where they lie,
// and the size and the checksum of each.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "protocol/report.h"

namespace tenuto {

// The file with the decider's record, in a checkpoint of server shards.
inline constexpr const char* kRecordFile = "record.state";

// What the names of checkpoints begin with, and what those of unfinished ones end with.
inline constexpr const char* kCheckpointPrefix = "checkpoint-";
inline constexpr const char* kUnfinished = ".tmp";

// RUN/checkpoint-STEP.
std::string checkpoint_path(const std::string& run, int64_t step);

// RUN/checkpoint-STEP.tmp, where the files are written.
std::string unfinished_path(const std::string& run, int64_t step);

// Reads the file `directory`/`file`, which holds the state of a stage as of `version`, from its
// beginning to its end.
//
// `after_piece`: called after each piece that was read.
//
// Errors: as InputFile says; Cancelled/Call when after_piece returned false
Result<SavedShard> describe_shard(const std::string& directory, const std::string& file,
                                  int64_t version, const AfterPiece& after_piece = {});

}  // namespace tenuto
