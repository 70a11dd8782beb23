// The files of a checkpoint of a run with server shards: the state of each range of the parameters,
// which its keeper writes, and the record of the decider at the same version
// (sync/servers/message.h). All keepers that have this record write it, with the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "ir/mass.h"
#include "parameter_server/host_message.h"
#include "protocol/saved_shard.h"
#include "sync/servers/server_shard.h"

namespace tenuto {

// The name of the file with a range's state: "stage-0-range-0-1024.state".
std::string range_file_name(const servers::ElementRange& range);

// Where the files of a state with so much applied mass belong while the checkpoint is not complete:
// DIRECTORY/checkpoint-STEP.tmp, of the last step that is done.
//
// Units: `full`: micro-batches of a step, above 0
std::string unfinished_folder(const std::string& directory, Mass applied, Mass full);

// Writes the state of a range into the folder, which is made if it is not there, and the record if
// the state has one. Returns what was written, once that is durable.
//
// Errors: those of write_file and describe_shard; Invalid/Job  the folder cannot be made
Result<std::vector<servers::SavedFile>> write_range(const std::string& folder,
                                                    const servers::ElementRange& range,
                                                    const servers::SavedState& state);

// The path, among those of a checkpoint, of this file; none = it is not among them.
std::optional<std::string> path_of(const std::vector<std::string>& paths, const std::string& file);

// The state of a range: what ParameterStore::load takes. It is as its keeper has written it, or put
// together from the files of other ranges, if the checkpoint is of another number of servers.
//
// Errors: Corrupt/Job  elements that no file has, or that two have; files that do not fit together;
//         a file that has become shorter; those of InputFile
Result<servers::Payload> read_range(const std::vector<std::string>& paths,
                                    const servers::ElementRange& range);

// All parameters of a stage, in the layout of GivenParameters.
//
// Errors: those of read_range; Corrupt/Job  the checkpoint has no parameters of this stage
Result<std::vector<float>> read_parameters(const std::vector<std::string>& paths, StageId stage);

// The record, as it was written.
//
// Errors: Corrupt/Job  the checkpoint has none, or these bytes are no record; those of InputFile
Result<servers::Record> read_record(const std::vector<std::string>& paths);

}  // namespace tenuto
