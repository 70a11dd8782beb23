// The workers of a random world (random_world.h). It executes the actions of decide_worker() on
// plain values, without files or connections, and feeds the outcomes back.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/contains.h"
#include "base/random.h"
#include "base/text.h"
#include "control/sim_worker.h"
#include "ir/plan.h"
#include "worker/worker_parts.h"

namespace tenuto {

inline constexpr int64_t kSpoilt = -2;  // in place of an epoch: the state is invalid
// Pieces in which a joiner gets the state; its plan is in force long before the last one.
inline constexpr size_t kPieces = 3;

// All workers, and the links between them.
class SimCrew {
 public:
  SimCrew(Random& random, const Chances& chances, int32_t stages, std::shared_ptr<const Job> job)
      : random_(random), chances_(chances), stages_(stages), job_(std::move(job)) {}

  std::vector<SimWorker> workers;
  std::vector<Report> reports;  // on their way to the coordinator
  CutLinks links;
  Duration now{};
  int64_t committed = 0;  // what the coordinator has committed
  std::string fault;      // the first rule that was broken
  int32_t received = 0, taken_back = 0, layers_received = 0;
  int64_t events = 0;  // of all workers: a worker heard, did or received something

  // A new process of the worker, with its first report under way.
  void start(size_t worker, int32_t incarnation) {
    SimWorker fresh;
    const WorkerId self{static_cast<int32_t>(worker)};
    fresh.state = begin_worker({.job = "job",
                                .coordinator = "here",
                                .self = self,
                                .incarnation = incarnation,
                                .process = 1,
                                .host = "host",
                                .answer_limit = std::chrono::hours(1),
                                .mend_limit = std::chrono::milliseconds(20)},
                               now);
    fresh.told.worker = self;
    fresh.told.incarnation = incarnation;
    links.heal(worker);
    workers[worker] = std::move(fresh);
    post(worker, Report{});
  }
  int32_t incarnation_of(size_t worker) const { return workers[worker].told.incarnation; }
  void repeat(size_t worker) { reports.push_back(workers[worker].told); }

  // The newest instruction arrives.
  void deliver(size_t worker) {
    SimWorker& of = workers[worker];
    const auto age = [](const Told& told) {
      return std::pair(told.instruction.directive.term, told.instruction.sequence);
    };
    if (of.newest && age(*of.arriving) <= age(*of.newest)) return;
    auto told = std::make_shared<Told>(*of.arriving);
    if (!told->rest && of.newest) told->rest = of.newest->rest;  // it is not told again
    of.newest = std::move(told);
  }

  // Does the next few things that the worker does. Calls `after` after each event.
  void act(size_t worker, const std::function<void()>& after) {
    for (int64_t left = 1 + random_.below(4); left > 0 && workers[worker].alive; --left) {
      const int64_t before = events;
      move(worker);
      if (events != before) after();
    }
  }

  void expect(bool holds, const std::string& what) {
    if (!holds && fault.empty()) fault = what;
  }

  // What the worker has of a stage; null: not the whole state, or nothing.
  static const std::vector<int64_t>* content_of(const SimWorker& of, StageId stage) {
    if (of.own.contains(stage)) return &of.content;
    const auto found = of.gained.find(stage);
    return found == of.gained.end() || !found->second.whole ? nullptr : &found->second.content;
  }

 private:
  void post(size_t worker, Report report) {
    SimWorker& of = workers[worker];
    report.worker = of.told.worker;
    report.incarnation = of.told.incarnation;
    report.sequence = of.told.sequence + 1;
    of.told = std::move(report);
    repeat(worker);
  }

  void move(size_t worker) {
    SimWorker& of = workers[worker];
    const bool passes = std::holds_alternative<RunStep>(of.doing.value_or(Undo{})) ||
                        std::holds_alternative<TransferState>(of.doing.value_or(Undo{}));
    const bool hears = !of.doing || passes || !of.outcomes.empty();
    if (hears && of.newest && of.newest != of.state.told) return feed(worker, Heard{of.newest});
    if (!of.outcomes.empty()) {
      WorkerInput::What what = std::move(of.outcomes.front());
      of.outcomes.pop_front();
      return feed(worker, std::move(what));
    }
    if (of.state.report.phase == Phase::Running && hears && notice(worker)) return;
    if (of.doing) return std::visit([&](const auto& action) { go_on(worker, action); }, *of.doing);
    if (connect_some(worker)) return;
    feed(worker, Idle{});
  }

