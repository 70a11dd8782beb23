// The interface of a stage to the worker, and the device of a worker's stages.
#include "engine/engine.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "engine/copies.h"
#include "engine/data.h"
#include "engine/stage_engine.h"
#include "runtime/stages.h"
#include "world/fit.h"
#include "world/job_model.h"

namespace tenuto {
namespace {

// Adds the boundaries of a stage to those of its worker.
Status add_boundaries(const StageModule& module, int32_t stage, int32_t stage_count,
                      std::map<Value, Boundary>& boundaries) {
  const auto add = [&](int32_t next, const Boundary& boundary) -> Status {
    const auto [known, added] =
        boundaries.try_emplace({ValueKind::Activation, -1, {next - 1}, {}}, boundary);
    if (!(known->second == boundary) || boundary.gradients().empty()) {
      return Error{Code::Invalid, Reach::Job,
                   cat("stages ", next - 1, " and ", next, ": both modules must describe the same ",
                       "tensors between them, at least one of floating point")};
    }
    boundaries.try_emplace({ValueKind::Gradient, -1, {next}, {}}, boundary.gradients());
    return ok();
  };
  if (stage > 0) {
    if (Status before = add(stage, module.inputs()); !before.ok()) return before;
  }
  return stage + 1 < stage_count ? add(stage + 1, module.outputs()) : ok();
}

// How the gradient sum of a stage grows. A tied weight that two stages hold gets its gradients from
// both.
SumGrowth growth_in(const Job& job, const Weights& weights) {
  if (!sums_grow(job)) return {};
  std::vector<ParameterCard> cards;
  for (const Weight& weight : weights.all()) {
    if (weight.card.shared) return {};
    cards.push_back(weight.card);
  }
  const ParameterLayout layout = layout_of(cards);
  return {layout.count, growth_of(cards, layout)};
}

// So many more elements of a sum are worth a report.
constexpr int64_t kReportElements = kGrowthSliceBytes / static_cast<int64_t>(sizeof(float)) / 2;

}  // namespace

StageEngine::StageEngine(const Job& job, const Plan& plan, StageId stage, StageCode code,
                         std::shared_ptr<const StageSurroundings> shared, Mailbox& mailbox)
    : StageDevice(plan, stage, job.optimizer.clip),
      job_(job),
      keeps_back_up_(plan.stages.size() > 1 || plan.stages[0].holders.size() > 1),
      shared_(std::move(shared)),
      device_(shared_->device),
      store_(*shared_->store),
      mailbox_(mailbox),
      module_(std::move(code.module)),
      weights_(job, module_->parameters(), device_.place(), module_->own_tensors(),
               std::move(code.rule)),
      sums_(weights_, device_),
      growth_(growth_in(job, weights_)),
      growing_(growth_, kReportElements) {
  module_->bind(weights_);
  watch_weights();
  thread_ = std::thread([this] { serve(); });
}

StageEngine::~StageEngine() {
  slot_.close();
  thread_.join();
}

// --- The worker's side -------------------------------------------------------------------------

// Waits for the op under way. An op waits for nothing but the device, so it always ends; the limit
// is for a device that has stopped.
Status StageEngine::await_idle() {
  constexpr std::chrono::minutes kLimit(10);
  if (slot_.wait_idle(kLimit)) return ok();
  return Error{Code::Timeout, Reach::Worker,
               cat("stage ", stage_, " has been in one op for ", kLimit.count(),
                   " minutes: the device does not respond")};
}

Result<Duration> StageEngine::begin(int64_t step) {
  if (Status idle = await_idle(); !idle.ok()) return idle.error();
  store_.begin(step);
  sums_.begin(step);
  begin_step(step);
  sums_clear_ = divided_ = false;
  return Duration(0);
}

// A total needs nothing here: it stays in its memory.
void StageEngine::keep(const Value& value) {
  if (value.kind != ValueKind::Total) store_.keep(value);
}

void StageEngine::drop(const Value& value) {
  value.kind == ValueKind::Total ? discard(value) : store_.drop(value);
}

void StageEngine::restore(int64_t step, const std::vector<Value>& stored) {
  store_.resume(step, stored);
  sums_.resume(step);
}

Duration StageEngine::begin_rest() {
  sums_clear_ = account_.has_sum();
  divided_ = false;
  return {};
}

// Each stage looks only for its own totals.
bool StageEngine::is_here(const Value& value) const {
  if (value.kind == ValueKind::Total) return value.stage != stage_ || sums_.has(value);
  const bool stored = feeds_compute(value.kind) || value.kind == ValueKind::ClipDecision;
  return !stored || store_.get(value).tensor.defined();
}

Status StageEngine::start(const Op& op, Duration, Ticket ticket) {
  CHECK(op.stage == stage_, cat("an op of stage ", stage_, ", got one of ", op.stage));
  slot_.start({op, ticket, std::exchange(reports_next_, false)});
  return ok();
}

Result<std::span<const std::byte>> StageEngine::bytes(const Value& value) {
  if (value.kind == ValueKind::Partial) {
    clear_once();
    return sums_.own(value.part);
  }
  if (value.kind == ValueKind::Total && sums_.has(value)) return sums_.bytes(value);
  const HeldValue held = store_.get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " has no value of kind ", static_cast<int>(value.kind),
                      " of stage ", value.stage, ", micro ", value.micro, " to send"));
  }
  return std::span(static_cast<const std::byte*>(held.tensor.const_data_ptr()),
                   held.tensor.nbytes());
}

