#include "runtime/worker.h"

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/device_queue.h"
#include "ir/effect.h"
#include "runtime/step_run.h"

namespace tenuto {

namespace {

// Tickets of one process never repeat, so a late report of an earlier step cannot be taken for one
// of this step, whoever asked.
std::atomic<uint64_t> next_ticket{1};

}  // namespace

Ticket fresh_ticket() { return Ticket{next_ticket.fetch_add(1)}; }

Result<std::vector<Event>> Runner::run_step(const StepInput& input) {
  CHECK(input.plan != nullptr, "a step needs a plan");
  CHECK(input.limits.silence.count() > 0, "a step needs a limit for silence");
  CHECK(machine_.transport && machine_.compute && machine_.optimizer && machine_.mailbox &&
            machine_.clock,
        "a step needs transport, compute, optimizer, mailbox and clock");
  const Schedule& schedule = input.evaluation ? input.plan->evaluation : input.plan->schedule;
  std::optional<ListTable>& table = input.evaluation ? evaluation_ : training_;
  if (!table || !table->fits(schedule, input.self)) {
    Result<ListTable> made = ListTable::make(*input.plan, schedule, input.self);
    if (!made.ok()) return made.error();
    table = std::move(made).value();
  }
  count_from(input.epoch);
  if (!input.evaluation && validated_ == input.step && !is_staggered(schedule)) {
    // The plan before took steps ahead and this one does not, so all workers have made their
    // version final before this step: it is not void, and its lists have no ops that validate the
    // step before.
    machine_.optimizer->start_over();
    validated_ = -1;
  }
  while (true) {
    const bool validated = !input.evaluation && validated_ == input.step;
    Result<std::vector<Event>> events = run_once(input, schedule, *table, validated);
    if (!events.ok() || input.evaluation || !machine_.optimizer->finality().again) return events;
    ++voids_;
    validated_ = -1;
  }
}

// A new epoch begins with a state that all members share.
void Runner::count_from(int64_t epoch) {
  if (epoch_ == epoch) return;
  epoch_ = epoch;
  voids_ = 0;
  validated_ = -1;
  machine_.optimizer->start_over();
}

void Runner::join(int64_t epoch, int64_t voids) {
  count_from(epoch);
  voids_ = voids;
}

Status Runner::make_final(const StepInput& input) {
  if (!is_staggered(input.plan->schedule)) return ok();
  Schedule validation = input.plan->schedule;
  for (auto& list : validation.lists) {
    std::erase_if(list, [](const Op& op) { return !is_validation(op); });
  }
  const Result<ListTable> table = ListTable::make(*input.plan, validation, input.self);
  if (!table.ok()) return table.error();
  count_from(input.epoch);
  const Result<std::vector<Event>> events = run_once(input, validation, table.value(), false);
  if (!events.ok()) return events.error();
  validated_ = input.step;
  return ok();
}

Result<std::vector<Event>> Runner::run_once(const StepInput& input, const Schedule& schedule,
                                            const ListTable& table, bool validated) {
  // The held-out pass has no queue: its messages leave by themselves.
  const bool queued = machine_.links != nullptr && machine_.links->blocking() && !input.evaluation;
  auto count = static_cast<uint64_t>(table.call_count());
  if (queued) {
    if (const Status found = find_order(input); !found.ok()) return found.error();
    count += schedule.lists[static_cast<size_t>(input.self.value)].size();
  }
  StepRun run(input, machine_, table, schedule, queued ? &order_ : nullptr,
              next_ticket.fetch_add(count), scratch_, {input.step + voids_, validated});
  return run.run();
}

Status Runner::find_order(const StepInput& input) {
  const Plan& plan = *input.plan;
  if (ordered_ && *ordered_ == plan) return ok();
  if (plan.dispatch != Dispatch::Listed) {
    return Error{Code::Invalid, Reach::Job,
                 cat("worker ", input.self,
                     ": blocking messages leave in list order, and the plan has dispatch ready: "
                     "take listed, or network.send = \"offloaded\"")};
  }
  auto orders = device_orders(plan, plan.schedule);
  if (!orders.ok()) {
    return Error{Code::Invalid, Reach::Job,
                 cat("worker ", input.self, ": ", orders.error().message)};
  }
  order_ = std::move(orders.value()[static_cast<size_t>(input.self.value)]);
  ordered_ = plan;
  return ok();
}

Result<std::vector<Event>> run_step(const StepInput& input, const Machine& machine) {
  return Runner(machine).run_step(input);
}

}  // namespace tenuto
