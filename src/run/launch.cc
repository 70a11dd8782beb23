#include "run/launch.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "run/descriptor.h"

extern char** environ;

namespace tenuto {
namespace {

// This process's environment with the worker's own entries in front.
std::vector<std::string> environment_with(const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& of : own) replaced = replaced || of.rfind(name, 0) == 0;
    if (!replaced) all.push_back(text);
  }
  return all;
}

// The words with the worker's number in the place of each {worker}.
std::vector<std::string> with_number(const std::vector<std::string>& words, WorkerId worker) {
  constexpr std::string_view kPlace = "{worker}";
  const std::string number = cat(worker);
  std::vector<std::string> all = words;
  for (std::string& word : all) {
    for (size_t at = 0; (at = word.find(kPlace, at)) != std::string::npos; at += number.size()) {
      word.replace(at, kPlace.size(), number);
    }
  }
  return all;
}

// The command-line arguments with which a worker process takes part in a run.
std::vector<std::string> run_task(const LaunchSettings& settings, WorkerId worker,
                                  int32_t incarnation) {
  std::vector<std::string> words = {"run",       "--coordinator", settings.coordinator,
                                    "--job",     settings.job,    "--worker",
                                    cat(worker), "--incarnation", cat(incarnation)};
  if (!settings.tls.empty()) words.insert(words.end(), {"--tls", settings.tls});
  return words;
}

// What the environment of a script says of its worker, in place of command-line arguments.
std::vector<std::string> script_entries(const LaunchSettings& settings, WorkerId worker,
                                        int32_t incarnation) {
  const auto self = std::find(settings.workers.begin(), settings.workers.end(), worker);
  const auto count = static_cast<int32_t>(settings.workers.size());
  return {cat("TENUTO_TOKEN=", settings.token),
          cat("TENUTO_COORDINATOR=", settings.coordinator),
          cat("TENUTO_JOB=", settings.job),
          cat("TENUTO_WORKER=", worker),
          cat("TENUTO_INCARNATION=", incarnation),
          cat("TENUTO_TLS=", settings.tls),
          cat("TENUTO_PARENT=", getpid()),
          cat("RANK=", worker),
          cat("LOCAL_RANK=", self - settings.workers.begin()),
          cat("WORLD_SIZE=", settings.worker_count > 0 ? settings.worker_count : count),
          cat("LOCAL_WORLD_SIZE=", count),
          "PYTHONUNBUFFERED=1"};
}

// The command-line arguments of a hog on the processors of the process `like`.
std::vector<std::string> hog_task(const LaunchSettings& settings, const Hog& hog, int like) {
  std::vector<std::string> words = {"hog"};
  if (hog.threads > 0) {
    words.insert(words.end(), {"--threads", cat(hog.threads), "--like", cat(like)});
  } else {
    words.insert(words.end(), {"--device", settings.device, "--megabytes-per-second",
                               cat(hog.megabytes_per_second)});
  }
  words.insert(words.end(), {"--for-ms", cat(hog.for_ms), "--parent", cat(getpid())});
  return words;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Turns the new process into the program. The kernel kills it when this process ends, also while
// the program is still being loaded. Returns the errno of what went wrong. Makes only calls that
// are safe between fork and exec.
int become(int log, pid_t parent, char** arguments, char** environment) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != parent) _exit(1);  // the parent has died before the call above
  const int input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) return errno;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ}) {
    std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // exec closes the pipe that reports a failure, and all other descriptors that were inherited.
  (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execvpe(arguments[0], arguments, environment);
  return errno;
}

// Waits for the end of a process that has ended, or was told to.
void await_end(int pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Starts a program; 0, or the errno of what went wrong.
int spawn(const std::string& log_path, std::vector<std::string>& arguments,
          std::vector<std::string>& environment, pid_t& pid) {
  const Descriptor log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.number() < 0) return errno;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  const Descriptor from(ends[0]);
  auto to = std::make_unique<Descriptor>(ends[1]);
  const std::vector<char*> words = pointers(arguments), entries = pointers(environment);
  const pid_t self = getpid();
  pid = fork();
  if (pid < 0) return errno;
  if (pid == 0) {
    const int failure = become(log.number(), self, const_cast<char**>(words.data()),
                               const_cast<char**>(entries.data()));
    [[maybe_unused]] const ssize_t told = write(to->number(), &failure, sizeof(failure));
    _exit(127);
  }
  to.reset();
  int failure = 0;
  ssize_t count = 0;
  while ((count = read(from.number(), &failure, sizeof(failure))) < 0 && errno == EINTR) {
  }
  if (count != sizeof(failure)) return 0;  // closed by exec
  await_end(pid);
  return failure;
}

int64_t size_of(const std::string& path) {
  std::error_code none;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, none));
  return none ? 0 : size;
}