Result<std::span<std::byte>> StageEngine::allocate(const Value& value) {
  if (value.kind == ValueKind::Total) {
    divided_ = false;
    return sums_.allocate(value);
  }
  const bool norm = value.kind == ValueKind::Norm;
  const auto size = static_cast<int64_t>(norm ? sizeof(RunningNorm) : sizeof(WholeNorm));
  const at::Tensor memory = norm || value.kind == ValueKind::ClipDecision
                                ? at::empty({size}, at::kByte)
                                : boundary_of(value).allocate(device_);
  store_.put(value, {memory, nullptr});
  return std::span(static_cast<std::byte*>(memory.mutable_data_ptr()), memory.nbytes());
}

// The compute thread divides by the micro-batch count later: the memory keeps the sum, which may be
// sent to others as a total.
Status StageEngine::reduced(const Value&) { return ok(); }

void StageEngine::discard(const Value& value) {
  value.kind == ValueKind::Total ? sums_.discard(value) : store_.remove(value);
}

Status StageEngine::take_back() {
  if (undo_ == Undo::None) {
    return failed(cat("stage ", stage_, " has no update to undo at version ", version()));
  }
  if (undo_ == Undo::Kept) weights_.take_back();
  undo_ = Undo::None;
  return ok();
}

Status StageEngine::save(StageId stage, const std::string& path) {
  CHECK(stage == stage_, cat("a shard of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  return weights_.save(path, version_);
}

Result<StateCopy> StageEngine::copy_state(StageId stage) {
  CHECK(stage == stage_, cat("a copy of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle.error();
  return weights_.copy(version_);
}

Status StageEngine::load(const std::vector<std::string>& paths, int64_t version) {
  if (Status idle = await_idle(); !idle.ok()) return idle;
  // A held-out pass needs no state of an optimizer.
  const Status loaded =
      job_.evaluate.empty() ? weights_.load(paths, version) : weights_.load_values(paths);
  if (!loaded.ok()) return loaded;
  return adopt(version);
}

Status StageEngine::read_state(StageId stage, int64_t first, std::span<std::byte> to) {
  CHECK(stage == stage_, cat("the state of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  weights_.read_state(first, to);
  return ok();
}

Status StageEngine::write_state(StageId stage, int64_t first, std::span<const std::byte> from) {
  CHECK(stage == stage_, cat("the state of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  weights_.write_state(first, from);
  undo_ = Undo::None;  // the back-up from before the last update does not have this part
  return ok();
}

// Refuses a span that does not have the elements of the stage.
Status StageEngine::check_elements(StageId stage, size_t elements) const {
  CHECK(stage == stage_, cat("the parameters of stage ", stage_, ", not of ", stage));
  if (elements == static_cast<size_t>(weights_.count())) return ok();
  return invalid(cat("stage ", stage_, " has parameters of ", weights_.count(),
                     " elements, unused ones included, and was given ", elements,
                     ": give as many as parameter_count() says"));
}

Status StageEngine::initial_parameters(StageId stage, std::span<float> into) {
  if (Status fits = check_elements(stage, into.size()); !fits.ok()) return fits;
  weights_.fill_initial(into);
  return ok();
}

Status StageEngine::set_parameters(StageId stage, std::span<const float> from) {
  if (Status fits = check_elements(stage, from.size()); !fits.ok()) return fits;
  if (Status idle = await_idle(); !idle.ok()) return idle;
  weights_.set_values(from);
  undo_ = Undo::None;  // the back-up is of other parameters
  return ok();
}

Status StageEngine::read_gradients(StageId stage, std::span<float> into) {
  if (Status fits = check_elements(stage, into.size()); !fits.ok()) return fits;
  if (Status idle = await_idle(); !idle.ok()) return idle;
  clear_once();
  weights_.read_sums(into);
  return ok();
}

Result<std::unique_ptr<Device>> make_engine(const Job& job, const Plan& plan,
                                            const std::vector<StageId>& stages, Mailbox& mailbox,
                                            EngineOptions options) {
  CHECK(!stages.empty(), "an engine holds a stage");
  CHECK(plan.stages.back().layer_end == cut_layers(job.model), "a plan of this model's layers");
  Result<TorchDevice> device = TorchDevice::open(job.device);
  if (!device.ok()) return device.error();
  const auto shared = std::make_shared<StageSurroundings>(StageSurroundings{
      std::move(device).value(), nullptr, std::make_shared<ValueStore>(), nullptr, {}});
  if (shared->device.accelerator() || options.separate_memory) {
    shared->copies = make_copies(shared->device, shared->store);
  }
  const ModuleMaker module_of = options.module ? options.module : model_kind(job.model).make;
  if (!module_of) {
    return Error{Code::Invalid, Reach::Job,
                 cat("model.kind = \"", job.model.kind, "\" is computed by a script alone: start ",
                     "it with tenuto launch")};
  }
  const DataOpener data_of = options.data ? options.data : open_data;
  const auto make = [job, shared, module_of, data_of, &mailbox](
                        const Plan& of, StageId stage) -> Result<std::unique_ptr<Device>> {
    const auto all = static_cast<int32_t>(of.stages.size());
    CHECK(stage.value >= 0 && stage.value < all, cat("a stage of ", all, ", not ", stage));
    if ((stage.value == 0 || stage.value == all - 1) && shared->data == nullptr) {
      Result<std::unique_ptr<Data>> opened = data_of(job);
      if (!opened.ok()) return opened.error();
      shared->data = std::move(opened).value();
    }
    const DataExtent extent = shared->data != nullptr ? shared->data->extent() : DataExtent{};
    StageCode code;
    try {
      code.module = module_of(job, extent, of.stages[static_cast<size_t>(stage.value)]);
      if (job.optimizer.kind == "torch") code.rule = code.module->make_optimizer();
    } catch (const ModuleError& error) {
      return Error{Code::Invalid, Reach::Job, cat("stage ", stage, ": ", error.what())};
    }
    const Status fits = add_boundaries(*code.module, stage.value, all, shared->boundaries);
    if (!fits.ok()) return fits.error();
    if (job.optimizer.kind == "torch" && code.rule == nullptr) {
      return Error{Code::Invalid, Reach::Job,
                   "optimizer.kind = \"torch\" needs a script that gives tenuto.Pipeline an "
                   "optimizer: give it one, or leave the key out"};
    }
    return std::unique_ptr<Device>(
        std::make_unique<StageEngine>(job, of, stage, std::move(code), shared, mailbox));
  };
  std::vector<StagePart<Device>> parts;
  for (const StageId stage : stages) {
    Result<std::unique_ptr<Device>> made = make(plan, stage);
    if (!made.ok()) return made.error();
    parts.push_back({stage, std::move(made).value()});
  }
  if (parts.size() == 1 && !has_fine_stages(job)) return std::move(parts.front().device);
  return std::unique_ptr<Device>(std::make_unique<Stages<Device>>(std::move(parts), make));
}

}  // namespace tenuto
