#include "app/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// posix_spawn's two attribute objects, freed together.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

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

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// The last line of a file, cut short; empty when there is none.
std::string last_line(const std::string& path) {
  constexpr int64_t kMost = 300;
  const auto file = InputFile::open(path);
  if (!file.ok()) return {};
  std::string text(kMost, '\0');
  const auto count = file.value().read(std::max(int64_t{0}, file.value().size() - kMost),
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
    const Status started = start_one(worker, 0);
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
      return invalid(cat("worker ", worker, " lives, as process ", child.pid,
                         ": only one that has ended is started again"));
    }
    ++started;
  }
  if (settings_.program.empty()) {
    return invalid(cat("worker ", worker, " was not started here: start it where it was"));
  }
  return start_one(worker, started);
}

Status Launcher::start_one(WorkerId worker, int32_t incarnation) {
  const std::string log = cat(settings_.directory, "/worker-", worker, ".log");
  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&plan.files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  posix_spawn_file_actions_adddup2(&plan.files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&plan.files, 3);
  sigset_t none, standard;
  sigemptyset(&none);
  sigemptyset(&standard);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) {
    sigaddset(&standard, signal);
  }
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setsigdefault(&plan.attributes, &standard);
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> arguments = with_number(settings_.prefix, worker);
  arguments.insert(
      arguments.end(),
      {settings_.program, "run", "--coordinator", settings_.coordinator, "--job", settings_.job,
       "--worker", cat(worker), "--incarnation", cat(incarnation), "--parent", cat(getpid())});
  if (!settings_.tls.empty()) arguments.insert(arguments.end(), {"--tls", settings_.tls});
  std::vector<std::string> environment = environment_with({"TENUTO_TOKEN=" + settings_.token});
  int pid = -1;
  const std::string program = arguments.front();
  const int failure = posix_spawnp(&pid, program.c_str(), &plan.files, &plan.attributes,
                                   pointers(arguments).data(), pointers(environment).data());
  if (failure != 0) {
    return Error{Code::Invalid, Reach::Job,
                 cat("cannot start worker ", worker, " (", program,
                     settings_.prefix.empty() ? "" : " of coordinator.launch", ", log ", log,
                     "): ", std::strerror(failure))};
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  children_.push_back({worker, pid, descriptor, log});
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
    if (exited.number != 0 && !signalled) exited.last_words = last_line(child.log);
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
  return invalid(cat("worker ", worker, " has no process here: it has ended, or it was started by ",
                     "someone else"));
}

int32_t Launcher::alive() const {
  int32_t count = 0;
  for (const Child& child : children_) count += child.pid >= 0 ? 1 : 0;
  return count;
}

void Launcher::finish(Duration limit) {
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
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (child.descriptor >= 0) close(child.descriptor);
    child.pid = child.descriptor = -1;
  }
}

Result<std::string> find_program(const std::string& name) {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  const fs::path beside = self.parent_path() / name;
  const fs::path inside = self.parent_path().parent_path() / "libexec" / "tenuto" / name;
  for (const fs::path& path : {beside, inside}) {
    if (access(path.c_str(), X_OK) == 0) return path.string();
  }
  return Error{Code::Invalid, Reach::Job,
               cat("cannot find the program ", name, ": searched ", beside.string(), " and ",
                   inside.string(), "; build or install it there")};
}

}  // namespace tenuto