  void feed(size_t worker, WorkerInput::What what) {
    SimWorker& of = workers[worker];
    const DeviceState device{of.version, {.version = of.version}};
    WorkerDecision decision = decide_worker(std::move(of.state), {now, device, what});
    spoil(decision, chances_.bug);
    of.state = std::move(decision.state);
    events += !std::holds_alternative<Idle>(what) || !decision.actions.empty();
    const bool waits = of.state.situation < WorkerSituation::Transferring;
    if (waits) of.doing.reset();
    for (WorkerAction& action : decision.actions) execute(worker, std::move(action));
  }

  void execute(size_t worker, WorkerAction action) {
    SimWorker& of = workers[worker];
    if (const auto* tell = std::get_if<Tell>(&action)) return post(worker, tell->report);
    if (std::holds_alternative<Say>(action)) return;
    if (std::holds_alternative<Leave>(action)) {
      of.alive = false;
    } else if (const auto* connect = std::get_if<Connect>(&action)) {
      of.calls[connect->peer] = connect->address;
    } else if (const auto* probe = std::get_if<Probe>(&action)) {
      const auto peer = static_cast<size_t>(probe->peer.value);
      const bool there = workers[peer].alive && !links.is_cut(worker, peer);
      of.outcomes.push_back(Probed{probe->peer, probe->address, there});
    } else {
      of.doing = std::move(action);
    }
  }

  // The action under way has ended.
  void end(size_t worker, WorkerInput::What what) {
    ++events;
    workers[worker].doing.reset();
    workers[worker].outcomes.push_back(std::move(what));
  }

  // A member that cannot be reached any more is lost.
  bool notice(size_t worker) {
    SimWorker& of = workers[worker];
    if (!of.state.told) return false;
    for (const WorkerId peer : of.state.told->instruction.directive.members) {
      if (!links.is_cut(worker, static_cast<size_t>(peer.value))) continue;
      if (contains(of.state.report.lost_peers, peer)) continue;
      const bool steps = of.state.situation == WorkerSituation::Stepping;
      feed(worker, LostPeer{peer, of.transport, "lost"});
      if (steps) end(worker, StepEnded{Error{Code::Disconnected, Reach::Worker, "lost"}});
      return true;
    }
    return false;
  }

  // One connection is made, or is refused because nobody listens at an address of an earlier epoch
  // or process.
  bool connect_some(size_t worker) {
    SimWorker& of = workers[worker];
    for (const auto& [peer, address] : of.calls) {
      const auto at = static_cast<size_t>(peer.value);
      if (!workers[at].alive || links.is_cut(worker, at) || random_.below(2) == 0) continue;
      Status status = ok();
      if (address != address_of(at)) {
        status = Error{Code::Disconnected, Reach::Link, "nobody listens there any more"};
      }
      const WorkerId other = peer;
      of.calls.erase(other);
      feed(worker, Connected{other, of.transport, status});
      return true;
    }
    return false;
  }

  std::string address_of(size_t worker) const {
    return cat("worker-", worker, ".", incarnation_of(worker), "/", workers[worker].transport);
  }

