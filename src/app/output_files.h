// The files that a command writes: all of them, or none.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace tenuto {

// Opens files, takes their content, and at the end gives all of them their names. Until then, or
// when something fails, files that were there before stay as they are, no new file appears, and
// folders that were made are removed. A device or a pipe gets its content in place at once.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();

  // Opens a file, so that a name that cannot be written is known before a long computation. Does
  // nothing for the empty name. Errors: those of OutputFile::create
  Status open(const std::string& path);
  // Makes a folder and all folders above it. Errors: Invalid/Job
  Status make_folder(const std::string& path);
  // The content of a file; opens it when it is not open. Errors: those of OutputFile
  Status write(const std::string& path, std::string_view text);
  // Gives all files their names. Errors: those of OutputFile
  Status finish();

 private:
  OutputFile* find(const std::string& path);

  std::vector<std::pair<std::string, OutputFile>> files_;
  std::vector<std::string> folders_;  // that were made, the highest first
};

// A file that a flag names.
struct NamedFile {
  std::string flag, path;  // an empty path names none
};

// Refuses output files that are among the input files, or that two flags name.
//
// Errors: Invalid/Call with both flags
Status check_names(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace tenuto
