#include "runtime/worker.h"

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/effect.h"
#include "runtime/step_run.h"

namespace tenuto {

namespace {

// Tickets of one process never repeat, so no late report of an earlier step is taken for one of
// this step.
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
  const GradientGrowth* const growth = machine_.pacer == nullptr ? machine_.growth : nullptr;
  if (!table || !table->fits(*input.plan, schedule, input.self, growth)) {
    Result<ListTable> made = ListTable::make(*input.plan, schedule, input.self, growth);
    if (!made.ok()) return made.error();
    table = std::move(made).value();
  }
  count_from(input.epoch);
  if (!input.evaluation && validated_ == input.step && !input.plan->update.staggered) {
    // The previous plan was staggered and this one is not, so all workers have made their version
    // final before this step: it is not void, and its lists have no ops that validate the step
    // before.
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
  if (!input.plan->update.staggered) return ok();
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
  const uint64_t base = next_ticket.fetch_add(StepState::ticket_count(table, machine_));
  return StepRun(input, machine_, schedule, table, scratch_, {base, input.step + voids_, validated})
      .run();
}

Result<std::vector<Event>> run_step(const StepInput& input, const Machine& machine) {
  return Runner(machine).run_step(input);
}

}  // namespace tenuto
