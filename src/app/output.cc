// output_of: a program's stdout, with a limit on its time and on its length.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "app/doctor.h"
#include "base/clock.h"
#include "base/text.h"

extern char** environ;

namespace tenuto {

namespace {

// A description has a few lines; a program that prints more than this is refused.
constexpr size_t kMostOutput = 1 << 20;

// Reads until the other end is closed. False: the limit ran out or there was too much.
bool read_all(int from, Duration until, std::string& text) {
  char buffer[4096];
  while (text.size() < kMostOutput) {
    const Duration left = until - monotonic_clock().now();
    if (left <= Duration::zero()) return false;
    pollfd waiting{from, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(to_milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count == 0) return true;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) return false;
  }
  return false;
}

// Starts `command` with stdout in `to`, stdin empty and stderr dropped; the errno when it fails.
int start(const std::vector<std::string>& command, int to, pid_t& child) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

// Waits until a program that has closed its output ends, since it may live on. False: the limit ran
// out.
bool ends_until(Duration until, pid_t child, int& status) {
  while (::waitpid(child, &status, WNOHANG) != child) {
    if (monotonic_clock().now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& command, Duration limit) {
  CHECK(!command.empty(), "a program was expected");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return invalid(cat(command[0], ": cannot create a pipe: ", strerror(errno)));
  }
  pid_t child = -1;
  const int failed = start(command, ends[1], child);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return invalid(cat(command[0], " cannot be started: ", strerror(failed)));
  }
  std::string text;
  const Duration until = monotonic_clock().now() + limit;
  bool ended = read_all(ends[0], until, text);
  ::close(ends[0]);
  int status = 0;
  ended = ended && ends_until(until, child, status);
  if (!ended) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return Error{Code::Timeout, Reach::Call,
                 cat(command[0], " did not finish within ", to_milliseconds(limit) / 1000, " s")};
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error{Code::Disconnected, Reach::Call,
                 WIFEXITED(status) ? cat(command[0], " ended with exit code ", WEXITSTATUS(status))
                                   : cat(command[0], " was ended by signal ", WTERMSIG(status))};
  }
  return text;
}

}  // namespace tenuto
