#include "run/host_ledger.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/number.h"
#include "base/process_stat.h"
#include "base/sentence.h"
#include "base/text.h"
#include "run/descriptor.h"

namespace tenuto {

namespace {

constexpr std::string_view kTitle = "tenuto host ledger 1";
constexpr int64_t kMostBytes = 1 << 20;
constexpr auto kLockEvery = std::chrono::milliseconds(5);
constexpr size_t kMostUntold = 4;  // of a job that does not ask for them

// The lock of the ledger, as long as this object lives. A file of its own, because the ledger's is
// replaced by each job that writes it.
Result<std::unique_ptr<Descriptor>> take_lock(const std::string& ledger, Duration limit) {
  const std::string path = ledger + ".lock";
  auto file = std::make_unique<Descriptor>(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0666));
  if (file->number() < 0) return write_error(path, errno);
  const Duration end = monotonic_clock().now() + limit;
  while (flock(file->number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return write_error(path, errno);
    if (monotonic_clock().now() >= end) {
      return Error{Code::Timeout, Reach::Call,
                   cat("the ledger ", ledger, ": expected to lock ", path, " within ",
                       to_milliseconds(limit) / 1000,
                       " s, and another process holds it: see with `fuser` who does")};
    }
    std::this_thread::sleep_for(kLockEvery);
  }
  return file;
}

// The next line of the text, without its end, which is taken off.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

// What follows the word in a line that begins with it; none = the line begins otherwise.
std::optional<std::string_view> behind(std::string_view line, std::string_view word) {
  if (line.size() <= word.size() || !line.starts_with(word) || line[word.size()] != ' ') {
    return std::nullopt;
  }
  return line.substr(word.size() + 1);
}

// "4711 REST": the job, and the rest.
std::optional<std::pair<HostJob, std::string_view>> job_in(std::string_view text) {
  const size_t blank = text.find(' ');
  const auto number = number_in<int32_t>(text.substr(0, blank));
  if (blank == std::string_view::npos || !number || *number < 0) return std::nullopt;
  return std::pair(HostJob{*number}, text.substr(blank + 1));
}

int64_t allowed_cores() {
  cpu_set_t all;
  CPU_ZERO(&all);
  // There may be more processors than the set can name.
  if (sched_getaffinity(0, sizeof(all), &all) != 0) return sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&all);
}

}  // namespace

LedgerFileSettings ledger_file_here(const std::string& path, int64_t bytes_per_second) {
  LedgerFileSettings here;
  here.path = path;
  here.host = host_name();
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  const std::string id = boot.ok() ? boot.value() : std::string();
  here.boot = id.substr(0, id.find_first_of(" \n"));
  if (here.boot.empty()) here.boot = "unknown";
  const int64_t rate = std::clamp<int64_t>(bytes_per_second, 0, kMostHostAmount);
  here.capacity = {1000 * allowed_cores(), rate, rate};
  here.job = {getpid()};
  here.started_of = [](HostJob job) -> std::optional<int64_t> {
    const auto process = process_stat(job.value);
    if (!process || process->has_ended) return std::nullopt;
    return process->started;
  };
  here.started = here.started_of(here.job).value_or(0);
  here.now = [] {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
  };
  return here;
}

Result<SharedLedger::Content> SharedLedger::fresh() const {
  auto made = HostLedger::make(settings_.host, settings_.capacity, settings_.rules);
  if (!made.ok()) return made.error();
  return Content{std::move(made).value(), {}, {}};
}

// A file that is empty or missing is a ledger without jobs.
Result<SharedLedger::Content> SharedLedger::read() const {
  std::error_code failure;
  if (!std::filesystem::exists(settings_.path, failure)) return fresh();
  const auto file = read_file(settings_.path, kMostBytes);
  if (!file.ok()) return file.error();
  if (file.value().empty()) return fresh();
  std::string_view text = file.value();
  int64_t number = 1;
  std::string_view line = take_line(text);
  const auto refused = [&](const std::string& expected) {
    return invalid(cat(settings_.path, ": line ", number, ": expected ", expected, ", found \"",
                       excerpt(line), "\": end all jobs of this host, and remove the file"));
  };
  if (line != kTitle) return refused(cat("\"", kTitle, "\""));
  ++number;
  line = take_line(text);
  const auto boot = behind(line, "boot");
  if (!boot) return refused("\"boot ID\"");
  std::map<HostJob, int64_t> started;
  std::map<HostJob, std::vector<std::string>> untold;
  while (true) {
    const std::string_view rest = text;
    ++number;
    line = take_line(text);
    const auto process = behind(line, "process"), ended = behind(line, "ended");
    if (!process && !ended) {
      auto ledger = ledger_from_text(rest, settings_.path, number, settings_.rules);
      if (!ledger.ok()) return ledger.error();
      if (ledger.value().host() != settings_.host) {
        return invalid(cat(settings_.path, ": the ledger is of host ", ledger.value().host(),
                           ", and this host is ", settings_.host,
                           ": name a file in sync.ledger that only this host has"));
      }
      if (*boot != settings_.boot) return fresh();
      return Content{std::move(ledger).value(), std::move(started), std::move(untold)};
    }
    const auto found = job_in(process ? *process : *ended);
    if (!found) return refused("\"process NUMBER START\" or \"ended NUMBER REASON\"");
    if (ended) {
      untold[found->first].emplace_back(found->second);
      continue;
    }
    const auto since = number_in<int64_t>(found->second);
    if (!since) return refused("\"process NUMBER START\"");
    started[found->first] = *since;
  }
}

