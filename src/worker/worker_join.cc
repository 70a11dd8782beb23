// A worker's own side of joining a run under way (control/join.h), and the state that it gives and
// receives between two steps.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "transport/ucx.h"
#include "worker/worker_parts.h"
#include "worker/worker_process.h"

namespace tenuto {

// Waits until there is a place for this process: from the beginning of the run, or that of a worker
// that is gone.
Status WorkerRun::find_place() {
  while (told()->instruction.directive.phase != Phase::Out) {
    if (!conversation().ok()) return conversation();
    const auto now = told();
    const Joiner* invited = joiner_in(now->instruction, settings_.self, settings_.incarnation);
    if (invited != nullptr) {
      joiner_ = true;
      stages_ = invited->stages;
      begin_anew();
    }
    if (is_awaited(now->instruction, settings_.self, settings_.incarnation)) return ok();
    wait(kIdle);
  }
  return Error{Code::Cancelled, Reach::Call, "told to go"};
}

// Starts over as a joiner that has nothing of the run's state.
void WorkerRun::begin_anew() {
  has_place_ = false;
  report_.version = report_.received = -1;
  report_.steps.clear();
  report_.shards.clear();
  report_.resumes = false;
  report_.held.clear();
  pending_.reset();
}

// Reports that this joiner is ready once it can reach every member of the run: it may have been
// left out because of a link that is still cut.
void WorkerRun::look_for_others(const Told& now) {
  constexpr Duration kLook = std::chrono::milliseconds(500);
  const Instruction& newest = now.instruction;
  for (size_t i = 0; i < newest.directive.members.size() && i < newest.addresses.size(); ++i) {
    const WorkerId peer = newest.directive.members[i];
    if (peer == settings_.self || newest.addresses[i].empty()) continue;
    if (is_reachable(newest.addresses[i], kLook)) continue;
    const std::string sentence =
        cat(name(), ": waits until it can reach worker ", peer, " at ", newest.addresses[i]);
    if (std::exchange(unreached_, sentence) != sentence) say(sentence);
    return wait(kIdle);
  }
  unreached_.clear();
  report_.connected = true;
  tell();
}

// A joiner's part begins with the step from which the plan that has a place for it is in force,
// when the version before that step is final. False until then.
bool WorkerRun::take_place(const Told& now) {
  const Instruction& newest = now.instruction;
  const Joiner* own = joiner_in(newest, settings_.self, settings_.incarnation);
  if (own == nullptr || own->plan_serial < 0 || own->plan_serial > newest.plan_serial) return false;
  if (!report_.lost_peers.empty() || !acknowledge_plan(now)) return false;
  if (newest.plan_from < 0 || newest.directive.committed + 1 < newest.plan_from) return false;
  const Status adopted = compute_.compute->adopt(newest.plan_from);
  if (!adopted.ok()) {
    fail(adopted.error());
    return false;
  }
  plan_ = now.plan;
  plan_serial_ = newest.plan_serial;
  has_place_ = true;
  report_.version = compute_.compute->version();
  report_.phase = Phase::Running;
  say(cat(name(), ": takes part from step ", report_.version, " on, and receives the state"));
  tell();
  return true;
}

TransferMoment WorkerRun::transfer_moment() {
  return {.self = settings_.self,
          .epoch = report_.epoch,
          .version = compute_.compute->version(),
          .plan_serial = plan_serial_,
          .voids = runner_->voids(),
          .now = monotonic_clock().now(),
          .transport = transport_.get(),
          .compute = compute_.compute.get()};
}

// Gives joiners a part of the state that this worker holds, or receives one itself. False when
// the step must not begin.
bool WorkerRun::transfer_state(const Told& now) {
  Status status = transfers_.begin(now.instruction.joiners, transfer_moment());
  const Duration end =
      monotonic_clock().now() + from_milliseconds(job_.network.silence_seconds * 1000);
  while (status.ok() && !transfers_.ready()) {
    const auto newest = told();
    const Directive& directive = newest->instruction.directive;
    if (directive.epoch != report_.epoch || directive.phase != Phase::Running ||
        !report_.lost_peers.empty() || !conversation().ok()) {
      return false;
    }
    if (monotonic_clock().now() >= end) {
      status = Error{Code::Timeout, Reach::Worker,
                     cat(name(), ": no part of the state has come within ",
                         fixed(job_.network.silence_seconds, 1), " s (network.silence_seconds)")};
      break;
    }
    wait(kIdle);
    status = transfers_.advance(transfer_moment());
  }
  if (!status.ok()) {
    const Code code = status.error().code;
    if (code != Code::Cancelled && code != Code::Disconnected) {
      fail(status.error());
    } else {
      wait(kIdle);  // the loss of the peer is reported by itself
    }
    return false;
  }
  if (!joiner_ || report_.received >= 0) return true;
  runner_->join(report_.epoch, transfers_.voids());
  if (transfers_.received() < 0) return true;
  report_.received = transfers_.received();
  say(cat(name(), ": has all of the state, as of version ", report_.received));
  tell();
  return true;
}

}  // namespace tenuto
