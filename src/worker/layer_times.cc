#include "worker/layer_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"
#include "ir/effect.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "world/fit.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

constexpr int64_t kFloat = 4;
// Steps that run first and are not measured, so that caches and allocators warm up.
constexpr int kWarmUps = 1;
// Steps that each turn measures even if the time limit is over.
constexpr int kLeastSteps = 2;
// A length is certain when the interquartile range of its n times, divided by the square root of n,
// is at most this share of the median.
constexpr double kCertain = 0.005;
// If an op takes longer than this, the device counts as stopped.
constexpr Duration kOpLimit = std::chrono::minutes(10);
// The program measures all numbers of rows in turns, each number this many times. So a machine that
// is slower for a second affects all numbers of rows, and none of them much.
constexpr int kTurns = 10;
// If the model is large, making it takes long, and each turn makes it anew. So a turn measures for
// at least this many times as long as it took to make the model, and there may be fewer turns.
constexpr int kTurnOverMaking = 5;

enum Part : size_t { kForward, kBackwardInput, kBackwardWeight, kUpdate, kParts };

std::optional<Part> part_of(OpKind kind) {
  if (kind == OpKind::Forward) return kForward;
  if (kind == OpKind::BackwardInput) return kBackwardInput;
  if (kind == OpKind::BackwardWeight) return kBackwardWeight;
  if (kind == OpKind::Measure || kind == OpKind::Step) return kUpdate;
  return std::nullopt;
}

// The measured times of ops of one kind.
using Times = std::vector<Duration>;

// The lowest decile. Other programs, or other virtual machines of the same host, can only make an
// op longer, and they come and go. So the lowest decile changes less from one measurement to the
// next than the median does.
Duration length_of(Times times) { return quantile(times, 0.1); }

// The interquartile range divided by the median; 0 if the median is 0.
double spread_of(Times times) {
  const Duration median = quantile(times, 0.5);
  if (median.count() <= 0) return 0;
  const Duration width = quantile(times, 0.75) - quantile(times, 0.25);
  return to_milliseconds(width) / to_milliseconds(median);
}

// The measured times of the ops of all stages of a plan.
struct StageTimes {
  std::vector<std::array<Times, kParts>> of;  // by stage
  std::array<Times, kUpdate> steps;           // by step: the sum of its ops of all stages
  Times between;                              // from the end of an op to the start of the next

  void add(const std::vector<Event>& events) {
    std::vector<Duration> update(of.size());
    std::array<Duration, kUpdate> sums{};
    std::optional<Duration> last;
    for (const Event& event : events) {
      const std::optional<Part> part = part_of(event.op.kind);
      if (!part) continue;
      const auto stage = static_cast<size_t>(event.op.stage.value);
      const Duration length = event.finish - event.start;
      if (*part == kUpdate) {
        update[stage] += length;
        continue;
      }
      of[stage][*part].push_back(length);
      sums[*part] += length;
      if (last) between.push_back(event.start - *last);
      last = event.finish;
    }
    for (size_t s = 0; s < of.size(); ++s) of[s][kUpdate].push_back(update[s]);
    for (size_t part = 0; part < kUpdate; ++part) steps[part].push_back(sums[part]);
  }

  bool is_certain() const {
    return std::all_of(of.begin(), of.end(), [](const auto& parts) {
      return std::all_of(parts.begin(), parts.begin() + kUpdate, [](const Times& times) {
        return spread_of(times) <= kCertain * std::sqrt(static_cast<double>(times.size()));
      });
    });
  }
};

// A device, and what it needs to run the steps of one plan.
class Seat {
 public:
  static Result<std::unique_ptr<Seat>> make(const Job& job, const Plan& plan,
                                            const RealDevice& real) {
    auto seat = std::unique_ptr<Seat>(new Seat(plan));
    std::vector<StageId> stages;
    for (int32_t s = 0; s < static_cast<int32_t>(plan.stages.size()); ++s) stages.push_back({s});
    Result<WorkerCompute> made = make_compute(job, plan, {0}, stages, seat->mailbox_, real);
    if (!made.ok()) return made.error();
    seat->made_ = std::move(made).value();
    seat->transport_ = make_memory_transport(seat->network_, {"profile", "", kWireVersion, {0}, 0},
                                             seat->mailbox_);
    Device* const device = seat->made_.compute.get();
    seat->runner_.emplace(Machine{seat->transport_.get(), device, device, &seat->mailbox_,
                                  &monotonic_clock(), seat->made_.pacer.get()});
    return seat;
  }

