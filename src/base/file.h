// Small files, whole and durable.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// The whole content of a file; Invalid/Call with the path and the system's reason.
Result<std::string> read_file(const std::string& path);

// Puts `text` in place of `path` at once: written under another name, made durable, renamed.
//
// `mode`: who may read it. Errors: Exhausted/Job when the disk is full, else Invalid/Job, with path
// and reason
Status write_file(const std::string& path, std::string_view text, unsigned mode = 0644);

// Makes the names in a folder durable.
Status sync_directory(const std::string& path);

// The error of a write that failed with `number` (an errno): Exhausted/Job when there is no room.
Error write_error(const std::string& path, int number);

// A file that only grows, a line at a time; each line is handed to the system at once.
class LineFile {
 public:
  LineFile() = default;
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();
  // Opens for appending, making the file when there is none. A last line that is not whole, because
  // its writer was killed, is taken away.
  static Result<LineFile> open(const std::string& path);
  // Appends `line` and an end of line, all or nothing.
  Status write(const std::string& line);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tenuto
