// The paced device's weights as a safetensors file, one per stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "runtime/state_copy.h"

namespace tenuto {

// What the file of a stage holds; the bytes are those of `weights`.
StateTensors paced_tensors(StageId stage, int32_t stage_count, int64_t version,
                           const std::vector<float>& weights);

// Reads the weights of a stage from whichever of `paths` has them.
//
// Errors: Corrupt/Job for a damaged file; Invalid/Job when no file has the stage, or the file is of
//         another version, count of stages or size
Result<std::vector<float>> load_paced(const std::vector<std::string>& paths, StageId stage,
                                      int32_t stage_count, int64_t version, size_t count);

}  // namespace tenuto
