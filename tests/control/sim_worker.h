// A worker of a random world (random_world.h). Its decisions are those of the real decide_worker();
// its device is a list of numbers. Also the bugs that a worker may have, and the chances of events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/decide_worker.h"

namespace tenuto {

// A stage that a worker holds: for each step the epoch in which it was made. While the worker
// receives its state, `pieces` has such a list for each piece that has arrived.
struct SimStage {
  bool whole = true;
  std::vector<int64_t> content;
  std::vector<std::vector<int64_t>> pieces;
  int64_t transfer_at = -1;  // the version at which the last piece came
};

// What a process of a worker is and has.
struct SimWorker {
  bool alive = true;
  bool exit_told = false;
  WorkerState state;                     // of decide_worker()
  std::shared_ptr<const Told> arriving;  // on its stream: a newer one replaces it
  std::shared_ptr<const Told> newest;    // that has arrived
  std::deque<WorkerInput::What> outcomes;
  std::optional<WorkerAction> doing;      // the action that has not ended yet
  std::map<WorkerId, std::string> calls;  // connections that are being made, and where to
  int64_t transport = -1;                 // the epoch of its transport; -1 = none
  Report told;                            // repeated until a newer one replaces it

  // The state on its device: the version, and for each step the epoch in which it was made. While
  // the worker receives the state, `pieces` has such a list for each piece that has arrived.
  int64_t version = -1;
  int64_t step_epoch = 0;  // the epoch in which it has taken its last step
  std::vector<int64_t> content;
  std::vector<std::vector<int64_t>> pieces;
  int64_t transfer_at = -1;  // the version at which it was given the last piece
  int64_t received = -1;
  // Stages that have come to it from other workers, and those that it holds with its own content.
  std::map<StageId, SimStage> gained;
  std::set<StageId> own;
  int64_t gained_at = -1;  // the version at which it had all that it gains now
  // The epoch of its attempt at the next step (-1 = not begun), and what it has of that step.
  int64_t attempt = -1;
  std::vector<Value> has;
  std::vector<int32_t> knows;       // losses of the step in which the epoch begins
  std::vector<StepInventory> held;  // as it was reported last
  int64_t resumed = -1;             // the epoch whose rest of a step it has begun

  bool is_running(int64_t step) const {
    const auto* run = doing ? std::get_if<RunStep>(&*doing) : nullptr;
    return alive && run != nullptr && run->step == step;
  }
};

// Bugs of a worker or a coordinator. The checks of the world must detect each.
enum class Bug : uint8_t {
  None,
  NoUndo,            // keeps the step of an abandoned attempt
  LateUndo,          // reports that it runs before it has undone that step
  StepsAhead,        // does not wait for the commit of the previous version
  ForgetsLosses,     // reports a step without its losses
  HalfReceived,      // reports that it has all of the state when it has one piece
  KeepsPieces,       // keeps pieces of the state from one epoch in the next
  HalfLayer,         // reports that it has all of a layer when it has one piece
  ToldFirst,         // tells a commit before writing it down
  TargetNotWritten,  // tells at which version an epoch begins, without writing it down
  RestNotWritten,    // tells the rest of a step without writing it down
};

// Links that are cut while both of their workers live.
class CutLinks {
 public:
  // Cuts a link. Returns true.
  bool cut(size_t one, size_t other) {
    ++cuts_;
    cut_.insert(std::minmax(one, other));
    return true;
  }
  int32_t cuts() const { return cuts_; }
  bool is_cut(size_t one, size_t other) const { return cut_.contains(std::minmax(one, other)); }
  // All links of the worker are well again.
  void heal(size_t worker) {
    std::erase_if(cut_, [&](const auto& of) { return of.first == worker || of.second == worker; });
  }

 private:
  int32_t cuts_ = 0;
  std::set<std::pair<size_t, size_t>> cut_;  // the lower number first
};

// One fault at one point of a play (World::points()): a worker dies, or the coordinator is
// replaced.
struct DeathAt {
  int64_t at = 0;
  WorkerId victim{-1};   // -1 = the coordinator
  bool returns = false;  // a new process takes the worker's place a little later
};

// How often each event happens.
struct Chances {
  int64_t death = 0, stop = 0, checkpoint = 0;  // per mille of the moves
  int32_t deaths_at_most = 0;
  int64_t suspicion = 0;  // that a live worker counts as dead
  int64_t joining = 0;    // of a new process in the place of a dead one
  Bug bug = Bug::None;
  int64_t restart = 0;  // per mille of what the coordinator hears
  int32_t restarts_at_most = 0;
  bool resumes = false;  // workers keep what they have of a step
  bool absent = false;   // some workers are not there at the beginning
  int64_t cut = 0;       // per mille of the moves: a link between two workers is cut
  int64_t layers = 0;    // per mille of the moves: a layer is to go to another worker
  bool fine = false;     // each layer is a stage, also if `layers` is 0
  std::optional<DeathAt> death_at = {};
};

// The decision with the worker's bug in it.
inline void spoil(WorkerDecision& decision, Bug bug) {
  auto& actions = decision.actions;
  if (bug != Bug::NoUndo && bug != Bug::LateUndo) return;
  if (actions.empty() || !std::holds_alternative<Undo>(actions.back())) return;
  WorkerState& state = decision.state;
  if (state.told->instruction.directive.phase != Phase::Running) return;
  Report report = state.report;
  report.phase = Phase::Running;
  report.version = state.device.version;
  if (bug == Bug::LateUndo) {
    actions.insert(actions.end() - 1, Tell{report});
    return;
  }
  state.report = report;
  state.begun = true;
  state.situation = WorkerSituation::Ready;
  actions.back() = Tell{report};
}

}  // namespace tenuto
