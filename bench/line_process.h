// A program that reads requests and writes answers as lines, and that dies with this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tenuto {

// Lines from a pipe, as they come.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  // The next line without its end; none when it is not here within so many milliseconds.
  std::optional<std::string> next(int milliseconds);
  // The other end is closed; a last line without an end is left out.
  bool has_ended() const { return has_ended_; }
  // To poll: becomes readable when something comes.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  std::string rest_;  // what was read beyond the last line
  bool has_ended_ = false;
};

// The program, with pipes to its standard input and from its standard output; it shares our
// standard error.
class LineProcess {
 public:
  explicit LineProcess(const std::vector<std::string>& words);
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;
  // Closes its input, and kills it if it does not soon end by itself.
  ~LineProcess();

  void write(const std::string& line);
  // The next line without its end; empty when the program has ended or said nothing for `seconds`.
  std::string read(int seconds);
  // Its lines, for a caller that waits for several programs.
  LineReader& output() { return output_; }
  // Kills it with SIGKILL.
  void kill();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  LineReader output_{-1};
};

// The numbers of a line; empty when one of its words is no number.
std::vector<double> numbers_of(const std::string& line);

}  // namespace tenuto
