// The embedded store: a file that only grows, one line for each change.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/store.h"

namespace tenuto {

// Opens the journal at `path`, or creates it, and keeps every other process from opening it until
// the store is destroyed. Each line carries a checksum (CRC-32C): a last line that a crash cut off
// is removed, since no worker was told of it. When the file has reached a mebibyte, the next write
// replaces it by a file with that line alone.
//
// Errors: Invalid/Job  another process has it open, or the file cannot be opened
//         Corrupt/Job  a line before the last one is not what was written; says which
Result<std::unique_ptr<Store>> open_journal(const std::string& path);

}  // namespace tenuto
