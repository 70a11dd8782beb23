// A program that reads requests and writes answers as lines, and that dies with this process.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace tenuto {

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

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string rest_;  // what was read beyond the last line
};

// The numbers of a line; empty when one of its words is no number.
std::vector<double> numbers_of(const std::string& line);

}  // namespace tenuto