// The last line of a file that begins behind `begin`, cut short; empty when there is none.
std::string last_line(const std::string& path, int64_t begin) {
  constexpr int64_t kMost = 300;
  const auto file = InputFile::open(path);
  if (!file.ok()) return {};
  std::string text(kMost, '\0');
  const auto count = file.value().read(std::max(begin, file.value().size() - kMost),
                                       std::as_writable_bytes(std::span(text)));
  text.resize(count.ok() ? count.value() : 0);
  text.erase(text.find_last_not_of(" \r\n\t") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Launcher::~Launcher() { finish(Duration{}); }

Status Launcher::start(const LaunchSettings& settings) {
  settings_ = settings;
  for (const WorkerId worker : settings.workers) {
    const Status started = start_one(worker, settings.first_incarnation);
    if (!started.ok()) {
      finish(Duration{});
      return started;
    }
  }
  return ok();
}

Status Launcher::start_again(WorkerId worker) {
  int32_t started = 0;
  for (const Child& child : children_) {
    if (child.worker != worker) continue;
    if (child.pid >= 0) {
      return invalid(cat("worker ", worker, " is running as process ", child.pid,
                         ": only a worker that has ended can be started again"));
    }
    ++started;
  }
  if (settings_.program.empty()) {
    return invalid(
        cat("worker ", worker, " was not started by this launcher: start it on its own host"));
  }
  return start_one(worker, settings_.first_incarnation + started);
}

Status Launcher::start_one(WorkerId worker, int32_t incarnation) {
  const std::string log = cat(settings_.directory, "/worker-", worker, ".log");
  std::vector<std::string> arguments = with_number(settings_.prefix, worker);
  arguments.push_back(settings_.program);
  std::vector<std::string> environment;
  if (settings_.script.empty()) {
    const std::vector<std::string> task = settings_.task.empty()
                                              ? run_task(settings_, worker, incarnation)
                                              : with_number(settings_.task, worker);
    arguments.insert(arguments.end(), task.begin(), task.end());
    arguments.insert(arguments.end(), {"--parent", cat(getpid())});
    environment = environment_with({"TENUTO_TOKEN=" + settings_.token});
  } else {
    arguments.insert(arguments.end(), settings_.script.begin(), settings_.script.end());
    environment = environment_with(script_entries(settings_, worker, incarnation));
  }
  const int64_t said = size_of(log);
  pid_t pid = -1;
  const std::string program = arguments.front();
  const int failure = spawn(log, arguments, environment, pid);
  if (failure != 0) {
    return Error{Code::Invalid, Reach::Job,
                 cat("cannot start worker ", worker, " (", program,
                     settings_.prefix.empty() ? "" : " of coordinator.launch", ", log ", log,
                     "): ", std::strerror(failure))};
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  children_.push_back({worker, pid, descriptor, log, said});
  return ok();
}

std::vector<int> Launcher::descriptors() const {
  std::vector<int> all;
  for (const Child& child : children_) {
    if (child.pid >= 0 && child.descriptor >= 0) all.push_back(child.descriptor);
  }
  return all;
}

std::vector<Exited> Launcher::reap() {
  std::vector<Exited> ended;
  for (Child& child : children_) {
    int status = 0;
    if (child.pid < 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    const bool signalled = WIFSIGNALED(status);
    Exited exited{child.worker, signalled, signalled ? WTERMSIG(status) : WEXITSTATUS(status), {}};
    if (exited.number != 0 && !signalled) exited.last_words = last_line(child.log, child.log_begin);
    ended.push_back(std::move(exited));
    if (child.descriptor >= 0) close(child.descriptor);
    child.pid = child.descriptor = -1;
  }
  return ended;
}

Status Launcher::signal(WorkerId worker, int number) {
  for (const Child& child : children_) {
    if (child.worker != worker || child.pid < 0) continue;
    if (kill(child.pid, number) == 0) return ok();
  }
  return invalid(cat("worker ", worker, " has no process here: it has ended, or was started by ",
                     "someone else"));
}

Status Launcher::start_hog(const Hog& hog) {
  end_hog(hog.number);
  const auto beside = std::find_if(children_.begin(), children_.end(), [&](const Child& child) {
    return child.worker == hog.worker && child.pid >= 0;
  });
  if (beside == children_.end()) {
    return invalid(cat("no hog is started beside worker ", hog.worker,
                       ": it has ended, or was started by someone else"));
  }
  std::vector<std::string> arguments = with_number(settings_.prefix, hog.worker);
  arguments.push_back(settings_.hog_program.empty() ? settings_.program : settings_.hog_program);
  const std::vector<std::string> task = hog_task(settings_, hog, beside->pid);
  arguments.insert(arguments.end(), task.begin(), task.end());
  std::vector<std::string> environment = environment_with({"TENUTO_TOKEN="});
  const int64_t said = size_of(hog_log());
  const std::string program = arguments.front();
  pid_t pid = -1;
  const int failure = spawn(hog_log(), arguments, environment, pid);
  if (failure != 0) {
    return Error{Code::Invalid, Reach::Job,
                 cat("cannot start a hog beside worker ", hog.worker, " (", program, ", log ",
                     hog_log(), "): ", std::strerror(failure))};
  }
  hogs_.push_back({hog, pid, said});
  return ok();
}

void Launcher::end_hog(int32_t number) {
  std::erase_if(hogs_, [&](const HogChild& child) {
    if (child.hog.number != number) return false;
    kill(child.pid, SIGKILL);
    await_end(child.pid);
    return true;
  });
}

void Launcher::end_all_hogs() {
  for (const HogChild& child : hogs_) kill(child.pid, SIGKILL);
  for (const HogChild& child : hogs_) await_end(child.pid);
  hogs_.clear();
}

std::vector<std::string> Launcher::reap_hogs() {
  std::vector<std::string> troubles;
  std::erase_if(hogs_, [&](const HogChild& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    const std::string fate = WIFSIGNALED(status)
                                 ? cat("was killed by signal ", WTERMSIG(status))
                                 : cat("ended with exit code ", WEXITSTATUS(status));
    const std::string said = last_line(hog_log(), child.log_begin);
    troubles.push_back(
        cat("the hog beside worker ", child.hog.worker, " ", fate, said.empty() ? "" : ": ", said));
    return true;
  });
  return troubles;
}

int32_t Launcher::alive() const {
  int32_t count = 0;
  for (const Child& child : children_) count += child.pid >= 0 ? 1 : 0;
  return count;
}

void Launcher::finish(Duration limit) {
  end_all_hogs();
  const Duration end = monotonic_clock().now() + limit;
  reap();
  while (alive() > 0 && monotonic_clock().now() < end) {
    std::vector<pollfd> waits;
    for (const int descriptor : descriptors()) waits.push_back({descriptor, POLLIN, 0});
    poll(waits.data(), waits.size(), 20);
    reap();
  }
  for (const Child& child : children_) {
    if (child.pid >= 0) kill(child.pid, SIGKILL);
  }
  for (Child& child : children_) {
    if (child.pid < 0) continue;
    await_end(child.pid);
    if (child.descriptor >= 0) close(child.descriptor);
    child.pid = child.descriptor = -1;
  }
}

}  // namespace tenuto
