#include "parameter_server/job_store.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "ir/mass_step.h"

namespace tenuto::servers {

namespace {

// Elements of a piece, which is never cut: 64 bytes, the alignment of tensors (layout_of() in
// world/parameters.h).
constexpr int64_t kPiece = 16;

// Cuts the elements of a stage into `count` ranges, or into fewer if it has fewer pieces.
void add_ranges(StageId stage, int64_t elements, int64_t count, std::vector<ElementRange>& ranges) {
  const int64_t pieces = (elements + kPiece - 1) / kPiece;
  const int64_t parts = std::min(count, pieces);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = pieces * i / parts * kPiece;
    const int64_t end = std::min(elements, pieces * (i + 1) / parts * kPiece);
    ranges.push_back({stage, begin, end});
  }
}

}  // namespace

std::vector<ElementRange> ranges_of_job(const Job& job, std::span<const int64_t> elements) {
  const int64_t stages = std::ssize(elements), replicas = job.parallel.pipelines;
  // Servers keep ranges of any stage, and a replica's part those of its own one.
  const int64_t keeper_count = job.has_servers() ? job.sync.servers : replicas * stages;
  CHECK(stages > 0 && keeper_count > 0,
        cat("a stage and a process that keeps a range at least, found ", stages, " and ",
            keeper_count));
  std::vector<ElementRange> ranges;
  for (int64_t s = 0; s < stages; ++s) {
    const int64_t count = elements[static_cast<size_t>(s)];
    CHECK(count > 0, cat("elements of stage ", s, ", found ", count));
    // The first stages have one server more if the servers cannot be divided evenly.
    const int64_t share = keeper_count / stages + (s < keeper_count % stages ? 1 : 0);
    const int64_t parts = job.optimizer.clip > 0 ? 1 : std::max<int64_t>(1, share);
    add_ranges({static_cast<int32_t>(s)}, count, parts, ranges);
  }
  return ranges;
}

MassStoreSettings store_settings_of(const Job& job, const ElementRange& range, int64_t decayed) {
  const OptimizerSettings& optimizer = job.optimizer;
  MassStoreSettings settings;
  settings.rate = optimizer.learning_rate;
  settings.clip = optimizer.clip;
  settings.clip_margin = kClipMargin;
  settings.decayed = std::clamp<int64_t>(decayed - range.begin, 0, range.end - range.begin);
  settings.schedule.warm_up_steps = optimizer.warm_up_steps;
  settings.schedule.cosine = optimizer.schedule == "cosine";
  settings.schedule.minimum_rate = optimizer.minimum_rate;
  settings.schedule.steps = job.steps;
  settings.full = {job.full_mass()};
  settings.whole_model = optimizer.clip > 0 && job.parallel.stages == 1;
  if (optimizer.kind == "adamw") {
    settings.optimizer = TrialOptimizer::AdamW;
    settings.adam.beta1 = optimizer.beta1;
    settings.adam.beta2 = optimizer.beta2;
    settings.adam.epsilon = optimizer.epsilon;
    settings.adam.weight_decay = optimizer.weight_decay;
  } else {
    settings.optimizer = optimizer.momentum > 0 ? TrialOptimizer::Momentum : TrialOptimizer::Sgd;
    settings.momentum = optimizer.momentum;
    settings.weight_decay = optimizer.weight_decay;
  }
  return settings;
}

}  // namespace tenuto::servers
