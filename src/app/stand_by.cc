#include "app/stand_by.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "app/config.h"
#include "base/sentence.h"
#include "base/text.h"
#include "run/checkpoint.h"
#include "run/coordinator_address.h"
#include "run/run_directory.h"
#include "world/load.h"

namespace tenuto {
namespace {

// The pause between two looks at the lock of the run.
constexpr std::chrono::milliseconds kPause{100};

Status check_stand_by(const TrainOptions& options, const Job& job) {
  if (options.beginning == Beginning::Overwrite || options.from_step >= 0) {
    return invalid(
        "--stand-by continues what another coordinator has begun, and --overwrite and --from-step "
        "begin again: start the first coordinator with them and without --stand-by");
  }
  if (job.is_served()) {
    return invalid(
        "--stand-by: the host of server shards keeps its state in memory, so no other coordinator "
        "can continue the run: leave --stand-by out");
  }
  if (job.coordinator.store != "etcd") {
    return invalid(cat("--stand-by: coordinator.store is \"", job.coordinator.store,
                       "\", and only with \"etcd\" no two coordinators on two hosts ever lead one ",
                       "run: set coordinator.store = \"etcd\" and coordinator.etcd"));
  }
  if (job.coordinator.listen.ends_with(":0")) {
    return invalid(cat("--stand-by: coordinator.listen is \"", job.coordinator.listen,
                       "\", and workers must know the address of this coordinator before it ",
                       "listens: give a port"));
  }
  return ok();
}

// Waits until nobody holds the run. False: it has ended.
bool wait_for_end_of_leader(const std::string& run) {
  while (true) {
    while (is_held(run)) std::this_thread::sleep_for(kPause);
    // A run that has begun and has no address any more has ended, unless the next coordinator has
    // just taken it up.
    if (!has_begun_in(run) || read_coordinator_address(run).ok()) return true;
    if (!is_held(run)) return false;
  }
}

}  // namespace

std::optional<int> await_turn(const TrainOptions& options) {
  if (!options.stands_by) return std::nullopt;
  const Result<LoadedJob> loaded = load_effective_job(options.job_file, options.overrides);
  if (!loaded.ok()) return std::nullopt;  // training says why not
  const Job& job = loaded.value().job;
  if (const Status fits = check_stand_by(options, job); !fits.ok()) {
    std::fprintf(stderr, "tenuto: %s\n", told(fits.error().message).c_str());
    return 2;
  }
  const std::string run = cat(job.directory, "/", job.name);
  if (!is_held(run)) return std::nullopt;
  std::fprintf(stderr, "tenuto: another coordinator leads %s: this one stands by\n",
               told(run).c_str());
  if (wait_for_end_of_leader(run)) return std::nullopt;
  std::fprintf(stderr, "tenuto: %s\n", told(not_live(run, run).message).c_str());
  const std::vector<int64_t> steps = list_checkpoints(run);
  return !steps.empty() && steps.back() >= job.steps ? 0 : 75;
}

bool is_run_of(const std::string& settings, const Job& job, bool elsewhere) {
  if (settings == to_toml(job)) return true;
  if (!elsewhere) return false;
  Result<Job> before = job_from_toml(settings, "config.toml");
  if (!before.ok()) return false;
  before.value().coordinator.listen = job.coordinator.listen;
  return to_toml(before.value()) == to_toml(job);
}

}  // namespace tenuto
