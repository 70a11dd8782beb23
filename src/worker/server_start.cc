#include "worker/server_start.h"

#include <chrono>
#include <utility>

#include "base/text.h"
#include "parameter_server/job_store.h"
#include "runtime/given_parameters.h"
#include "sync/chooser_model.h"
#include "sync/formed.h"
#include "worker/range_files.h"
#include "world/memory_need.h"

namespace tenuto {
namespace {

// What an iteration is taken to last while none has been measured. A window of grace that the job
// leaves open begins as a share of it.
constexpr Duration kFirstIteration = std::chrono::milliseconds(100);

bool chooses(const Job& job) { return job.sync.mode == "auto"; }

// A chooser that asks first begins in the mode that takes nothing from others.
bool asks(const Job& job) { return chooses(job) && !job.sync.ledger.empty(); }

std::vector<IterationTime> equal_times(const Job& job) {
  const auto replicas = static_cast<size_t>(job.parallel.pipelines);
  return std::vector<IterationTime>(replicas, IterationTime{kFirstIteration, {}});
}

}  // namespace

Result<StageParameters> stage_parameters_of(Device& device, StageId stage) {
  GivenParameters* given = device.given_parameters();
  if (given == nullptr) {
    return invalid(cat("the device of stage ", stage,
                       " has no parameters that could be kept elsewhere: take device.kind = "
                       "\"cpu\" or \"cuda\""));
  }
  StageParameters own;
  own.decayed = given->decayed_count(stage);
  own.initial.resize(static_cast<size_t>(given->parameter_count(stage)));
  const Status filled = given->initial_parameters(stage, own.initial);
  if (!filled.ok()) return filled.error();
  return own;
}

RangeStart::RangeStart(Job job, std::vector<StageParameters> stages,
                       std::vector<std::string> shards)
    : job_(std::move(job)), stages_(std::move(stages)), shards_(std::move(shards)) {
  for (const StageParameters& stage : stages_) elements_.push_back(std::ssize(stage.initial));
}

Result<std::unique_ptr<servers::ParameterStore>> RangeStart::make(
    const servers::ElementRange& range) const {
  const bool is_stage = range.stage.value >= 0 && range.stage.value < std::ssize(stages_);
  if (!is_stage || range.begin < 0 || range.end <= range.begin) {
    return invalid(cat("elements ", range.begin, " to ", range.end, " of stage ", range.stage,
                       ": expected a range of one of ", stages_.size(), " stages"));
  }
  const StageParameters& stage = stages_[static_cast<size_t>(range.stage.value)];
  const int64_t elements = elements_[static_cast<size_t>(range.stage.value)];
  if (elements == 0) {
    return invalid(cat("elements ", range.begin, " to ", range.end, " of stage ", range.stage,
                       ": this process is a part of another stage, and keeps only ranges of that"));
  }
  if (range.end > elements) {
    return invalid(cat("elements ", range.begin, " to ", range.end, " of stage ", range.stage,
                       ": it has ", elements));
  }
  std::vector<float> own(static_cast<size_t>(range.end - range.begin), 0.0F);
  if (!has_begun_ && shards_.empty()) {
    own.assign(stage.initial.begin() + range.begin, stage.initial.begin() + range.end);
  }
  const auto settings = servers::store_settings_of(job_, range, stage.decayed);
  auto made = servers::MassStore::make(settings, range, std::move(own));
  if (!made.ok()) return made.error();
  std::unique_ptr<servers::ParameterStore> store = std::move(made).value();
  if (!has_begun_ && !shards_.empty()) {
    const auto state = read_range(shards_, range);
    if (!state.ok()) return state.error();
    if (const Status loaded = store->load(state.value()); !loaded.ok()) return loaded.error();
  }
  return store;
}

void RangeStart::begin() {
  has_begun_ = true;
  for (StageParameters& stage : stages_) {
    stage.initial.clear();
    stage.initial.shrink_to_fit();
  }
}

Result<std::unique_ptr<Chooser>> chooser_of(const Job& job) {
  const SyncSettings& sync = job.sync;
  if (!chooses(job)) return std::unique_ptr<Chooser>();
  if (sync.chooser == "heuristic") return published_chooser();
  if (sync.chooser != "learned") return look_ahead_chooser();
  if (sync.chooser_content.empty()) {
    ChooserModel nothing;
    nothing.replicas = job.parallel.pipelines;
    return learned_chooser(nothing);
  }
  const auto model =
      chooser_from_text(sync.chooser_content, sync.chooser_file, job.parallel.pipelines);
  if (!model.ok()) return model.error();
  return learned_chooser(model.value());
}

// Until the first updates are measured they count as no time, which is right as long as updates are
// short beside iterations.
servers::ModeChoiceSettings mode_choice_of(const Job& job) {
  servers::ModeChoiceSettings choice;
  choice.replicas = job.parallel.pipelines;
  choice.micros = job.parallel.micros;
  choice.kappa = job.sync.kappa;
  choice.learns_kappa = job.sync.learn_kappa;
  choice.seed = static_cast<uint64_t>(job.seed);
  choice.asks = !job.sync.ledger.empty();
  choice.children_send_to_parents = !job.has_servers();
  if (!job.has_servers()) choice.kept_numbers = 1 + moments_of(job);
  return choice;
}

Result<SyncMode> first_mode_of(const Job& job) {
  const std::vector<IterationTime> times = equal_times(job);
  if (chooses(job)) {
    if (asks(job)) return SyncMode{};
    const auto chooser = chooser_of(job);
    if (!chooser.ok()) return chooser.error();
    return chooser.value()->first(times, job.sync.kappa);
  }
  const auto mode = sync_mode_from_text(job.sync.mode);
  if (!mode.ok()) return mode.error();
  return form(mode.value(), times, job.parallel.micros);
}

Result<servers::DeciderStart> decider_start_of(const Job& job,
                                               const std::vector<std::string>& shards) {
  const auto mode = first_mode_of(job);
  if (!mode.ok()) return mode.error();
  const int32_t replicas = job.parallel.pipelines;
  servers::DeciderStart start;
  start.micros = job.parallel.micros;
  start.save_every = {job.checkpoint_every * job.full_mass()};
  start.end = {job.steps * job.full_mass()};
  // With servers a link to a parent is no better than those to the servers.
  start.children_send_to_parents = !job.has_servers();
  if (shards.empty()) {
    start.record = servers::first_record(mode.value(), replicas);
    return start;
  }
  const auto record = read_record(shards);
  if (!record.ok()) return record.error();
  if (std::ssize(record.value().streams) != replicas) {
    return Error{Code::Invalid, Reach::Job,
                 cat("the checkpoint is of a run with ", record.value().streams.size(),
                     " replicas, and this one has ", replicas,
                     ": set parallel.pipelines to the number of the checkpoint")};
  }
  start.record = servers::resumed(record.value());
  if (!chooses(job) || asks(job)) start.record.mode = mode.value();
  return start;
}

}  // namespace tenuto
