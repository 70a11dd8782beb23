#include "engine/driver.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/walk.h"
#include "plan/make_plan.h"
#include "world/fit.h"

namespace tenuto {
namespace {

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

Plan plan_of(const Job& job) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.chunks = job.parallel.chunks;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.layers = cut_layers(job.model);
  shape.order = job.parallel.order;
  shape.split_backward = job.parallel.split_backward;
  shape.recompute = job.parallel.recompute == "all";
  shape.tied = job.model.tied;
  shape.evaluation_micros = job.validate_micros;
  return expect(make_plan(shape));
}

}  // namespace

// One step while it runs.
class Driver::Round {
 public:
  Round(Driver& driver, const Schedule& schedule) : driver_(driver), schedule_(schedule) {
    for (int32_t worker = 0; worker < driver.worker_count(); ++worker) {
      walks_.emplace_back(driver.plan_, schedule, WorkerId{worker});
    }
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t worker = 0; worker < walks_.size(); ++worker) moved |= advance(worker);
    }
    for (const Walk& walk : walks_) CHECK(walk.done(), "every list comes to its end");
  }

 private:
  using Letter = std::pair<int32_t, Value>;  // to whom, what

  bool advance(size_t worker) {
    Walk& walk = walks_[worker];
    const std::span<const int32_t> offered = walk.startable();
    const std::vector<int32_t> now(offered.begin(), offered.end());
    for (const int32_t index : now) {
      if (!run_one(worker, walk.op(index))) continue;
      walk.start(index);
      const auto freed = walk.finish(index);
      for (const Value& value : freed) driver_.seats_[worker].compute->discard(value);
      return true;
    }
    return false;
  }

  // Runs an op. Returns false if it must wait for another worker.
  bool run_one(size_t worker, const Op& op) {
    Device& compute = *driver_.seats_[worker].compute;
    if (op.kind == OpKind::Send) {
      const auto bytes = expect(compute.bytes(moved_value(op)));
      letters_[{op.peer.value, moved_value(op)}] = {bytes.begin(), bytes.end()};
      return true;
    }
    if (op.kind == OpKind::Recv) {
      const auto found = letters_.find({static_cast<int32_t>(worker), moved_value(op)});
      if (found == letters_.end()) return false;
      const auto buffer = expect(compute.allocate(moved_value(op)));
      CHECK(buffer.size() == found->second.size(), "a message of the size of its buffer");
      std::copy(found->second.begin(), found->second.end(), buffer.begin());
      letters_.erase(found);
      return true;
    }
    if (op.kind == OpKind::Reduce) return reduce(worker, op);
    driver_.run_op(worker, op);
    return true;
  }

  // Makes the sum when the last member comes. Returns false until then.
  bool reduce(size_t worker, const Op& op) {
    const std::vector<WorkerId>& members =
        schedule_.groups[static_cast<size_t>(op.group.value)].members;
    auto& ready = ready_[op.group.value];
    ready[static_cast<int32_t>(worker)] = op;
    if (ready.size() < members.size()) return false;
    std::vector<float>& sum = sums_[op.group.value];
    for (const WorkerId member : members) {
      if (summed_.contains(op.group.value)) break;
      const Op& own = ready.at(member.value);
      const auto bytes =
          expect(driver_.engine(member.value).bytes({ValueKind::Partial, own.part, own.stage, {}}));
      std::vector<float> part(bytes.size() / sizeof(float));
      std::memcpy(part.data(), bytes.data(), bytes.size());
      sum.resize(part.size());
      for (size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
    summed_.insert(op.group.value);
    Device& compute = *driver_.seats_[worker].compute;
    const Value total{ValueKind::Total, op.part, op.stage, {}};
    const auto buffer = expect(compute.allocate(total));
    CHECK(buffer.size() == sum.size() * sizeof(float), "a total as large as its parts");
    std::memcpy(buffer.data(), sum.data(), buffer.size());
    CHECK(compute.reduced(total).ok(), "a total is taken");
    return true;
  }

  Driver& driver_;
  const Schedule& schedule_;
  std::vector<Walk> walks_;
  std::map<Letter, std::vector<std::byte>> letters_;
  std::map<int32_t, std::map<int32_t, Op>> ready_;
  std::map<int32_t, std::vector<float>> sums_;
  std::set<int32_t> summed_;
};

Driver::Driver(const Job& job, const EngineOptions& options) : job_(job), plan_(plan_of(job)) {
  seats_.resize(static_cast<size_t>(job.worker_count()));
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    for (const WorkerId holder : plan_.stages[stage].holders) {
      Seat& seat = seats_[static_cast<size_t>(holder.value)];
      seat.stages.push_back({static_cast<int32_t>(stage)});
    }
  }
  for (Seat& seat : seats_) {
    seat.mailbox = std::make_unique<QueueMailbox>();
    seat.compute = expect(make_engine(job, plan_, seat.stages, *seat.mailbox, options));
  }
}

void Driver::run_op(size_t worker, const Op& op) {
  Seat& seat = seats_[worker];
  CHECK(seat.compute->start(op, {}, Ticket{7}).ok(), "an op starts");
  const Done done = expect(seat.mailbox->wait(std::chrono::seconds(60)));
  CHECK(done.status.ok(), done.status.error().message);
  CHECK(done.finish >= done.start, "an op has a length");
}

DrivenStep Driver::run(int64_t step, bool evaluation) {
  for (Seat& seat : seats_) CHECK(seat.compute->begin(step).ok(), "a step begins");
  Round(*this, evaluation ? plan_.evaluation : plan_.schedule).run();
  DrivenStep driven;
  for (Seat& seat : seats_) {
    driven.outcomes.push_back(seat.compute->outcome());
    for (const MicroLoss& loss : driven.outcomes.back().losses) {
      driven.losses[loss.micro.value] = loss.loss;
    }
  }
  return driven;
}

std::vector<std::string> Driver::save(const std::string& folder) {
  std::vector<std::string> shards;
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage) {
    shards.push_back(cat(folder, "/stage-", stage, "-of-", plan_.stages.size(), ".safetensors"));
    const Status saved = engine(plan_.stages[stage].holders[0].value)
                             .save({static_cast<int32_t>(stage)}, shards.back());
    CHECK(saved.ok(), saved.error().message);
  }
  return shards;
}

}  // namespace tenuto
