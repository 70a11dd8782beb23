// What the loop of a step, its parts and its pacer share.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "ir/walk.h"
#include "runtime/list_table.h"
#include "runtime/open_calls.h"
#include "runtime/step_pacer.h"
#include "runtime/worker.h"

namespace tenuto {

// The times of one op, and the size of its message.
struct OpRow {
  Duration start{}, finish{}, sent{};
  int64_t bytes = 0;
  bool done = false;
};

// One run of one list. Everything refers to ops by their place in the list and to calls by number:
// call i < list size is op i, then come the messages of reductions, then, if there is a pacer, one
// note for each op.
struct StepState {
  // Tickets from `base` on are the run's own: ticket_count() of them. Its messages are tagged with
  // `number`, its serial. The other arguments must outlive the run.
  StepState(const StepInput& of, const Machine& on, const Schedule& listed, const ListTable& looked,
            uint64_t base, int64_t number);
  // How many tickets a run needs.
  static uint64_t ticket_count(const ListTable& table, const Machine& machine);

  // The op at `index`.
  const Op& op(int32_t index) const { return list[static_cast<size_t>(index)]; }
  // Its row.
  OpRow& row(int32_t index) { return rows[static_cast<size_t>(index)]; }
  // The same.
  const OpRow& row(int32_t index) const { return rows[static_cast<size_t>(index)]; }
  // The number of the note of op 0.
  int32_t first_note() const { return table.call_count(); }
  // `peer` is lost: tells the observer once.
  void note_lost(WorkerId peer, const Error& error) {
    if (lost.insert(peer).second) observer.lost(peer, error);
  }

  const StepInput& input;
  const Machine& machine;
  const Schedule& schedule;
  const ListTable& table;
  const int64_t serial;
  StepObserver nobody;
  StepObserver& observer;
  Walk walk;
  std::span<const Op> list;
  std::vector<OpRow> rows;
  OpenCalls calls;
  std::unique_ptr<StepPacer> pacer;  // null: ops have the times at which they really run
  std::vector<Value> unsummed;       // see RestPart
  std::set<WorkerId> lost;
};

}  // namespace tenuto