  void go_on(size_t worker, const Prepare&) {
    SimWorker& of = workers[worker];
    of.transport = of.state.report.epoch;
    end(worker, Prepared{ok(), job_, address_of(worker)});
  }
  void go_on(size_t worker, const MakeDevice&) {
    SimWorker& of = workers[worker];
    of.version = 0;
    of.own = {of.state.stages.begin(), of.state.stages.end()};
    end(worker, DeviceMade{ok(), chances_.resumes});
  }
  void go_on(size_t worker, const RenewTransport& renew) {
    SimWorker& of = workers[worker];
    of.transport = renew.epoch;
    of.calls.clear();
    of.held.clear();
    if (of.state.report.connected && chances_.resumes) hold(worker);
    if (!of.state.report.connected) {  // it drops what it has of a state and of a step
      if (chances_.bug != Bug::KeepsPieces) of.pieces.clear();
      of.transfer_at = of.received = -1;
      of.attempt = -1;
      of.has.clear();
    }
    end(worker, Renewed{ok(), address_of(worker), of.held});
  }
  void go_on(size_t worker, const Load& load) {
    workers[worker].version = load.version;
    end(worker, Loaded{});
  }
  void go_on(size_t worker, const Adopt& adopt) {
    workers[worker].version = adopt.version;
    end(worker, Adopted{});
  }
  void go_on(size_t worker, const Hold& hold) {
    SimWorker& of = workers[worker];
    std::erase_if(of.own, [&](StageId stage) { return !contains(hold.stages, stage); });
    std::erase_if(of.gained, [&](const auto& each) { return !contains(hold.stages, each.first); });
    of.gained_at = -1;
    for (const StageId stage : hold.stages) {
      if (!of.own.contains(stage) && !of.gained.contains(stage)) of.gained[stage].whole = false;
    }
    end(worker, HeldStages{});
  }
  void go_on(size_t worker, const Undo&) {
    take_back(worker);
    end(worker, Undone{});
  }
  void go_on(size_t worker, const Save& save) {
    Saved saved;
    expect(save.version == workers[worker].version, "another version is saved than is held");
    for (const StageId stage : save.stages) {
      saved.shards.push_back({save.version, cat("stage-", stage), 1, "", stage});
    }
    end(worker, std::move(saved));
  }
  void go_on(size_t worker, const TransferState&) {
    SimWorker& of = workers[worker];
    const Joiner* own =
        joiner_in(of.state.told->instruction, of.told.worker, incarnation_of(worker));
    if (!of.state.gains.empty()) {
      if (own != nullptr && !receive_layers(worker, *own)) return;
      return end(worker, TransferMoved{ok(), true, of.gained_at});
    }
    const bool joins = own != nullptr && of.state.place != Membership::First;
    if (joins && !own->donors.empty() && !receive_part(worker, *own)) return;
    end(worker, TransferMoved{ok(), true, of.received});
  }
  void go_on(size_t worker, const RunStep&) {
    SimWorker& of = workers[worker];
    if (standing_of(of.state).abandon) {
      return end(worker, StepEnded{Error{Code::Cancelled, Reach::Call, "told to go"}});
    }
    if (of.state.rest) return run_rest(worker);
    const bool keeps = chances_.resumes && of.state.place == Membership::First;
    if (keeps && random_.below(2) == 0) return do_some(worker);
    take_step(worker);
  }
  template <class Other>
  void go_on(size_t worker, const Other&) {
    expect(false, cat("worker ", worker, " does what this world does not know"));
  }

  Value value_of(size_t worker, ValueKind kind) const {
    const auto self = static_cast<int32_t>(worker);
    return {kind, -1, {self % stages_}, {self / stages_}};
  }
  bool is_last(size_t worker) const {
    return static_cast<int32_t>(worker) % stages_ == stages_ - 1;
  }

  // Runs part of its own micro-batch of the next step: first the forward, then the backward.
  void do_some(size_t worker) {
    SimWorker& of = workers[worker];
    const bool forward = of.attempt < 0;
    of.attempt = of.state.report.epoch;
    of.has = {value_of(worker, forward ? ValueKind::Stash : ValueKind::Partial)};
    if (!is_last(worker)) of.has.push_back(value_of(worker, ValueKind::Activation));
    const bool first = static_cast<int32_t>(worker) % stages_ == 0;
    if (!forward && !first) of.has.push_back(value_of(worker, ValueKind::Gradient));
  }

  // What it has of the steps that may be open.
  void hold(size_t worker) {
    SimWorker& of = workers[worker];
    const int64_t version = of.version;
    const auto own = static_cast<int32_t>(worker) / stages_;
    if (version > 0 && !of.content.empty()) {
      const StageId stage = value_of(worker, ValueKind::Total).stage;
      StepInventory taken{
          version - 1, of.content.back(), {{{ValueKind::Total, -1, stage, {}}}, {stage}}, {}};
      if (!is_last(worker)) {
        taken.inventory.values.push_back(value_of(worker, ValueKind::Activation));
      }
      for (const StepSummary& step : of.state.report.steps) {
        if (step.step != version - 1) continue;
        for (const MicroLoss& loss : step.losses) taken.losses.push_back(loss.micro.value);
      }
      if (taken.losses.empty()) taken.losses = of.knows;
      of.held.push_back(std::move(taken));
    }
    if (of.attempt < 0) return;
    StepInventory begun{version, of.attempt, {of.has, {}}, {}};
    if (is_last(worker)) begun.losses = {own};
    of.held.push_back(std::move(begun));
  }

