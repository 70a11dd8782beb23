// The loop of one step, from begin to end or to a clean stop. Use it through worker.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/step_reductions.h"
#include "runtime/step_state.h"

namespace tenuto {

// What distinguishes a run of a step from its other runs.
struct RunName {
  uint64_t base = 0;       // its first ticket, see StepState
  int64_t serial = 0;      // tags its messages
  bool validated = false;  // the ops that validate the step before were run ahead: they are done
};

// One run of one list.
class StepRun {
 public:
  // All arguments must outlive the run.
  StepRun(const StepInput& input, const Machine& machine, const Schedule& schedule,
          const ListTable& table, std::vector<std::vector<int64_t>>& scratch, RunName name);
  // See run_step.
  Result<std::vector<Event>> run();

 private:
  Status begin();
  Result<std::vector<Event>> loop();
  Status start_ready();
  Status start_paced(bool idle, bool& again);
  void complete_paced();
  bool may_start(int32_t index);
  Status start(int32_t index);
  Status start_call(int32_t index);
  Status start_compute(int32_t index);
  Status begin_early(int32_t index);
  Status start_send(int32_t index);
  Status start_receive(int32_t index);
  Status start_note(int32_t index);
  Result<Done> wait();
  Status take(const Done& done);
  Status take_growth(const Done& done);
  Status take_op(int32_t index, const Done& done);
  Status take_note(int32_t index, const Done& done);
  Status take_message(int32_t call, const Done& done);
  Status take_lost(WorkerId peer, const Error& error);
  Status read_standing();
  void complete(int32_t index);
  Error fail(int32_t index, WorkerId peer, const Error& error);
  Error retire(Error error);

  StepState state_;
  const Machine& machine_;
  const bool validated_;
  StepReductions reductions_;
  // The compute op under way whose sum an all-reduce takes as it grows, and how far it has come.
  struct Growing {
    int32_t index = -1;  // of the op
    const ListTable::GrowingReduce* reduce = nullptr;
    int32_t parts = 0;  // complete
  };
  std::optional<Growing> growing_;
  int32_t last_backward_ = -1;  // the last op of the list that computes a backward
  bool ends_soon_ = false;      // it has just begun
  std::vector<int32_t> heads_;  // a copy of Walk::startable()
  Standing standing_;
  Duration deadline_{};  // the step fails if no call ends until then
  std::vector<Event> events_;
  size_t ended_ = 0;         // ops
  int64_t validations_ = 0;  // Validates that have not ended
};

}  // namespace tenuto
