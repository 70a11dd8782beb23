#include "run/resume.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/text.h"
#include "world/load.h"

namespace tenuto {
namespace {

template <class Value>
Error refuse(const std::string& path, const char* key, const Value& was, const Value& is) {
  return invalid(cat(path, " was made with ", key, " = ", was, ", the job says ", is,
                     ": resume the run with the same value"));
}

template <class Value>
Status expect_same(const std::string& path, const char* key, const Value& was, const Value& is) {
  if (was == is) return ok();
  return refuse(path, key, was, is);
}

// The states of ranges are of no use to a synchronous run without servers, and the other way round.
// Who keeps the ranges does not matter.
Status check_same_states(const Job& before, bool has_ranges, const Job& job,
                         const std::string& path) {
  if (has_ranges == job.is_served()) return ok();
  const SyncSettings &was = before.sync, &is = job.sync;
  if (was.architecture == is.architecture) return refuse(path, "sync.mode", was.mode, is.mode);
  return refuse(path, "sync.architecture", was.architecture, is.architecture);
}

Status check_same_replicas(const Job& before, const Job& job, const std::string& path) {
  const ParallelSettings& old = before.parallel;
  const ParallelSettings& now = job.parallel;
  for (const Status& same : {expect_same(path, "parallel.stages", old.stages, now.stages),
                             expect_same(path, "parallel.pipelines", old.pipelines, now.pipelines),
                             expect_same(path, "parallel.micros", old.micros, now.micros)}) {
    if (!same.ok()) return same;
  }
  const double was = before.optimizer.momentum, is = job.optimizer.momentum;
  if (job.optimizer.kind != "sgd" || (was > 0) == (is > 0)) return ok();
  return expect_same(path, "optimizer.momentum", was, is);
}

// "0 to 3, 3 to 6"
std::string layers_text(const std::vector<Stage>& stages) {
  std::string text;
  for (const Stage& stage : stages) {
    text += cat(text.empty() ? "" : ", ", stage.layer_first, " to ", stage.layer_end);
  }
  return text;
}

}  // namespace

Result<Evaluated> find_evaluated(const Job& job, const std::string& run) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const auto whole_path = [&failure](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, failure), failure);
  };
  const fs::path given = whole_path(job.evaluate);
  const bool is_run = !fs::exists(given / "manifest.json", failure);
  Result<Manifest> manifest =
      is_run ? find_checkpoint(given.string(), -1, "job.evaluate = the folder of step")
             : verify_checkpoint(given.string());
  if (!manifest.ok()) return manifest.error();
  const int64_t step = manifest.value().step;
  Evaluated found{std::move(manifest).value(),
                  is_run ? checkpoint_path(given.string(), step) : given.string()};
  if (fs::path(found.path).parent_path() == whole_path(run)) {
    return invalid(cat("job.evaluate: ", found.path, " belongs to the run ", run,
                       ", whose files this run would replace: choose another name with ",
                       "--job.name=NAME"));
  }
  if (step == 0) {
    return invalid(cat("job.evaluate: ", found.path, " has the initial parameters: expected a ",
                       "checkpoint of step 1 or a later one"));
  }
  return found;
}

Status check_same_layers(const Plan& plan, const Manifest& manifest, const std::string& path) {
  if (!manifest.servers) return ok();
  const std::string was = layers_text(manifest.partition), is = layers_text(plan.stages);
  if (was == is) return ok();
  return invalid(cat(path, " has the states of stages with layers ", was, ", the job's have ", is,
                     ": resume the run with the settings of the checkpoint (manifest.json)"));
}

Status check_resumable(const Job& job, const Manifest& manifest, const std::string& path) {
  const Result<Job> before = job_from_toml(manifest.job, path + "/manifest.json");
  if (!before.ok()) return before.error();
  const ModelSettings& old = before.value().model;
  const ModelSettings& now = job.model;
  for (const Status& same :
       {check_same_states(before.value(), manifest.servers.has_value(), job, path),
        expect_same(path, "model.kind", old.kind, now.kind),
        expect_same(path, "model.layers", old.layers, now.layers),
        expect_same(path, "model.width", old.width, now.width),
        expect_same(path, "model.heads", old.heads, now.heads),
        expect_same(path, "model.tied", old.tied, now.tied),
        expect_same(path, "model.sequence", old.sequence, now.sequence)}) {
    if (!same.ok()) return same;
  }
  const OptimizerSettings &was = before.value().optimizer, &is = job.optimizer;
  for (const Status& same : {expect_same(path, "optimizer.kind", was.kind, is.kind),
                             expect_same(path, "optimizer.rule", was.rule, is.rule)}) {
    // A held-out pass needs the parameters alone.
    if (!same.ok() && job.evaluate.empty()) return same;
  }
  return job.is_served() ? check_same_replicas(before.value(), job, path) : ok();
}

}  // namespace tenuto