  // Takes up the rest of a step: what is stored stays, an update that does not count is undone.
  void resume(size_t worker, const WorkerRest& rest) {
    SimWorker& of = workers[worker];
    const int64_t step = rest.told->step;
    of.resumed = of.state.report.epoch;
    expect(of.version == step || of.version == step + 1,
           cat("worker ", worker, " is to end step ", step, " at version ", of.version));
    of.knows.clear();
    for (const StepInventory& held : of.held) {
      if (held.step == step) of.knows = held.losses;
    }
    const bool ahead = of.version > step;
    const int64_t attempt = ahead ? of.content.back() : of.attempt;
    expect(
        attempt < 0 || attempt == rest.told->attempt ||
            (rest.part.stored.empty() && ahead == !rest.part.back.empty()),
        cat("worker ", worker, " goes on with attempt ", attempt, " as with ", rest.told->attempt));
    if (!rest.part.back.empty()) {
      ++taken_back;
      take_back(worker);
    }
    if (of.version != step) return;
    of.has = rest.part.stored;
    of.attempt = of.has.empty() ? -1 : rest.told->attempt;
  }

  // Ends the rest of the step. It needs all members, so it ends only when all run it.
  void run_rest(size_t worker) {
    SimWorker& of = workers[worker];
    const WorkerRest& rest = *of.state.rest;
    const int64_t epoch = of.state.report.epoch, step = rest.told->step;
    if (of.resumed != epoch) return resume(worker, rest);
    for (const WorkerId peer : of.state.told->instruction.directive.members) {
      const auto at = static_cast<size_t>(peer.value);
      const SimWorker& other = workers[at];
      if (links.is_cut(worker, at)) return;
      const bool runs = other.is_running(step) && other.resumed == epoch;
      if (other.step_epoch != epoch && !runs) return;
    }
    if (of.version == step) {
      of.version += 1;
      of.content.push_back(rest.told->attempt);
    }
    of.step_epoch = epoch;
    of.attempt = -1;
    of.has.clear();
    std::set<int32_t> losses(of.knows.begin(), of.knows.end());
    for (const Op& op : rest.told->plan.schedule.lists[worker]) {
      if (op.kind == OpKind::Forward && op.stage.value == stages_ - 1)
        losses.insert(op.micro.value);
    }
    StepEnded ended{.summary = {.step = step, .start_ns = 1, .finish_ns = 2}};
    for (const int32_t micro : losses) ended.summary.losses.push_back({{micro}, 1.0});
    of.knows.assign(losses.begin(), losses.end());
    end(worker, std::move(ended));
  }

  // Takes the piece of the state that is due at this version. Returns false if it must wait for it.
  bool receive_part(size_t worker, const Joiner& own) {
    SimWorker& of = workers[worker];
    if (of.received >= 0 || of.transfer_at == of.version) return true;
    const SimWorker& donor = workers[static_cast<size_t>(own.donors.front().value)];
    const auto version = static_cast<size_t>(of.version);
    const bool gives = donor.alive && donor.transport == of.transport &&
                       donor.state.report.phase == Phase::Running &&
                       donor.content.size() >= version;
    if (!gives) return false;
    of.pieces.emplace_back(donor.content.begin(),
                           donor.content.begin() + static_cast<ptrdiff_t>(version));
    of.transfer_at = of.version;
    if (of.pieces.size() < kPieces && chances_.bug != Bug::HalfReceived) return true;
    // With a piece missing there is no state.
    const bool whole = of.pieces.size() == kPieces;
    of.content = whole ? of.pieces.front() : std::vector<int64_t>();
    of.pieces.clear();
    of.received = of.version;
    ++received;
    return true;
  }

