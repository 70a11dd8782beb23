#include "runtime/step_failure.h"

#include <set>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "ir/text.h"
#include "runtime/hang_report.h"
#include "runtime/keep_forever.h"

namespace tenuto {

namespace {

// The first op that is not done and needs `peer`; none: "".
std::string op_left_with(const StepState& state, WorkerId peer) {
  for (size_t i = 0; i < state.list.size(); ++i) {
    if (state.rows[i].done) continue;
    const Op& it = state.list[i];
    bool needed = is_message(it) && it.peer == peer;
    if (it.kind == OpKind::Reduce) {
      const auto index = static_cast<int32_t>(i);
      needed = contains(state.table.collective(state.schedule, index).members, peer);
    }
    if (needed) return to_text(it);
  }
  return "";
}

// The peer of a call; -1 for a compute op.
WorkerId peer_of_call(const StepState& state, const StepReductions& reductions, int32_t call) {
  const auto ops = static_cast<int32_t>(state.list.size());
  if (call >= ops && call < state.first_note()) return reductions.peer_of(call);
  const Op& it = state.op(call < ops ? call : call - state.first_note());
  return is_message(it) ? it.peer : WorkerId{};
}

}  // namespace

std::string place_of(const StepState& state) {
  const StepInput& input = state.input;
  std::string stages;
  for (const StageId stage : stages_of(input.plan->stages, input.self)) {
    stages += cat(stages.empty() ? "" : ", ", stage);
  }
  return cat("worker ", input.self, " (stage ", stages.empty() ? "none" : stages, "), ",
             input.evaluation ? "evaluation at step " : "step ", input.step);
}

Error explain(const StepState& state, int32_t index, const Error& error, WorkerId peer) {
  const std::string with = peer.value < 0 ? "" : cat(" with worker ", peer);
  return {error.code, error.reach,
          cat(place_of(state), ": ", to_text(state.op(index)), with, " failed: ", error.message)};
}

Error silence_of(const StepState& state, const StepReductions& reductions,
                 std::span<const int32_t> heads) {
  const size_t count = state.list.size();
  std::vector<uint8_t> done(count), under_way(count);
  size_t ended = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int32_t>(i);
    done[i] = state.rows[i].done;
    ended += state.rows[i].done;
    under_way[i] = state.calls.is_under_way(index) || reductions.is_under_way(index);
  }
  std::vector<int32_t> held_back;
  for (const int32_t index : heads) {
    const auto i = static_cast<size_t>(index);
    if (done[i] == 0 && under_way[i] == 0) held_back.push_back(index);
  }
  return {Code::Timeout, Reach::Worker,
          cat(place_of(state), ": no op or message completed for ",
              fixed(to_milliseconds(state.input.limits.silence), 0), " ms; ", ended, " of ", count,
              " ops are done\n", hang_report(state.walk, done, under_way, held_back))};
}

Status loss_of(const StepState& state, WorkerId peer, const Error& error) {
  const std::string left = op_left_with(state, peer);
  if (left.empty()) return ok();
  return Error{error.code, error.reach,
               cat(place_of(state), ": lost worker ", peer, " (", error.message,
                   "), which was needed for ", left)};
}

std::vector<int32_t> end_calls(StepState& state, StepReductions& reductions, Error& error) {
  const Machine& machine = state.machine;
  std::set<WorkerId> peers;
  for (int32_t call = 0; call < state.calls.numbers(); ++call) {
    if (!state.calls.is_under_way(call)) continue;
    const WorkerId peer = peer_of_call(state, reductions, call);
    if (peer.value >= 0) peers.insert(peer);
  }
  for (const WorkerId peer : peers) {
    if (Status status = machine.transport->drop(peer); !status.ok()) {
      error.message += cat("; worker ", peer, " could not be dropped: ", status.error().message);
    }
  }
  std::vector<int32_t> computed;
  const Duration end = machine.clock->now() + state.input.limits.retire;
  while (state.calls.count() > 0) {
    const Duration left = end - machine.clock->now();
    if (left.count() <= 0) break;
    const Result<Done> report = machine.mailbox->wait(left);
    if (!report.ok()) break;
    const Done& done = report.value();
    if (done.ticket == kNoTicket) {
      // A peer that this worker has just dropped does not count as lost.
      if (done.peer.value >= 0 && !peers.contains(done.peer) && !done.status.ok()) {
        state.note_lost(done.peer, done.status.error());
      }
      continue;
    }
    if (done.grown > 0) continue;  // its op goes on
    const auto call = state.calls.end(done.ticket);
    const bool op = call && *call < static_cast<int32_t>(state.list.size());
    if (op && !is_message(state.op(*call)) && done.status.ok()) computed.push_back(*call);
  }
  if (state.calls.count() == 0) return computed;
  error.reach = Reach::Job;
  error.message += cat("; ", state.calls.count(), " calls are still under way after ",
                       fixed(to_milliseconds(state.input.limits.retire), 0),
                       " ms, so their memory is in use: this process must end");
  reductions.keep_memory();
  keep_forever(std::move(state.pacer));
  return computed;
}

}  // namespace tenuto