  // Runs the next step.
  Result<std::vector<Event>> step() {
    StepInput input;
    input.plan = plan_;
    input.self = {0};
    input.step = step_++;
    input.limits.silence = kOpLimit;
    return runner_->run_step(input);
  }
  // Begins the next step without running its ops: then run() runs them one by one.
  Status begin() {
    const auto begun = device().begin(step_);
    return begun.ok() ? ok() : Status(begun.error());
  }
  Status run(const Op& op) {
    if (Status started = device().start(op, {}, fresh_ticket()); !started.ok()) return started;
    const auto done = mailbox_.wait(kOpLimit);
    return done.ok() ? done.value().status : Status(done.error());
  }
  void discard_after(const Op& op) {
    for (const Value& value : effect_of(op, stage_count()).free) device().discard(value);
  }
  Device& device() { return *made_.compute; }
  int32_t stage_count() const { return static_cast<int32_t>(plan_->stages.size()); }

 private:
  explicit Seat(const Plan& plan) : plan_(&plan) {}
  const Plan* plan_;
  QueueMailbox mailbox_;  // before the members that report to it, so it outlives them
  MemoryNetwork network_;
  WorkerCompute made_;
  std::unique_ptr<Transport> transport_;
  std::optional<Runner> runner_;
  int64_t step_ = 0;
};

// The memory of each layer, for one number of rows.
struct LayerBytes {
  std::vector<Bytes> activation, stash, parameters;
  Bytes kept;  // by all layers together, between steps
};

// Runs one micro-batch op by op, and measures the memory before and after each forward.
Status run_for_bytes(Seat& seat, const MemoryCount& memory, LayerBytes& bytes) {
  if (Status begun = seat.begin(); !begun.ok()) return begun;
  const int32_t count = seat.stage_count();
  const auto op_of = [](OpKind kind, int32_t stage) {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    op.micro = {0};
    return op;
  };
  for (int32_t s = 0; s < count; ++s) {
    const Op op = op_of(OpKind::Forward, s);
    const Bytes before = memory.use().now;
    if (Status ran = seat.run(op); !ran.ok()) return ran;
    bytes.stash.push_back(memory.use().now - before);
    Bytes output;
    if (s + 1 < count) {
      const auto held = seat.device().bytes({ValueKind::Activation, -1, {s}, {0}});
      if (!held.ok()) return held.error();
      output = {static_cast<int64_t>(held.value().size())};
    }
    bytes.activation.push_back(output);
    seat.discard_after(op);
  }
  for (int32_t s = count - 1; s >= 0; --s) {
    for (const OpKind kind : {OpKind::BackwardInput, OpKind::BackwardWeight}) {
      const Op op = op_of(kind, s);
      if (Status ran = seat.run(op); !ran.ok()) return ran;
      seat.discard_after(op);
    }
  }
  return ok();
}

// The bytes of the weights of a stage. Its state consists of one unit for the number of updates and
// one unit for each weight.
Bytes parameters_of(const Device& device, int32_t stage) {
  const int64_t units = device.state_bytes({stage}) / device.state_unit({stage}) - 1;
  return {units * kFloat};
}

LayerBytes paced_bytes(const Job& job, size_t layers) {
  LayerBytes bytes;
  bytes.activation.assign(layers, {job.device.message_bytes});
  bytes.activation.back() = {};
  bytes.stash = bytes.activation;
  bytes.parameters.assign(layers, {job.device.parameter_bytes});
  bytes.kept = {job.device.parameter_bytes * static_cast<int64_t>(layers)};
  return bytes;
}

Bytes of_one_row(Bytes bytes, int32_t rows) { return {(bytes.count + rows - 1) / rows}; }

// Measures one LayerWork.
class Measurement {
 public:
  Measurement(const LayerWork& work, const RealDevice& real)
      : work_(work),
        real_(real),
        paced_(work.job.device.kind == "paced"),
        rows_(paced_ ? std::vector<int32_t>{work.job.parallel.micro_rows}
                     : measured_rows(work.job.parallel.micro_rows)),
        apart_(rows_.size()),
        whole_(rows_.size()) {
    for (StageTimes& times : apart_) times.of.resize(work.apart.stages.size());
    for (StageTimes& times : whole_) times.of.resize(work.whole.stages.size());
  }

