#include "run/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "run/descriptor.h"

namespace tenuto {

namespace {

constexpr size_t kMostOutput = size_t{1} << 20;

// Starts the program with the descriptor as output and error output. Returns the errno.
int start(const std::vector<std::string>& words, int output, pid_t& child) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  const int failure =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

// Reads until the other end is closed. False = it was not closed in time.
bool read_all(int from, Duration until, std::string& text) {
  std::array<char, 4096> block{};
  while (true) {
    const Duration left = until - monotonic_clock().now();
    if (left <= Duration{}) return false;
    pollfd waits{from, POLLIN, 0};
    const int ready = ::poll(&waits, 1, static_cast<int>(to_milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t count = ::read(from, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    const size_t space = kMostOutput - std::min(kMostOutput, text.size());
    text.append(block.data(), std::min(space, static_cast<size_t>(count)));
  }
}

}  // namespace

Result<std::string> run_program(const std::vector<std::string>& words, Duration limit) {
  const std::string& name = words.front();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return invalid(cat("cannot start ", name, ": ", std::strerror(errno)));
  }
  const Descriptor from(ends[0]);
  auto to = std::make_unique<Descriptor>(ends[1]);
  pid_t child = -1;
  const int failure = start(words, to->number(), child);
  to.reset();
  if (failure != 0) return invalid(cat("cannot start ", name, ": ", std::strerror(failure)));
  std::string text;
  const bool has_ended = read_all(from.number(), monotonic_clock().now() + limit, text);
  if (!has_ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended) {
    return Error{Code::Timeout, Reach::Call,
                 cat(name, " has not ended within ", to_milliseconds(limit) / 1000, " s")};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return invalid(cat(name, " failed: ", text.substr(0, text.find('\n'))));
}

}  // namespace tenuto
