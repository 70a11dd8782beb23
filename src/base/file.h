// Files: the one way in which this project opens them to read and to write.
//
// What is read is a plain file. A pipe or a device could make its reader wait for ever or never
// end, so they are refused at once. What is written to a plain file, or to a name that is free, is
// there whole or not at all; anything else (a device, a pipe) is written in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// The most that read_file takes: above any schedule and most traces, and little enough to hold.
inline constexpr int64_t kMostFileBytes = int64_t{1} << 30;

// A plain file, opened to read.
class InputFile {
 public:
  InputFile() = default;
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();
  // Never waits. Invalid/Call with the path when there is no such file, when it cannot be read, and
  // when it is a folder, a pipe, a device or a socket.
  static Result<InputFile> open(const std::string& path);
  // The bytes that it had when it was opened; 0 for the files of /proc.
  int64_t size() const { return size_; }
  // The path that was opened.
  const std::string& path() const { return path_; }
  // Reads from byte `from` on until `into` is full or the file ends; how many bytes it was.
  // Invalid/Call with the path and the system's reason.
  Result<size_t> read(int64_t from, std::span<std::byte> into) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// The whole content of a plain file of `most` bytes at most.
//
// Errors: InputFile's; Invalid/Call for a larger file, with its size and the limit
Result<std::string> read_file(const std::string& path, int64_t most = kMostFileBytes);

// The whole content of an opened file, in the same way.
Result<std::string> read_file(const InputFile& file, int64_t most = kMostFileBytes);

// A file that is written from begin to end. Where a plain file is or will be, the new content
// takes its place at once when it is finished, and until then, or when it never is, nothing
// changes. Symbolic links are followed and stay; an existing file keeps its rights. A device, a
// pipe or an open descriptor (/dev/stdout) is written in place.
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept = delete;
  ~OutputFile();
  // `mode`: who may read a new file. A pipe that nobody reads from is waited for a short while.
  //
  // Errors: those of write_error, for a folder, too
  static Result<OutputFile> create(const std::string& path, unsigned mode = 0644);
  // Appends. Errors: those of write_error
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // Makes the content durable and gives it its name. Errors: those of write_error
  Status finish();

 private:
  OutputFile() = default;
  Status open_unfinished(const std::string& target, unsigned mode);
  Status open_in_place(const std::string& target);
  std::string path_;        // as it was named
  std::string target_;      // where symbolic links lead; empty when it is written in place
  std::string unfinished_;  // the name until it is finished; empty while it has none
  int descriptor_ = -1;
};

// The whole of an OutputFile. Errors: Exhausted/Job when the disk is full, else Invalid/Job, with
// path and reason
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
