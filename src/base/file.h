// Files: this project reads and writes its files through these classes.
//
// Only plain files are read. A pipe or a device could block its reader for ever, or never end, so
// they are refused at once. A plain file, old or new, is written whole or not at all; anything else
// (a device, a pipe) is written in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// The largest file that read_file takes: above any schedule and most traces, and fits in memory.
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
  // The file's size in bytes when it was opened; 0 for the files of /proc.
  int64_t size() const { return size_; }
  // The path that was opened.
  const std::string& path() const { return path_; }
  // Reads from byte `from` on until `into` is full or the file ends; returns the number of bytes
  // read. Invalid/Call with the path and the system's reason.
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

// A file that is written from begin to end. For a plain file, old or new, finish() puts the new
// content in place in one step; before that, or if it is never called, nothing changes. Symbolic
// links are followed and stay. A device, a pipe or an open descriptor (/dev/stdout) is written in
// place.
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept = delete;
  ~OutputFile();
  // `mode`: the access rights of a new file. An existing file keeps its rights; if `mode` is not
  // 0644, rights that `mode` lacks are removed. Waits a short while for a pipe to get a reader.
  //
  // Errors: those of write_error, also for a folder
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
  std::string path_;        // as the caller named it
  std::string target_;      // path_ with symbolic links followed; empty when written in place
  std::string unfinished_;  // the temporary name; empty while the file has none
  int descriptor_ = -1;
};

// Called after each piece of a file that is written or read in the background, by the thread that
// does it. It may wait before it returns. False: the rest is not wanted any more.
using AfterPiece = std::function<bool()>;

// The size in bytes of such a piece; the last one of a file or tensor may be smaller.
inline constexpr size_t kPieceBytes = size_t{1} << 20;

// The error of a file of which the rest was not wanted any more: Cancelled/Call.
Error not_wanted(const std::string& path);

// Writes a whole file through an OutputFile. Errors: Exhausted/Job when the disk is full, else
// Invalid/Job, with path and reason
Status write_file(const std::string& path, std::string_view text, unsigned mode = 0644);

// Makes the names in a folder durable.
Status sync_directory(const std::string& path);

// The error of a write that failed with `number` (an errno): Exhausted/Job when the disk is full.
Error write_error(const std::string& path, int number);

// A file that only grows, a line at a time; each line is handed to the system at once.
class LineFile {
 public:
  LineFile() = default;
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();
  // Opens for appending, making the file when there is none. Removes an incomplete last line, which
  // a killed writer left behind.
  static Result<LineFile> open(const std::string& path);
  // Appends `line` and an end of line, all or nothing.
  Status write(const std::string& line);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tenuto
