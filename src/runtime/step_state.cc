#include "runtime/step_state.h"

namespace tenuto {

namespace {

std::span<const Value> stored_before(const StepRecovery& recovery) {
  if (recovery.rest == nullptr) return {};
  return recovery.rest->stored;
}

}  // namespace

StepState::StepState(const StepInput& of, const Machine& on, const Schedule& listed,
                     const ListTable& looked, uint64_t base, int64_t number)
    : input(of),
      machine(on),
      schedule(listed),
      table(looked),
      serial(number),
      observer(of.observer == nullptr ? nobody : *of.observer),
      walk(*of.plan, listed, of.self, kReceivesAhead, stored_before(of.recovery)),
      list(walk.list()),
      rows(list.size()),
      calls(base, ticket_count(looked, on)) {}

uint64_t StepState::ticket_count(const ListTable& table, const Machine& machine) {
  const auto calls = static_cast<uint64_t>(table.call_count());
  return machine.pacer == nullptr ? calls : calls + table.op_count();
}

}  // namespace tenuto
