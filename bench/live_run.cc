#include "bench/live_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/text.h"
#include "bench/runs.h"

namespace tenuto {

namespace {

namespace fs = std::filesystem;

constexpr useconds_t kPause = 20000;  // between two looks, in us

// A file of /proc; empty when the process has ended.
std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t lines_in(const fs::path& path) {
  const std::string text = text_of(path);
  return std::count(text.begin(), text.end(), '\n');
}

// The words of a process's command line.
std::vector<std::string> words_of(const std::string& process) {
  std::vector<std::string> words;
  std::istringstream text(text_of(fs::path("/proc") / process / "cmdline"));
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

// What the kernel tells of a process behind its name in brackets: its state, its parent, and so on.
std::istringstream behind_name(pid_t process) {
  const std::string stat = text_of(cat("/proc/", process, "/stat"));
  return std::istringstream(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
}

// The numbers of the sockets that a process has.
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> found;
  std::error_code gone;
  for (const auto& each : fs::directory_iterator(cat("/proc/", process, "/fd"), gone)) {
    const std::string to = fs::read_symlink(each.path(), gone).string();
    if (to.starts_with("socket:[")) found.insert(to.substr(8, to.size() - 9));
  }
  return found;
}

}  // namespace

LiveRun::LiveRun(const std::string& tenuto, const fs::path& folder)
    : folder_(folder / "runs" / "run"), log_(folder / "log") {
  const std::string file = (folder / "job.toml").string(), log = log_.string();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) give_up("no more processes");
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (getppid() != parent || out < 0) _exit(127);
  dup2(out, 1);
  dup2(out, 2);
  execl(tenuto.c_str(), tenuto.c_str(), "train", file.c_str(), "--json", nullptr);
  std::perror(tenuto.c_str());
  _exit(127);
}

// The workers and the coordinator end with the launcher, whatever ends it.
LiveRun::~LiveRun() {
  if (has_ended()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool LiveRun::has_ended() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

void LiveRun::wait_for(int64_t steps, Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  while (this->steps() < steps) {
    if (has_ended()) give_up(cat("a run ended too soon: ", text_of(log_)));
    if (monotonic_clock().now() > end) give_up(cat("a run hangs: ", text_of(log_)));
    usleep(kPause);
  }
}

int64_t LiveRun::steps() const { return lines_in(folder_ / "metrics.jsonl"); }

void LiveRun::finish(Duration limit) {
  const Duration end = monotonic_clock().now() + limit;
  while (!has_ended()) {
    if (monotonic_clock().now() > end) give_up(cat("a run does not end: ", text_of(log_)));
    usleep(kPause);
  }
  if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) {
    give_up(cat("a run failed: ", text_of(log_)));
  }
}

// Only workers are told whose children they are.
std::vector<pid_t> LiveRun::children(bool workers) const {
  std::vector<pid_t> found;
  std::error_code failure;
  for (const auto& each : fs::directory_iterator("/proc", failure)) {
    const std::string name = each.path().filename().string();
    pid_t process = 0, parent = 0;
    std::from_chars(name.data(), name.data() + name.size(), process);
    if (process == 0) continue;
    std::string state;
    behind_name(process) >> state >> parent;
    const std::vector<std::string> words = words_of(name);
    const bool works = std::find(words.begin(), words.end(), "--parent") != words.end();
    if (parent == pid_ && works == workers) found.push_back(process);
  }
  return found;
}

std::vector<std::string> LiveRun::ports_of(pid_t process) {
  const std::set<std::string> own = sockets_of(process);
  std::vector<std::string> found;
  std::istringstream lines(text_of(cat("/proc/", process, "/net/tcp")));
  for (std::string line; std::getline(lines, line);) {
    // number, local address, remote one, state (0A = listens), four others, the socket
    std::istringstream words(line);
    std::string number, local, remote, state, other, socket;
    words >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) words >> other;
    words >> socket;
    const size_t colon = local.find(':');
    if (state != "0A" || colon == std::string::npos || !own.contains(socket)) continue;
    found.push_back(cat("127.0.0.1:", std::stoi(local.substr(colon + 1), nullptr, 16)));
  }
  return found;
}

ProcessFigures LiveRun::figures_of(pid_t process) {
  ProcessFigures figures;
  std::istringstream status(text_of(cat("/proc/", process, "/status")));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) figures.memory_mib = std::atof(line.c_str() + 6) / 1024;
  }
  // The state, ten numbers, then user and system time in ticks.
  std::istringstream words = behind_name(process);
  std::string other;
  for (int i = 0; i < 11; ++i) words >> other;
  double user = 0, system = 0;
  words >> user >> system;
  figures.processor = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return figures;
}

int64_t LiveRun::log_lines() const {
  int64_t lines = lines_in(log_);
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(folder_, failure)) {
    if (each.path().extension() == ".log") lines += lines_in(each.path());
  }
  return lines;
}

}  // namespace tenuto
