#include "run/host_workers.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "protocol/report.h"
#include "run/descriptor.h"
#include "run/restarts.h"
#include "run/supervise.h"

namespace tenuto {
namespace {

constexpr int kTick = 100;  // ms
constexpr int kSignalled = 128;
// How long the other workers may take to end when one of them has said that the job is done.
constexpr Duration kLeave = std::chrono::seconds(5);

void tell(const std::string& sentence) { std::fprintf(stderr, "tenuto: %s\n", sentence.c_str()); }

class HostWorkers {
 public:
  HostWorkers(const LaunchSettings& settings, int32_t restarts)
      : settings_(settings), signals_(open_claimed_signals()), restarts_(restarts) {}

  Result<int> run();

 private:
  void wait() const;
  // The number of a signal that ends the workers; none if there was no such signal.
  std::optional<int> take_signal() const;
  void hear(const Exited& exited);
  bool will_come_back() const;

  const LaunchSettings& settings_;
  const Descriptor signals_;
  Launcher launcher_;
  Restarts restarts_;
  bool done_ = false;  // the job
  int failure_ = 0;    // the exit code of a worker for which another process would fail, too
};

Result<int> HostWorkers::run() {
  const Status started = launcher_.start(settings_);
  if (!started.ok()) return started.error();
  while (!done_ && (launcher_.alive() > 0 || will_come_back())) {
    wait();
    if (const std::optional<int> number = take_signal()) {
      launcher_.finish(Duration{});
      tell(cat("stopped by signal ", *number, ": the run goes on without the workers of this host ",
               "if other workers hold the same stages"));
      return kSignalled + *number;
    }
    for (const Exited& exited : launcher_.reap()) hear(exited);
    for (const WorkerId worker : restarts_.take(monotonic_clock().now())) {
      const Status again = launcher_.start_again(worker);
      tell(again.ok() ? cat("worker ", worker, " is started again") : again.error().message);
    }
  }
  launcher_.finish(kLeave);
  if (done_) return 0;
  return failure_ != 0 ? failure_ : kTryAgain;
}

void HostWorkers::wait() const {
  std::vector<pollfd> waits = {{signals_.number(), POLLIN, 0}};
  for (const int descriptor : launcher_.descriptors()) waits.push_back({descriptor, POLLIN, 0});
  poll(waits.data(), waits.size(), kTick);
}

std::optional<int> HostWorkers::take_signal() const {
  signalfd_siginfo info;
  while (read(signals_.number(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGUSR1) return static_cast<int>(info.ssi_signo);
    tell(
        "SIGUSR1 asks a coordinator for a checkpoint, and none runs here: send it to `tenuto "
        "coordinator`, or type tenuto inject RUN checkpoint");
  }
  return std::nullopt;
}

void HostWorkers::hear(const Exited& exited) {
  if (!exited.signalled && exited.number == 0) {
    done_ = true;
    return;
  }
  const std::string said = exited.last_words.empty() ? "" : cat(": ", exited.last_words);
  tell(cat("worker ", exited.worker,
           exited.signalled ? " was killed by signal " : " has ended with exit code ",
           exited.number, said));
  if (exited.signalled || exited.number == kTryAgain) {
    restarts_.note_end(exited.worker, monotonic_clock().now());
  } else {
    failure_ = exited.number;
  }
}

bool HostWorkers::will_come_back() const {
  return std::any_of(settings_.workers.begin(), settings_.workers.end(),
                     [this](WorkerId worker) { return restarts_.has(worker); });
}

}  // namespace

Result<int> run_host_workers(const LaunchSettings& settings, int32_t restarts) {
  return HostWorkers(settings, restarts).run();
}

}  // namespace tenuto
