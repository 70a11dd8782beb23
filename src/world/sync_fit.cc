#include "world/sync_fit.h"

#include <algorithm>
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

// What the job has that other settings do not go with. Without servers that is the mode.
std::string beside(const Job& job) {
  return job.has_servers() ? std::string("with server shards")
                           : cat("with sync.mode = \"", excerpt(job.sync.mode), "\"");
}

Found misfit_of_auto(const Job& job) {
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
  if (!job.is_served()) return {};
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

// The kernel's names of network devices have at most 15 bytes, and "-" would be a flag of tc.
bool is_device_name(const std::string& name) {
  constexpr size_t kMost = 15;
  const auto is_odd = [](unsigned char one) { return one <= ' ' || one > '~' || one == '/'; };
  return !name.empty() && name.size() <= kMost && name.front() != '-' &&
         std::none_of(name.begin(), name.end(), is_odd);
}

Found misfit_of_tc(const Job& job) {
  const std::string& device = job.sync.tc;
  if (device.empty()) return {};
  if (job.sync.ledger.empty()) {
    return Misfit{"sync.tc", cat("names ", excerpt(device),
                                 ", and without a ledger nothing is limited: name one in "
                                 "sync.ledger, or leave the device out")};
  }
  if (is_device_name(device)) return {};
  return Misfit{"sync.tc", cat("\"", excerpt(device),
                               "\" is no name of a network device: `ip link` "
                               "lists them")};
}

Found misfit_of_ledger(const Job& job) {
  if (job.sync.ledger.empty() || job.is_served()) return {};
  return Misfit{"sync.ledger",
                cat("names ", excerpt(job.sync.ledger),
                    ", and with sync.mode = \"synchronous\" this job never leaves the "
                    "synchronous mode: take \"auto\", or leave the ledger out")};
}

// Settings of synchronous training for which updates through server shards have no use.
Found misfit_of_training(const Job& job) {
  const ResilienceSettings& resilience = job.resilience;
  if (job.device.kind == "paced") {
    return Misfit{"device.kind", cat("\"paced\" computes no gradients, and ", beside(job),
                                     " updates are made of real ones: take \"cpu\" or \"cuda\"")};
  }
  if (resilience.layers != "off") {
    return Misfit{"resilience.layers",
                  cat("\"", resilience.layers, "\" is about layers that move between stages, and ",
                      beside(job), " they stay: set it to \"off\"")};
  }
  if (resilience.slow_workers == "adapt") {
    return Misfit{"resilience.slow_workers",
                  cat("\"adapt\" moves micro-batches between pipelines, and ", beside(job),
                      " the sync mode says how many each one computes: set it to \"observe\"")};
  }
  if (resilience.copies > 0) {
    return Misfit{"resilience.copies",
                  cat(resilience.copies, " asks for copies of a stage on other workers, and ",
                      beside(job), " standbys have them: set it to 0")};
  }
  if (resilience.numerics != "fast") {
    return Misfit{"resilience.numerics",
                  cat("\"", resilience.numerics,
                      "\" sums the gradients of a step in fixed point, and ", beside(job),
                      " they are taken in fp32, in the order of the sync mode: set it to "
                      "\"fast\"")};
  }
  if (job.parallel.optimizer == "staggered") {
    return Misfit{"parallel.optimizer",
                  cat("\"staggered\" says when each stage makes its update, and ", beside(job),
                      " those make it that keep the parameters: take \"barrier\"")};
  }
  for (size_t i = 0; i < job.faults.size(); ++i) {
    // Chaos is replaced by what it draws, which are hogs alone.
    const Fault& fault = job.faults[i];
    if (is_hog(fault) || (fault.kind == "chaos" && fault.hogs)) continue;
    return Misfit{cat("fault[", i, "]"),
                  cat("is a fault that a step rehearses, and ", beside(job),
                      " replicas do not make steps together: leave all [[fault]] tables but those "
                      "of hogs (and of chaos with hogs = true) out, and inject other faults into "
                      "the live run (tenuto inject)")};
  }
  return {};
}

// What a replica may be: a worker for each stage, each with its own share of every gradient.
Found misfit_of_replica(const Job& job) {
  const ParallelSettings& parallel = job.parallel;
  for (const auto& [key, path] : {std::pair("parallel.plan", &parallel.plan),
                                  std::pair("parallel.schedule", &parallel.schedule)}) {
    if (path->empty()) continue;
    return Misfit{key, cat("names ", excerpt(*path), ", and ", beside(job),
                           " each replica has a plan that is made for it: leave it out")};
  }
  if (parallel.chunks > 1) {
    return Misfit{"parallel.chunks", cat(parallel.chunks, " stages in a worker, and ", beside(job),
                                         " each worker has one in this version: set it to 1")};
  }
  if (parallel.stages == 1) return {};
  if (job.model.tied) {
    return Misfit{"model.tied",
                  cat("is true, and ", beside(job), " first and last of ", parallel.stages,
                      " stages cannot share a weight, because each has only its own part of that "
                      "weight's gradient: set it to false, or parallel.stages to 1")};
  }
  if (job.optimizer.clip <= 0) return {};
  return Misfit{"optimizer.clip",
                cat(job.optimizer.clip, " needs the norm of the whole gradient, and ", beside(job),
                    " nobody has more than one of ", parallel.stages,
                    " stages in a range: set it to 0, or parallel.stages to 1")};
}

Found misfit_of_servers(const Job& job) {
  const double clip = job.optimizer.clip;
  if (!job.has_servers() || clip <= 0 || job.sync.servers <= kMostKeepers) return {};
  return Misfit{
      "sync.servers",
      cat(job.sync.servers, " servers would each have a part of the model, and optimizer.clip (",
          clip, ") needs the norm of the whole gradient: set it to ", kMostKeepers,
          ", a server and its standby, or optimizer.clip to 0")};
}

Found misfit_of_copies(const Job& job) {
  if (!job.checkpoint_asynchronous) return {};
  return Misfit{"job.checkpoint_asynchronous",
                cat("true is for workers that save the state of their stages, and ", beside(job),
                    " the keepers of the parameters save them: set it to false")};
}

}  // namespace

Found find_misfit_of_sync(const Job& job) {
  for (const auto find : {misfit_of_mode, misfit_of_chooser, misfit_of_ledger, misfit_of_tc}) {
    if (Found found = find(job)) return found;
  }
  if (!job.is_served()) return {};
  for (const auto find :
       {misfit_of_training, misfit_of_replica, misfit_of_servers, misfit_of_copies}) {
    if (Found found = find(job)) return found;
  }
  return {};
}

}  // namespace tenuto
