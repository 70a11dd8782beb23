// The files that a command writes. None gets its name before all are written.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace tenuto {

// Opens files, takes their content, and in finish() gives them their names one after the other. If
// something fails before the first has its name, files that were there before stay as they are, no
// new file appears, and the folders that were made are removed. Devices and pipes are written in
// place at once.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();

  // Opens a file. A command calls this before a long computation, to fail early if it cannot write
  // the file. Does nothing for an empty path. Errors: those of OutputFile::create
  Status open(const std::string& path);
  // Makes a folder and all folders above it. Errors: Invalid/Job
  Status make_folder(const std::string& path);
  // Adds content to a file; opens the file if it is not open. Errors: those of OutputFile
  Status write(const std::string& path, std::string_view text);
  // Gives all files their names. Errors: those of OutputFile
  Status finish();

 private:
  OutputFile* find(const std::string& path);

  std::vector<std::pair<std::string, OutputFile>> files_;
  std::vector<std::string> folders_;  // the folders that were made, the highest first
};

// A flag, and the file that it names.
struct NamedFile {
  std::string flag, path;  // empty path: no file
};

// Refuses an output file that is also an input file, or that two flags name.
//
// Errors: Invalid/Call with both flags
Status check_names(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace tenuto
