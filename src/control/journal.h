// The embedded store: a file that only grows, one line for each change.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/store.h"

namespace tenuto {

// Opens the journal at `path`, making it when there is none, and keeps every other process from
// doing so until the store goes. Each line carries a checksum (CRC-32C): a last line that was cut
// off by a crash is taken back, since nobody was told what it says. From a mebibyte on, the file is
// replaced by one with the last line alone.
//
// Errors: Invalid/Job  another process has it open (its number is in the sentence), or the file
//                      cannot be opened
//         Corrupt/Job  a line before the last one is not what was written; says which
Result<std::unique_ptr<Store>> open_journal(const std::string& path);

}  // namespace tenuto
