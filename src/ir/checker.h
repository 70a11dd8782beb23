// The checker of one schedule of a plan: what check() of ir/check.h asks of the step and of the
// held-out pass. check.cc checks ops, their order, memory and progress, check_update.cc the update.
#pragma once

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

// What is wrong with a plan, if anything is.
using Fault = std::optional<Error>;

// Where an op stands.
struct Place {
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
  Fault run() {
    if (Fault fault = check_counts()) return fault;
    if (Fault fault = check_fields()) return fault;
    if (Fault fault = check_work()) return fault;
    if (Fault fault = check_order()) return fault;
    if (!evaluation_) {
      if (Fault fault = check_update()) return fault;
    }
    auto pairing = pair_messages(schedule_);
    if (!pairing.ok()) return prefixed(pairing.error());
    pairing_ = std::move(pairing).value();
    if (Fault fault = check_memory()) return fault;
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
  Fault fault(Place place, const std::string& what, Code code = Code::Invalid,
              Reach reach = Reach::Job) const {
    const auto& ops = list(place.worker);
    const std::string where = at(place.index) < ops.size() ? cat(", op ", place.index, " (",
                                                                 to_text(ops[at(place.index)]), ")")
                                                           : std::string();
    return prefixed({code, reach,
                     cat("worker ", place.worker, where, ": ", what, "\n",
                         table(schedule_, {{place.worker, place.index}}))});
  }
  Fault plain(const std::string& what) const { return prefixed({Code::Invalid, Reach::Job, what}); }

  Fault check_counts();
  Fault check_fields();
  Fault check_op(Place place, const Op& op) const;
  Fault check_work();
  Fault check_kind(OpKind kind, std::vector<Place>& owner) const;
  Fault check_rest() const;
  Fault check_twice(OpKind kind) const;
  Fault check_order() const;
  Fault check_update() const;
  Fault check_once(OpKind kind) const;
  Fault check_one_update() const;
  Fault check_reductions() const;
  Fault check_group(GroupId group, const std::vector<StageId>& users) const;
  Fault check_memory() const;
  Fault check_progress();
  Fault stuck(const Standstill& standstill, int64_t count, int64_t total) const;
  Fault check_room(WorkerId worker, const Room& room) const;
  Fault too_many(WorkerId worker, int32_t index, int32_t peak, int32_t limit) const;

  const Plan& plan_;
  const Schedule& schedule_;
  bool evaluation_;
  const Sizes& sizes_;
  const Stores& stores_;
  Pairing pairing_;
  std::vector<std::vector<StageId>> held_;  // stages of each worker, ascending
};

}  // namespace tenuto
