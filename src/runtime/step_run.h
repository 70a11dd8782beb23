// The loop of one step, from begin to end or to a clean stop. Use it through worker.h.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/walk.h"
#include "runtime/list_table.h"
#include "runtime/queued_messages.h"
#include "runtime/reduction.h"
#include "runtime/tally.h"
#include "runtime/worker.h"

namespace tenuto {

// Which run of its step a run is.
struct RunName {
  int64_t serial = 0;      // tags its messages
  bool validated = false;  // the ops that validate the step before were run ahead: they are done
};

// One run of one list. Everything refers to ops by their place in the list and to calls by number:
// call i < list size is op i, the others are messages of reductions; call i has ticket base + i.
class StepRun {
 public:
  // All arguments must outlive the run; tickets [base, base + table.call_count()) are its own, and
  // as many more as the list has ops when messages leave through the device's queue: `order` is its
  // order, null when they leave by themselves.
  StepRun(const StepInput& input, const Machine& machine, const ListTable& table,
          const Schedule& schedule, const std::vector<int32_t>* order, uint64_t base,
          std::vector<std::vector<int64_t>>& scratch, RunName name);
  // See run_step.
  Result<std::vector<Event>> run();

 private:
  enum class Call : uint8_t { Idle, UnderWay, Over };
  struct Row {
    Duration start{}, finish{}, sent{};
    int64_t bytes = 0;
    bool done = false;
  };
  using Arrival = std::pair<int64_t, int32_t>;  // virtual arrival, place of the Recv

  Status begin();
  Status start_ready();
  Result<bool> start_queued();
  Status start_item(const DeviceQueue::Item& item);
  Status exchange_note(int32_t index);
  Status take_note(int32_t index, const Done& done);
  bool settle(int32_t index);
  bool queued(int32_t index) const { return queue_ != nullptr && queue_->holds(index); }
  bool may_start(int32_t index);
  bool may_choose(const Op& op);
  bool look_ahead();
  Status start(int32_t index);
  Status start_send(int32_t index);
  Status start_receive(int32_t index);
  Status start_reduce(int32_t index);
  Status start_compute(int32_t index);
  Status make_calls(int32_t index, Reduction& reduction);
  Status take(const Done& done);
  Status take_lost(WorkerId peer, const Error& error);
  Status take_op(int32_t index, const Done& done);
  Status take_message(int32_t call, const Done& done);
  Status close_reduce(int32_t index);
  std::vector<Contribution> brought_to(const Op& reduce) const;
  Status audit(int32_t index) const;
  void release_held();
  void complete(int32_t index);
  void let_go(const Value& value, const Op& by);
  void keep(const Value& value);
  void close_holding();
  void pass_over(int32_t index);
  Duration inputs_at(int32_t index) const;
  Result<Done> wait();
  Status read_standing();
  Ticket begin_call(int32_t call);
  bool has_business_with(WorkerId peer, std::string& waiting) const;
  WorkerId peer_of_call(int32_t call) const;
  std::string place() const;
  Error fail(int32_t index, WorkerId peer, const Error& error);
  void note_lost(WorkerId peer, const Error& error);
  Error explain(int32_t index, const Error& error, WorkerId peer) const;
  Error silence() const;
  Error retire(Error error);
  const Op& op(int32_t index) const { return list_[static_cast<size_t>(index)]; }
  Row& row(int32_t index) { return rows_[static_cast<size_t>(index)]; }
  const Row& row(int32_t index) const { return rows_[static_cast<size_t>(index)]; }

  const StepInput& input_;
  const Machine& machine_;
  const ListTable& table_;
  const Schedule& schedule_;
  const uint64_t base_;
  const RunName name_;
  std::vector<std::vector<int64_t>>& scratch_;
  Walk walk_;
  std::span<const Op> list_;
  std::vector<Row> rows_;
  std::vector<Call> calls_;
  int32_t under_way_ = 0;
  std::vector<Duration> left_;  // virtual clock: when the last byte of a sent chunk left, by call
  std::vector<std::unique_ptr<Reduction>> reductions_;  // by place in the list; mostly null
  std::vector<int32_t> heads_;                          // a copy of what the walk says
  const std::vector<int32_t>* const order_;  // messages through the device's queue; null: not so
  std::unique_ptr<QueuedMessages> queue_;    // while the step runs
  const int32_t first_note_;                 // note i is call first_note_ + i
  int32_t open_notes_ = 0;
  StepObserver nobody_;
  StepObserver& observer_;
  Standing standing_;
  Duration deadline_{};          // silence until here is failure
  std::vector<Value> unsummed_;  // see RestPart
  std::set<WorkerId> lost_;
  std::vector<Event> events_;
  size_t ended_ = 0;         // ops
  int64_t validations_ = 0;  // Validates that have not ended

  // Ready dispatch on the virtual clock: receives that arrive later on it than the moment of
  // the next choice, and that moment.
  const bool choosing_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> held_;
  Duration choice_at_{};
  Duration begun_at_{};     // virtual clock: before it no op starts
  Duration resumed_at_{};   // virtual clock: what was stored before is here since
  Duration reduced_at_{};   // virtual clock: the end of the last reduction
  Duration wake_at_{};      // zero = no reason to wake before a report
  int32_t awaited_ = 0;     // receives for compute ops that are posted and not here
  bool computing_ = false;  // a compute op is under way
};

}  // namespace tenuto