// A ledger without jobs is made anew, because then the capacity may be another one.
Status SharedLedger::remove_the_dead(Content& content) const {
  std::vector<HostJob> dead;
  for (const auto& [job, since] : content.started) {
    if (settings_.started_of(job) != std::optional(since)) dead.push_back(job);
  }
  for (const HostJob job : dead) {
    content.ledger.remove(job);
    content.started.erase(job);
    content.untold.erase(job);
  }
  if (!content.ledger.is_empty()) return ok();
  auto made = fresh();
  if (!made.ok()) return made.error();
  content = std::move(made).value();
  return ok();
}

Status SharedLedger::write(const Content& content) const {
  std::string text = cat(kTitle, "\nboot ", settings_.boot, "\n");
  for (const auto& [job, since] : content.started) {
    if (content.ledger.knows(job)) text += cat("process ", job, " ", since, "\n");
  }
  for (const auto& [job, reasons] : content.untold) {
    for (const std::string& reason : reasons) text += cat("ended ", job, " ", reason, "\n");
  }
  return write_file(settings_.path, text + to_text(content.ledger));
}

Result<LedgerNews> SharedLedger::exchange_with(Content& content, const LedgerCall& call,
                                               Duration now) const {
  HostLedger& ledger = content.ledger;
  const HostJob self = settings_.job;
  const auto note = [&content](const std::vector<EndedLease>& ended) {
    for (const EndedLease& one : ended) {
      std::vector<std::string>& reasons = content.untold[one.lease.job];
      if (reasons.size() < kMostUntold) reasons.push_back(one.reason);
    }
  };
  if (call.gives_back) ledger.give_back(self);
  const auto ended = ledger.announce(self, call.use, now);
  if (!ended.ok()) return ended.error();
  note(ended.value());
  content.started[self] = settings_.started;
  LedgerNews news;
  if (!call.options.empty()) {
    auto answer = ledger.ask({self, call.options, call.length}, now);
    if (!answer.ok()) return answer.error();
    note(std::exchange(answer.value().ended, {}));
    news.answer = std::move(answer).value();
  }
  if (const auto told = content.untold.find(self); told != content.untold.end()) {
    news.ended = std::move(told->second);
    content.untold.erase(told);
  }
  if (const Lease* lease = ledger.lease_of(self)) news.lease = *lease;
  const LeasedPart lent = ledger.lent(self);
  news.allowed = ledger.allowed(self);
  for (const auto& [job, since] : content.started) {
    if (!ledger.knows(job)) continue;
    news.jobs.push_back(job);
    const HostAmounts its = ledger.allowed(job);
    for (size_t r = 0; r < kHostResources; ++r) news.granted[r] += its[r];
  }
  for (size_t r = 0; r < kHostResources; ++r) news.lends[r] = lent.slack[r] + lent.beyond[r];
  news.now = now;
  return news;
}

// The moment is read under the lock, so that moments rise over all jobs.
Result<LedgerNews> SharedLedger::exchange(const LedgerCall& call) const {
  const auto locked = take_lock(settings_.path, settings_.lock_limit);
  if (!locked.ok()) return locked.error();
  auto content = read();
  if (!content.ok()) return content.error();
  if (const Status removed = remove_the_dead(content.value()); !removed.ok()) {
    return removed.error();
  }
  auto news = exchange_with(content.value(), call, settings_.now());
  if (!news.ok()) return news;
  if (const Status written = write(content.value()); !written.ok()) return written.error();
  return news;
}

Status SharedLedger::look() const {
  const auto locked = take_lock(settings_.path, settings_.lock_limit);
  if (!locked.ok()) return locked.error();
  const auto content = read();
  return content.ok() ? ok() : Status(content.error());
}

Status SharedLedger::leave() const {
  const auto locked = take_lock(settings_.path, settings_.lock_limit);
  if (!locked.ok()) return locked.error();
  auto content = read();
  if (!content.ok()) return content.error();
  content.value().ledger.remove(settings_.job);
  content.value().started.erase(settings_.job);
  content.value().untold.erase(settings_.job);
  if (const Status removed = remove_the_dead(content.value()); !removed.ok()) return removed;
  return write(content.value());
}

}  // namespace tenuto