  // The same for each layer that comes to it from another worker.
  bool receive_layers(size_t worker, const Joiner& own) {
    SimWorker& of = workers[worker];
    const auto version = static_cast<size_t>(of.version);
    bool all = true;
    for (size_t i = 0; i < own.stages.size(); ++i) {
      const auto found = of.gained.find(own.stages[i]);
      if (found == of.gained.end() || found->second.whole) continue;
      SimStage& layer = found->second;
      if (layer.transfer_at == of.version) {
        all = false;
        continue;
      }
      const SimWorker& donor = workers[static_cast<size_t>(own.donors[i].value)];
      const std::vector<int64_t>* state = content_of(donor, own.stages[i]);
      const bool gives = donor.alive && donor.transport == of.transport &&
                         donor.state.report.phase == Phase::Running && state != nullptr &&
                         state->size() >= version;
      if (!gives) return false;
      layer.pieces.emplace_back(state->begin(), state->begin() + static_cast<ptrdiff_t>(version));
      layer.transfer_at = of.version;
      layer.whole = layer.pieces.size() == kPieces || chances_.bug == Bug::HalfLayer;
      all = all && layer.whole;
      if (!layer.whole) continue;
      // With a piece missing there is no state.
      const bool right = layer.pieces.size() == kPieces;
      layer.content = right ? layer.pieces.front() : std::vector<int64_t>(version, kSpoilt);
      layer.pieces.clear();
    }
    if (all && of.gained_at < 0) {
      of.gained_at = of.version;
      ++layers_received;
    }
    return true;
  }

  void take_back(size_t worker) {
    SimWorker& of = workers[worker];
    for (auto& [stage, layer] : of.gained) {
      if (!layer.content.empty()) layer.content.pop_back();
      if (layer.transfer_at >= of.version) layer.content.assign(1, kSpoilt);
    }
    expect(of.version > committed, cat("worker ", worker, " undoes a committed step"));
    of.version -= 1;
    if (!of.content.empty()) of.content.pop_back();
    // The last piece is of the version that is undone, so the received state becomes invalid.
    if (of.transfer_at > of.version) of.content.assign(1, kSpoilt);
  }

  // Takes a step. It needs messages of all members, so it ends only when all have got as far.
  void take_step(size_t worker) {
    SimWorker& of = workers[worker];
    const Directive& directive = of.state.told->instruction.directive;
    const int64_t epoch = of.state.report.epoch, step = of.version;
    if (directive.committed < step && chances_.bug != Bug::StepsAhead) return;
    for (const WorkerId peer : directive.members) {
      if (!has_a_part(of, peer)) continue;
      const auto at = static_cast<size_t>(peer.value);
      const SimWorker& other = workers[at];
      if (links.is_cut(worker, at)) return;
      const bool has_sent = other.version > step && other.step_epoch == epoch;
      const bool sends = other.is_running(step) && other.transport == epoch && !other.state.rest;
      if (!has_sent && !sends) return;
    }
    of.version += 1;
    of.step_epoch = epoch;
    of.content.push_back(epoch);
    of.attempt = -1;
    of.has.clear();
    of.knows.clear();
    for (auto& piece : of.pieces) piece.push_back(epoch);
    for (auto& [stage, layer] : of.gained) {
      if (layer.whole) layer.content.push_back(epoch);
      for (auto& piece : layer.pieces) piece.push_back(epoch);
    }
    expect(of.version <= committed + 1, "a worker is two versions ahead");
    StepEnded ended{.summary = {.step = step, .start_ns = 1, .finish_ns = 2}};
    if (chances_.bug != Bug::ForgetsLosses) ended.summary.losses = losses_of(worker);
    end(worker, std::move(ended));
  }

  // True when the peer takes part in the step that the worker runs: a joiner does so once the
  // worker's plan is the one with the joiner's place, or a later one.
  static bool has_a_part(const SimWorker& of, WorkerId peer) {
    for (const Joiner& joiner : of.state.told->instruction.joiners) {
      if (joiner.worker != peer) continue;
      return joiner.plan_serial >= 0 && joiner.plan_serial <= of.state.plan_serial;
    }
    return true;
  }

  // Losses of the micro-batches whose last stage the worker runs under the plan in force.
  std::vector<MicroLoss> losses_of(size_t worker) const {
    std::vector<MicroLoss> losses;
    for (const Op& op : workers[worker].state.plan->schedule.lists[worker]) {
      if (op.kind != OpKind::Forward || op.stage.value != stages_ - 1) continue;
      losses.push_back({op.micro, 1.0});
    }
    return losses;
  }

  Random& random_;
  const Chances chances_;
  const int32_t stages_;
  const std::shared_ptr<const Job> job_;
};

}  // namespace tenuto