  Status run() {
    const Duration end = monotonic_clock().now() + work_.limit;
    for (bool first = true; first || monotonic_clock().now() < end; first = false) {
      // Begin with the largest number of rows: if it does not fit into memory, this fails at once.
      for (size_t index = rows_.size(); index-- > 0;) {
        const bool largest = index + 1 == rows_.size();
        if (Status ran = measure(index, first && largest); !ran.ok()) return ran;
      }
      const auto certain = [](const StageTimes& times) { return times.is_certain(); };
      if (std::all_of(apart_.begin(), apart_.end(), certain) &&
          std::all_of(whole_.begin(), whole_.end(), certain)) {
        return ok();
      }
    }
    return ok();
  }

  ModelProfile result() const {
    ModelProfile profile;
    profile.rows = rows_;
    const std::array<Duration, kUpdate> constant = {
        constant_of(kForward), constant_of(kBackwardInput), constant_of(kBackwardWeight)};
    // The cost per op if the backward is not split: then a stage has two ops per micro-batch.
    profile.op = (constant[kForward] + constant[kBackwardInput] + constant[kBackwardWeight]) / 2 +
                 length_of(between());
    int64_t parameters = 0;
    for (const Bytes bytes : bytes_.parameters) parameters += bytes.count;
    const double beside =
        parameters == 0
            ? 0
            : static_cast<double>(bytes_.kept.count) / static_cast<double>(parameters) - 1;
    const std::vector<std::string> names = layer_names(work_.job.model);
    const int32_t rows = rows_.back();
    for (size_t l = 0; l < work_.apart.stages.size(); ++l) {
      LayerProfile layer;
      layer.name = names[l];
      for (const StageTimes& times : apart_) {
        const auto& parts = times.of[l];
        layer.forward.push_back(without(parts[kForward], constant[kForward]));
        layer.backward_input.push_back(without(parts[kBackwardInput], constant[kBackwardInput]));
        layer.backward_weight.push_back(without(parts[kBackwardWeight], constant[kBackwardWeight]));
        for (const Part part : {kForward, kBackwardInput, kBackwardWeight}) {
          layer.spread = std::max(layer.spread, spread_of(parts[part]));
        }
      }
      layer.update = update_of(l);
      layer.activation = of_one_row(bytes_.activation[l], rows);
      layer.stash = of_one_row(bytes_.stash[l], rows);
      layer.parameters = bytes_.parameters[l];
      layer.optimizer = Bytes{std::max<int64_t>(
          0, std::llround(beside * static_cast<double>(bytes_.parameters[l].count)))};
      profile.layers.push_back(std::move(layer));
    }
    return profile;
  }

 private:
  // Measures one number of rows for one turn.
  Status measure(size_t index, bool first) {
    const Duration begin = monotonic_clock().now();
    Job job = work_.job;
    job.parallel.micro_rows = rows_[index];
    // On the CPU, make the counter first: it counts only what is allocated after that.
    MemoryCount* memory = !paced_ && job.device.kind == "cpu" ? real_.memory(job.device) : nullptr;
    const Bytes before = memory != nullptr ? memory->use().now : Bytes{};
    auto apart = Seat::make(job, work_.apart, real_);
    if (!apart.ok()) return apart.error();
    if (auto events = apart.value()->step(); !events.ok()) return events.error();
    if (first && paced_) bytes_ = paced_bytes(job, work_.apart.stages.size());
    if (first && !paced_) {
      if (memory == nullptr) memory = real_.memory(job.device);
      bytes_.kept = memory->use().now - before;
      if (Status seen = run_for_bytes(*apart.value(), *memory, bytes_); !seen.ok()) return seen;
      for (int32_t s = 0; s < apart.value()->stage_count(); ++s) {
        bytes_.parameters.push_back(parameters_of(apart.value()->device(), s));
      }
    }
    auto whole = Seat::make(job, work_.whole, real_);
    if (!whole.ok()) return whole.error();
    const Duration made = monotonic_clock().now();
    const Duration share = work_.limit / static_cast<int64_t>(rows_.size());
    const Duration end = made + std::clamp((made - begin) * kTurnOverMaking, share / kTurns, share);
    for (int step = -kWarmUps; step < kLeastSteps || monotonic_clock().now() < end; ++step) {
      const auto some = apart.value()->step();
      if (!some.ok()) return some.error();
      const auto all = whole.value()->step();
      if (!all.ok()) return all.error();
      if (step < 0) continue;
      apart_[index].add(some.value());
      whole_[index].add(all.value());
    }
    return ok();
  }

