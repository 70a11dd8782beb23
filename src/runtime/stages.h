// A worker that holds several stages: one Device for each, which share a store of values, so that
// what one stage makes the next one takes without a message. Which stages it holds may change.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/contains.h"
#include "runtime/device.h"

namespace tenuto {

// One stage of a worker and what runs it.
template <class Face>
struct StagePart {
  StageId stage;
  std::unique_ptr<Face> device;
};

// The parts as one device. A call that concerns a stage goes to its part; a value that travels
// lies in the store that the parts share, so any of them can answer for it.
//
// Between two steps all parts have the same version. If a step was abandoned, some parts may have
// taken their Step and be ahead of version(): their Step is undone before anything else is done.
template <class Face>
class Stages : public Face, private GradientGrowth, private GivenParameters {
 public:
  // Makes the device of one more stage of the plan, with initial parameters.
  using Maker = std::function<Result<std::unique_ptr<Face>>(const Plan& plan, StageId stage)>;

  // Requires: at least one part; all parts, also those that `make` makes later, share one store of
  //           values and report to one mailbox
  Stages(std::vector<StagePart<Face>> parts, Maker make)
      : parts_(std::move(parts)), make_(std::move(make)) {
    CHECK(!parts_.empty(), "a worker holds a stage");
  }

  Result<Duration> begin(int64_t step) override {
    if (Status level = take_back_early(); !level.ok()) return level.error();
    return latest([&](Face& part) { return part.begin(step); });
  }
  bool resumes() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part.device->resumes(); });
  }
  void keep(const Value& value) override { part_of(value).keep(value); }
  void drop(const Value& value) override { part_of(value).drop(value); }
  // Some of the parts may have stepped: `rest` says for each whether that is taken back.
  Result<Duration> resume(int64_t step, const RestPart& rest) override {
    return latest([&](Face& part) { return part.resume(step, rest); });
  }
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    const auto found = find(op.stage);
    CHECK(found != parts_.end(), "an op of a stage that the worker holds");
    return found->device->start(op, inputs_at, ticket);
  }
  void set_speed(double speed) override {
    for (const auto& part : parts_) part.device->set_speed(speed);
  }
  Status hold(const Plan& plan, const std::vector<StageId>& stages) override {
    CHECK(!stages.empty(), "a worker holds a stage");
    const int64_t version = this->version();
    Parts held;
    for (const StageId stage : stages) {
      if (find(stage) != parts_.end()) continue;
      Result<std::unique_ptr<Face>> made = make_(plan, stage);
      if (!made.ok()) return made.error();
      held.push_back({stage, std::move(made).value()});
      if (Status same = held.back().device->adopt(version); !same.ok()) return same;
    }
    for (auto& part : parts_) {
      if (contains(stages, part.stage)) held.push_back(std::move(part));
    }
    std::sort(held.begin(), held.end(),
              [](const auto& one, const auto& other) { return one.stage < other.stage; });
    parts_ = std::move(held);
    return ok();
  }
  Result<std::span<const std::byte>> bytes(const Value& value) override {
    return part_of(value).bytes(value);
  }
  Result<std::span<std::byte>> allocate(const Value& value) override {
    return part_of(value).allocate(value);
  }
  Copies* copies() override { return first().copies(); }
  GradientGrowth* growth() override { return first().growth() == nullptr ? nullptr : this; }
  GivenParameters* given_parameters() override {
    return first().given_parameters() == nullptr ? nullptr : this;
  }
  Element sum_elements() const override { return parts_.front().device->sum_elements(); }
  Status reduced(const Value& total) override { return part_of(total).reduced(total); }
  void discard(const Value& value) override { part_of(value).discard(value); }
  StepOutcome outcome() override {
    StepOutcome all = parts_.front().device->outcome();
    for (size_t i = 1; i < parts_.size(); ++i) {
      const StepOutcome part = parts_[i].device->outcome();
      all.finite = all.finite && part.finite;
      all.losses.insert(all.losses.end(), part.losses.begin(), part.losses.end());
    }
    return all;
  }
  int64_t version() const override {
    int64_t least = parts_.front().device->version();
    for (const auto& part : parts_) least = std::min(least, part.device->version());
    return least;
  }
  void start_over() override {
    for (const auto& part : parts_) part.device->start_over();
  }
  Finality finality() override {
    Finality all = parts_.front().device->finality();
    for (const auto& part : parts_) {
      const Finality own = part.device->finality();
      const bool again = all.again || own.again;
      if (own.version < all.version) all = own;
      all.again = again;
    }
    return all;
  }
  Status undo() override {
    if (Status level = take_back_early(); !level.ok()) return level;
    return each([](Face& part) { return part.undo(); });
  }
  Status save(StageId stage, const std::string& path) override {
    if (Status level = take_back_early(); !level.ok()) return level;
    const auto found = find(stage);
    CHECK(found != parts_.end(), "a shard of a stage that the worker holds");
    return found->device->save(stage, path);
  }
  Result<StateCopy> copy_state(StageId stage) override {
    if (Status level = take_back_early(); !level.ok()) return level.error();
    return holder(stage).copy_state(stage);
  }
  Status load(const std::vector<std::string>& paths, int64_t version) override {
    return each([&](Face& part) { return part.load(paths, version); });
  }
  int64_t state_bytes(StageId stage) const override { return holder(stage).state_bytes(stage); }
  int64_t state_unit(StageId stage) const override { return holder(stage).state_unit(stage); }
  Status read_state(StageId stage, int64_t first, std::span<std::byte> to) override {
    if (Status level = take_back_early(); !level.ok()) return level;
    return holder(stage).read_state(stage, first, to);
  }
  Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) override {
    return holder(stage).write_state(stage, first, from);
  }
  Status adopt(int64_t version) override {
    return each([&](Face& part) { return part.adopt(version); });
  }

 protected:
  using Parts = std::vector<StagePart<Face>>;
  // All parts; after hold() they are sorted by stage.
  const Parts& parts() const { return parts_; }
  // The first part, which answers for the device as a whole.
  Face& first() const { return *parts_.front().device; }

 private:
  SumGrowth growth_of(StageId stage) const override {
    GradientGrowth* const part = holder(stage).growth();
    return part == nullptr ? SumGrowth{} : part->growth_of(stage);
  }
  void report_growth(StageId stage) override { holder(stage).growth()->report_growth(stage); }
  int64_t parameter_count(StageId stage) const override {
    return holder(stage).given_parameters()->parameter_count(stage);
  }
  int64_t decayed_count(StageId stage) const override {
    return holder(stage).given_parameters()->decayed_count(stage);
  }
  Status initial_parameters(StageId stage, std::span<float> into) override {
    return holder(stage).given_parameters()->initial_parameters(stage, into);
  }
  Status set_parameters(StageId stage, std::span<const float> from) override {
    if (Status level = take_back_early(); !level.ok()) return level;
    return holder(stage).given_parameters()->set_parameters(stage, from);
  }
  Status read_gradients(StageId stage, std::span<float> into) override {
    return holder(stage).given_parameters()->read_gradients(stage, into);
  }
  typename Parts::iterator find(StageId stage) {
    return std::find_if(parts_.begin(), parts_.end(),
                        [&](const auto& part) { return part.stage == stage; });
  }
  Face& holder(StageId stage) const {
    const auto found = std::find_if(parts_.begin(), parts_.end(),
                                    [&](const auto& part) { return part.stage == stage; });
    CHECK(found != parts_.end(), "the state of a stage that the worker holds");
    return *found->device;
  }
  Face& part_of(const Value& value) {
    const auto found = find(value.stage);
    return found != parts_.end() ? *found->device : first();
  }
  template <class Call>
  Status each(const Call& call) {
    for (const auto& part : parts_) {
      if (Status status = call(*part.device); !status.ok()) return status;
    }
    return ok();
  }
  // The parts share one clock, which never goes back: what the last part returns is the latest.
  template <class Call>
  Result<Duration> latest(const Call& call) {
    Duration begun{};
    for (const auto& part : parts_) {
      const Result<Duration> own = call(*part.device);
      if (!own.ok()) return own.error();
      begun = own.value();
    }
    return begun;
  }
  // If a step ended between the Steps of two parts, takes back the Steps that were taken.
  Status take_back_early() {
    const int64_t least = version();
    return each([&](Face& part) { return part.version() > least ? part.undo() : ok(); });
  }

  Parts parts_;
  Maker make_;
};

}  // namespace tenuto
