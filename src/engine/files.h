// The user's files: those that are named and those in named folders.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tenuto {

// One file of the user, read.
struct UserFile {
  std::string path;
  std::string bytes;
};

// Reads the files that `paths` name, folders at any depth, in the order of their full paths, each
// once. In folders, files with NUL bytes and symbolic links are left out.
//
// Errors: Invalid/Job   nothing named, a path that is not there or cannot be read, a named file
//                       with a NUL byte, folders without any text
Result<std::vector<UserFile>> read_user_files(const std::vector<std::string>& paths);

}  // namespace tenuto
