#include "bench/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <sstream>

#include "base/check.h"

namespace tenuto {

LineProcess::LineProcess(const std::vector<std::string>& words) {
  int in[2], out[2];
  // Closed on exec, or each program would hold the pipes of the others open.
  CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipes for a program");
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGPIPE, SIG_DFL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    std::perror(pointers[0]);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = LineReader(out[0]);
}

LineProcess::~LineProcess() {
  close(input_);
  close(output_.descriptor());
  for (int i = 0; i < 200; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(10000);
  }
  kill();
  waitpid(pid_, nullptr, 0);
}

void LineProcess::write(const std::string& line) {
  const std::string all = line + "\n";
  // If the program has ended, the caller notices it because no answer comes.
  if (::write(input_, all.data(), all.size()) < 0) return;
}

std::string LineProcess::read(int seconds) { return output_.next(seconds * 1000).value_or(""); }

void LineProcess::kill() { ::kill(pid_, SIGKILL); }

std::optional<std::string> LineReader::next(int milliseconds) {
  for (;;) {
    const size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    pollfd wanted{descriptor_, POLLIN, 0};
    if (has_ended_ || poll(&wanted, 1, milliseconds) <= 0) return {};
    char bytes[4096];
    const ssize_t count = ::read(descriptor_, bytes, sizeof bytes);
    has_ended_ = count <= 0;
    if (count > 0) rest_.append(bytes, static_cast<size_t>(count));
  }
}

std::vector<double> numbers_of(const std::string& line) {
  std::vector<double> numbers;
  std::istringstream words(line);
  std::string word;
  while (words >> word) {
    char* end = nullptr;
    numbers.push_back(std::strtod(word.c_str(), &end));
    if (*end != '\0') return {};
  }
  return numbers;
}

}  // namespace tenuto
