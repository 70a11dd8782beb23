// Trace files, which profilers often pack with gzip.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto::analysis {

// The content of a plain file, unpacked if it is gzip (known by its first bytes, not by its name).
//
// Errors: those of read_file; Invalid/Call with the path for gzip that is cut off or damaged, and
//         for content above kMostFileBytes
Result<std::string> read_packed_file(const std::string& path);

}  // namespace tenuto::analysis
