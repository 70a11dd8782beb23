#include "world/sync_fit.h"

#include <string>
#include <utility>

#include "base/sentence.h"
#include "base/text.h"
#include "ir/sync_mode.h"
#include "ir/update_rule.h"

namespace tenuto {

namespace {

using Found = std::optional<Misfit>;

// A range of the parameters has two keepers at most: a server and its standby.
constexpr int32_t kMostKeepers = 2;

Found misfit_of_auto(const Job& job) {
  if (!job.has_servers()) {
    return Misfit{"sync.mode",
                  "\"auto\" needs sync.architecture = \"servers\": it may choose partial updates, "
                  "which run through server shards"};
  }
  if (job.parallel.pipelines > 1) return {};
  return Misfit{"sync.mode",
                "\"auto\" chooses how several replicas make updates, and parallel.pipelines is 1: "
                "take \"synchronous\""};
}

Found misfit_of_mode(const Job& job) {
  if (job.sync.mode == "auto") return misfit_of_auto(job);
  const std::string name = excerpt(job.sync.mode);
  const auto mode = sync_mode_from_text(job.sync.mode);
  if (!mode.ok()) {
    return Misfit{"sync.mode", cat("expects \"auto\" or a sync mode: ", mode.error().message)};
  }
  if (mode.value().local_steps > 1) {
    return Misfit{"sync.mode", cat("\"", name,
                                   "\" has local steps, which this version can only simulate: "
                                   "leave out +local and +outer")};
  }
  if (!job.has_servers()) {
    if (mode.value() == SyncMode{}) return {};
    return Misfit{"sync.mode", cat("\"", name,
                                   "\" needs sync.architecture = \"servers\": partial updates run "
                                   "through server shards")};
  }
  const Status fits = check_mode_of_run(mode.value(), job.parallel.pipelines, job.parallel.micros);
  if (fits.ok()) return {};
  return Misfit{"sync.mode",
                cat("does not fit parallel.pipelines and parallel.micros: ", fits.error().message)};
}

Found misfit_of_chooser(const Job& job) {
  const SyncSettings& sync = job.sync;
  if (sync.chooser_file.empty() || sync.chooser == "learned") return {};
  return Misfit{"sync.chooser_file",
                cat("names what a learned chooser has learned, and sync.chooser is \"",
                    sync.chooser, "\": set that to \"learned\", or leave the file out")};
}

// Settings of synchronous training that server shards have no use for.
Found misfit_of_training(const Job& job) {
  const ResilienceSettings& resilience = job.resilience;
  if (job.device.kind == "paced") {
    return Misfit{"device.kind",
                  "\"paced\" computes no gradients that server shards could take: take \"cpu\" or "
                  "\"cuda\""};
  }
  if (resilience.layers != "off") {
    return Misfit{"resilience.layers", cat("\"", resilience.layers,
                                           "\" is about layers that move between stages, and "
                                           "with server shards they stay: set it to \"off\"")};
  }
  if (resilience.slow_workers == "adapt") {
    return Misfit{"resilience.slow_workers",
                  "\"adapt\" moves micro-batches between pipelines, and with server shards "
                  "sync.mode says how many each one computes: set it to \"observe\""};
  }
  if (resilience.copies > 0) {
    return Misfit{"resilience.copies", cat(resilience.copies,
                                           " asks for copies of a stage on other workers, and with "
                                           "server shards standbys have them: set it to 0")};
  }
  if (resilience.numerics != "fast") {
    return Misfit{"resilience.numerics",
                  cat("\"", resilience.numerics,
                      "\" sums the gradients of a step in fixed point, and server shards take them "
                      "in fp32, in the order of sync.mode: set it to \"fast\"")};
  }
  if (job.parallel.optimizer == "staggered") {
    return Misfit{"parallel.optimizer",
                  "\"staggered\" says when each stage makes its update, and with server shards the "
                  "servers make it: take \"barrier\""};
  }
  if (job.faults.empty()) return {};
  return Misfit{"fault[0]",
                "is a fault that a step rehearses, and with server shards replicas do not make "
                "steps together: leave the [[fault]] tables out, and inject faults into the live "
                "run (tenuto inject)"};
}

// What a replica may be: a worker for each stage, each with its own share of every gradient.
Found misfit_of_replica(const Job& job) {
  const ParallelSettings& parallel = job.parallel;
  for (const auto& [key, path] : {std::pair("parallel.plan", &parallel.plan),
                                  std::pair("parallel.schedule", &parallel.schedule)}) {
    if (path->empty()) continue;
    return Misfit{key, cat("names ", excerpt(*path),
                           ", and with server shards each replica has a plan that is made for it: "
                           "leave it out")};
  }
  if (parallel.chunks > 1) {
    return Misfit{"parallel.chunks", cat(parallel.chunks,
                                         " stages in a worker do not go with server shards in this "
                                         "version: set it to 1")};
  }
  if (parallel.stages == 1) return {};
  if (job.model.tied) {
    return Misfit{"model.tied",
                  cat("is true, and with server shards first and last of ", parallel.stages,
                      " stages cannot share a weight, because each has only its own part of that "
                      "weight's gradient: set it to false, or parallel.stages to 1")};
  }
  if (job.optimizer.clip <= 0) return {};
  return Misfit{"optimizer.clip",
                cat(job.optimizer.clip,
                    " needs the norm of the whole gradient, and with server "
                    "shards no server has more than one of ",
                    parallel.stages, " stages in a range: set it to 0, or parallel.stages to 1")};
}

Found misfit_of_servers(const Job& job) {
  const double clip = job.optimizer.clip;
  if (clip <= 0 || job.sync.servers <= kMostKeepers) return {};
  return Misfit{
      "sync.servers",
      cat(job.sync.servers, " servers would each have a part of the model, and optimizer.clip (",
          clip, ") needs the norm of the whole gradient: set it to ", kMostKeepers,
          ", a server and its standby, or optimizer.clip to 0")};
}

}  // namespace

Found find_misfit_of_sync(const Job& job) {
  for (const auto find : {misfit_of_mode, misfit_of_chooser}) {
    if (Found found = find(job)) return found;
  }
  if (!job.has_servers()) return {};
  for (const auto find : {misfit_of_training, misfit_of_replica, misfit_of_servers}) {
    if (Found found = find(job)) return found;
  }
  return {};
}

}  // namespace tenuto
