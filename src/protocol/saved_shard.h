// The description of a file of a checkpoint: its size and its checksum.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "protocol/report.h"

namespace tenuto {

// Reads the file `directory`/`file`, which holds the state of a stage as of `version`, from its
// beginning to its end.
//
// Errors: as InputFile says
Result<SavedShard> describe_shard(const std::string& directory, const std::string& file,
                                  int64_t version);

}  // namespace tenuto
