// The checker of one schedule of a plan: what check() of ir/check.h asks of the step and of the
// held-out pass. check.cc checks ops, their order, memory and progress, check_update.cc the update.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "ir/check.h"
#include "ir/pairing.h"
#include "ir/standstill.h"
#include "ir/text.h"

namespace tenuto {

// What is wrong with a plan; none if the plan is right.
using PlanFault = std::optional<Error>;

// Where an op stands.
struct OpPlace {
  WorkerId worker;
  int32_t index = -1;
};

// One pass over one schedule of a plan: the step, or the held-out pass.
class Checker {
 public:
  Checker(const Plan& plan, const Schedule& schedule, bool evaluation, const Sizes& sizes,
          const Stores& stores)
      : plan_(plan), schedule_(schedule), evaluation_(evaluation), sizes_(sizes), stores_(stores) {}

  // The first fault.
  PlanFault run() {
    if (PlanFault fault = check_counts()) return fault;
    if (PlanFault fault = check_fields()) return fault;
    if (PlanFault fault = check_work()) return fault;
    if (PlanFault fault = check_order()) return fault;
    if (!evaluation_) {
      if (PlanFault fault = check_update()) return fault;
    }
    auto pairing = pair_messages(schedule_);
    if (!pairing.ok()) return prefixed(pairing.error());
    pairing_ = std::move(pairing).value();
    if (PlanFault fault = check_memory()) return fault;
    return check_progress();
  }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  const std::vector<Op>& list(WorkerId worker) const { return schedule_.lists[at(worker.value)]; }
  int32_t worker_count() const { return static_cast<int32_t>(schedule_.lists.size()); }
  // The place of `stage` among those that the worker holds, -1 when it does not.
  int32_t slot_of(WorkerId worker, StageId stage) const {
    const auto& stages = held_[at(worker.value)];
    const auto found = std::lower_bound(stages.begin(), stages.end(), stage);
    if (found == stages.end() || *found != stage) return -1;
    return static_cast<int32_t>(found - stages.begin());
  }
  // True when the lists are what is left of a step.
  bool resumed() const { return !stores_.empty(); }
  std::span<const Value> store(int32_t worker) const {
    return resumed() ? std::span<const Value>(stores_[at(worker)]) : std::span<const Value>();
  }
  // True when the worker, or any for -1, has a total of the stage before its list begins.
  bool has_total(int32_t worker, StageId stage) const {
    const auto here = [&](const Value& value) {
      return value.kind == ValueKind::Total && value.stage == stage;
    };
    for (int32_t w = worker < 0 ? 0 : worker; resumed() && w < worker_count(); ++w) {
      if (std::any_of(store(w).begin(), store(w).end(), here)) return true;
      if (worker >= 0) break;
    }
    return false;
  }
  // The first number of this schedule's micro-batches.
  int32_t micro_first() const { return evaluation_ ? plan_.schedule.micro_count : 0; }

  Error prefixed(Error error) const {
    if (evaluation_) error.message = "evaluation: " + error.message;
    return error;
  }
  PlanFault fault(OpPlace place, const std::string& what, Code code = Code::Invalid,
                  Reach reach = Reach::Job) const {
    const auto& ops = list(place.worker);
    const std::string where = at(place.index) < ops.size() ? cat(", op ", place.index, " (",
                                                                 to_text(ops[at(place.index)]), ")")
                                                           : std::string();
    return prefixed({code, reach,
                     cat("worker ", place.worker, where, ": ", what, "\n",
                         table(schedule_, {{place.worker, place.index}}))});
  }
  PlanFault plain(const std::string& what) const {
    return prefixed({Code::Invalid, Reach::Job, what});
  }

  PlanFault check_counts();
  PlanFault check_fields();
  PlanFault check_op(OpPlace place, const Op& op) const;
  PlanFault check_work();
  PlanFault check_kind(OpKind kind, std::vector<OpPlace>& owner) const;
  PlanFault check_rest() const;
  PlanFault check_twice(OpKind kind) const;
  PlanFault check_order() const;
  PlanFault check_update() const;
  PlanFault check_once(OpKind kind) const;
  PlanFault check_one_update() const;
  PlanFault check_reductions() const;
  PlanFault check_group(GroupId group, const std::vector<StageId>& users) const;
  PlanFault check_memory() const;
  PlanFault check_progress();
  PlanFault stuck(const Standstill& standstill, int64_t count, int64_t total) const;
  PlanFault check_memory(WorkerId worker, const MemoryLimit& memory) const;
  PlanFault too_many(WorkerId worker, int32_t index, int32_t peak, int32_t limit) const;

  const Plan& plan_;
  const Schedule& schedule_;
  bool evaluation_;
  const Sizes& sizes_;
  const Stores& stores_;
  Pairing pairing_;
  std::vector<std::vector<StageId>> held_;  // stages of each worker, ascending
};

}  // namespace tenuto