  // The constant time of an op of this kind, whatever its layers: measured at the smallest number
  // of rows, where it is the largest share. At most half of the shortest op, which contains it.
  // A step of `apart` is compared with the step of `whole` that ran directly after it, because a
  // machine that changes its speed by 1 % between them would change the difference by more than
  // the constant.
  Duration constant_of(Part part) const {
    const auto layers = static_cast<int64_t>(work_.apart.stages.size());
    if (layers < 2) return {};
    Duration shortest = Duration::max();
    for (const auto& parts : apart_[0].of) shortest = std::min(shortest, length_of(parts[part]));
    const Times &apart = apart_[0].steps[part], &whole = whole_[0].steps[part];
    Times more;
    for (size_t step = 0; step < apart.size(); ++step) more.push_back(apart[step] - whole[step]);
    const auto ops = static_cast<int64_t>(whole_[0].of[0][part].size() / whole.size());
    const Duration constant = quantile(more, 0.5) / (ops * (layers - 1));
    return std::clamp(constant, Duration::zero(), shortest / 2);
  }
  // The times between two ops of `whole`, in all steps and for all numbers of rows.
  Times between() const {
    Times all;
    for (const StageTimes& times : whole_) {
      all.insert(all.end(), times.between.begin(), times.between.end());
    }
    return all;
  }
  static Duration without(const Times& times, Duration constant) {
    return std::max(length_of(times) - constant, Duration::zero());
  }
  // The time of a layer's update, from all numbers of rows: it does not depend on them.
  Duration update_of(size_t layer) const {
    Times all;
    for (const StageTimes& times : apart_) {
      const Times& some = times.of[layer][kUpdate];
      all.insert(all.end(), some.begin(), some.end());
    }
    return length_of(std::move(all));
  }

  const LayerWork& work_;
  const RealDevice& real_;
  const bool paced_;
  const std::vector<int32_t> rows_;
  std::vector<StageTimes> apart_, whole_;  // by index of rows_
  LayerBytes bytes_;                       // at the largest number of rows
};

}  // namespace

Job alone(Job job, int32_t micros) {
  const int32_t layers = cut_layers(job.model), stages = job.parallel.stages;
  job.parallel.stages = job.parallel.pipelines = 1;
  job.parallel.chunks = 0;
  job.parallel.micros = micros;
  job.parallel.split_backward = true;
  job.parallel.plan.clear();
  job.parallel.schedule.clear();
  job.parallel.holders.clear();
  job.model.tied = false;  // one worker cannot hold both copies of the weight
  job.network.send = "offloaded";
  job.faults.clear();
  job.resilience.copies = 0;
  // Of a paced device, the settings describe one stage of the pipeline; all stages count as equal.
  for (auto* lengths :
       {&job.device.forward_ms, &job.device.backward_input_ms, &job.device.backward_weight_ms}) {
    lengths->assign(1, lengths->front() * stages);
  }
  job.device.parameter_bytes =
      std::max(kFloat, job.device.parameter_bytes * stages / layers / kFloat * kFloat);
  return job;
}

std::vector<int32_t> measured_rows(int32_t rows) {
  std::vector<int32_t> all;
  for (int32_t some = rows; some > 1; some = (some + 1) / 2) all.push_back(some);
  all.push_back(1);
  std::reverse(all.begin(), all.end());
  return all;
}

std::vector<std::string> layer_names(const ModelSettings& model) {
  std::vector<std::string> names;
  if (model.kind == "gpt") names.push_back("embedding");
  for (int32_t l = 0; l < model.layers; ++l) {
    names.push_back(cat(model.kind == "gpt" ? "block " : "hidden layer ", l));
  }
  names.push_back("head");
  CHECK(static_cast<int32_t>(names.size()) == cut_layers(model), "a name for each layer");
  return names;
}

Result<ModelProfile> measure_layers(const LayerWork& work, const RealDevice& real) {
  Measurement measurement(work, real);
  if (Status ran = measurement.run(); !ran.ok()) return ran.error();
  ModelProfile profile = measurement.result();
  profile.name = work.job.name;
  // A tied weight has a second copy at the last layer, which was not measured: add its bytes.
  if (work.tied) profile.tied = {kVocabulary * work.job.model.width * kFloat};
  return profile;
}

}  // namespace tenuto
