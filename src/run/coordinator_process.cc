#include "run/coordinator_process.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <iterator>

#include "base/clock.h"
#include "base/text.h"
#include "run/coordinator_address.h"
#include "world/fault.h"
#include "world/load.h"

namespace tenuto {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kRepeat = std::chrono::milliseconds(500);
// How long the launcher may wait for the end of its workers.
constexpr Duration kFarewell = std::chrono::seconds(10);
// A coordinator that is asked to kill or suspend itself answers first and acts this much later.
constexpr Duration kLastWord = std::chrono::milliseconds(50);

// Why a request about the process of a worker cannot be carried out here, and how it can be.
std::string started_elsewhere(WorkerId worker, const std::string& kind) {
  if (kind == "cpu-hog" || kind == "bandwidth-hog") {
    return cat("worker ", worker, " was started by `tenuto worker`, and a hog is started only on ",
               "the host of `tenuto train`: start a program there that takes its resources");
  }
  const char* how =
      kind == "start"
          ? ": start `tenuto worker` on its host with the same number, and it joins the "
            "run"
          : ": send the signal to its `tenuto-worker` on that host";
  return cat("worker ", worker, " was started by `tenuto worker`, not by this coordinator", how);
}

}  // namespace

CoordinatorProcess::CoordinatorProcess(const RunInput& input)
    : input_(input),
      launcher_(*input.start.launcher),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      page_(input) {}

std::function<void()> CoordinatorProcess::bell() const {
  const int wake = wake_.number();
  return [wake] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof(one));
  };
}

Result<std::unique_ptr<Server>> CoordinatorProcess::listen(int32_t worker_count) {
  Result<std::unique_ptr<Server>> server = start_server({.listen = input_.start.listen,
                                                         .job = input_.job->name,
                                                         .token = input_.token,
                                                         .worker_count = worker_count,
                                                         .job_toml = to_toml(*input_.job),
                                                         .tls = input_.tls},
                                                        bell());
  if (!server.ok()) return server;
  const std::string told = page_.start(bell());
  if (!told.empty()) input_.progress->open_with(told);
  return with_page(std::move(server).value(), page_);
}

RunFiles::Listener CoordinatorProcess::page_listener() {
  return [this](const std::string& kind, RunMoment moment, const std::string& sentence,
                const EventDetails& details) { page_.note(kind, moment, sentence, details); };
}

Status CoordinatorProcess::write_address(const Server& server) const {
  const Job& job = *input_.job;
  return write_coordinator_address(input_.directory->path(),
                                   {server.address(), job.name, input_.token, job.coordinator.tls});
}

std::string CoordinatorProcess::how_to_start(size_t workers, const std::string& address) const {
  const Job& job = *input_.job;
  const bool in_file = !input_.token_file.empty();
  return cat("waiting for ", workers, " workers at ", address,
             ": start each with `tenuto worker --job ", job.name, " --coordinator ", address,
             " --worker N", in_file ? " --token-file FILE" : "",
             job.coordinator.tls.empty() ? "" : " --tls FOLDER", "`",
             in_file ? cat(", FILE being a copy of ", input_.token_file)
                     : std::string(" and the same token in TENUTO_TOKEN"),
             job.coordinator.tls.empty() ? "" : ", FOLDER the certificates of its host");
}

std::vector<Notice> CoordinatorProcess::take_notices() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(wake_.number(), &count, sizeof(count));
  std::vector<Notice> notices = launcher_.take();
  for (const Notice& notice : notices) is_alone_ |= notice.kind == Notice::Kind::Alone;
  return notices;
}

void CoordinatorProcess::wait() const {
  pollfd waits[] = {{wake_.number(), POLLIN, 0}, {launcher_.descriptor(), POLLIN, 0}};
  poll(waits, std::size(waits), static_cast<int>(to_milliseconds(kTick)));
}

void CoordinatorProcess::show_life(Server& server, int64_t committed) {
  const Duration now = monotonic_clock().now();
  server.repeat(kRepeat);
  if (committed != noticed_ || now - noticed_at_ >= kTick) {
    noticed_ = committed;
    noticed_at_ = now;
    send({.kind = Notice::Kind::Alive, .committed = committed}, false);
  }
  if (own_end_ && now >= own_end_->second) std::raise(std::exchange(own_end_, {})->first);
}

std::string CoordinatorProcess::refusal_of(WorkerId worker, const std::string& kind, bool has_ended,
                                           bool has_come) const {
  const bool starts = kind == "start";
  if (!input_.starts_workers) return started_elsewhere(worker, kind);
  if (has_ended == starts) return {};
  if (starts) {
    return cat("worker ", worker,
               " has not ended: only a worker whose process has ended is started again");
  }
  return cat("worker ", worker, " has no process here: it has ",
             has_come ? "ended" : "not connected yet");
}

void CoordinatorProcess::carry_out(WorkerId worker, const std::string& kind, int number) const {
  send({.kind = kind == "start" ? Notice::Kind::Start : Notice::Kind::Signal,
        .worker = worker.value,
        .number = number},
       true);
}

void CoordinatorProcess::carry_out_hog(const FaultNews& news) const {
  if (news.hog < 0) return;
  if (news.ends) return send({.kind = Notice::Kind::EndHog, .number = news.hog}, true);
  start_hog(news.hog, input_.job->faults[static_cast<size_t>(news.hog)]);
}

void CoordinatorProcess::carry_out_hog(const Request& request) const {
  // The job's own hogs have numbers from 0 on.
  const WorkerId worker = worker_of(request.fault, input_.job->seats());
  const int32_t number = -1 - 2 * worker.value - (request.fault.kind == "cpu-hog" ? 0 : 1);
  if (request.number == 0) return send({.kind = Notice::Kind::EndHog, .number = number}, true);
  start_hog(number, request.fault);
}

void CoordinatorProcess::start_hog(int32_t number, const Fault& hog) const {
  send({.kind = Notice::Kind::StartHog,
        .worker = worker_of(hog, input_.job->seats()).value,
        .number = number,
        .threads = hog.threads,
        .megabytes_per_second = hog.megabytes_per_second,
        .for_ms = hog.for_ms},
       true);
}

void CoordinatorProcess::end_later(int number) {
  own_end_ = {number, monotonic_clock().now() + kLastWord};
}

void CoordinatorProcess::leave(bool well, const std::function<void()>& collect) {
  send({.kind = Notice::Kind::Leaving, .well = well}, true);
  const Duration end = monotonic_clock().now() + kFarewell;
  while (!is_alone_ && monotonic_clock().now() < end) {
    wait();
    collect();
  }
  remove_coordinator_address(input_.directory->path());
  page_.leave();
}

}  // namespace tenuto
