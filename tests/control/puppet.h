// Those who play in a random world (random_world.h): what a worker is, what it may do wrong, and
// how often what happens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "control/report.h"

namespace tenuto {

// A worker as it is, not as it is known.
struct Puppet {
  bool alive = true;
  bool exit_told = false;
  Instruction heard;  // newest
  Report report;      // what it says now
  int64_t version = 0;
  int64_t step_epoch = 0;  // the epoch in which it has taken its last step
  int64_t plan = 1;        // serial of the one in force
  // Its state: of each step the epoch whose try made it. While it learns, of each piece that it
  // has.
  std::vector<int64_t> state;
  std::vector<std::vector<int64_t>> pieces;
  bool newcomer = false, has_place = false;
  int64_t lesson_at = -1;  // the version at which it was given the last piece
  bool expelled = false;   // it has heard that the run goes on without it
  // What it has of the step after its version, and of which try that is; -1 = nothing.
  int64_t try_of = -1;
  std::vector<Value> has;
  std::vector<int32_t> knows;  // losses of the step in which the epoch begins
  bool resting = false;        // of that step it does what is left
};

// What a worker or a coordinator may do wrong: the judge has to see it.
enum class Bug : uint8_t {
  None,
  NoUndo,            // keeps the step of the try that is given up
  LateUndo,          // says that it runs before it has taken that step back
  StepsAhead,        // does not wait for the commit of the version before
  ForgetsLosses,     // reports a step without its losses
  HalfLearned,       // says that it has all of the state when it has a piece
  KeepsPieces,       // takes what it was given in one epoch for good in the next
  ToldFirst,         // tells a commit before it is written down
  TargetNotWritten,  // tells from where an epoch goes on and does not write it down
  RestNotWritten,    // tells what is left of a step and does not write that down
};

// Links between two workers that are cut while both live.
class CutLinks {
 public:
  // True.
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
  // True when the worker has found out that one more peer cannot be reached.
  bool notice(size_t worker, Puppet& puppet) const {
    for (const WorkerId peer : puppet.heard.order.members) {
      auto& lost = puppet.report.lost_peers;
      if (!is_cut(worker, static_cast<size_t>(peer.value))) continue;
      if (std::find(lost.begin(), lost.end(), peer) != lost.end()) continue;
      lost.push_back(peer);
      return true;
    }
    return false;
  }

 private:
  int32_t cuts_ = 0;
  std::set<std::pair<size_t, size_t>> cut_;  // the lower number first
};

// How often what happens.
struct Chances {
  int64_t death = 0, stop = 0, checkpoint = 0;  // per mille of the moves
  int32_t deaths_at_most = 0;
  int64_t suspicion = 0;  // of somebody who lives
  int64_t joining = 0;    // of a new process in the place of a dead one
  Bug bug = Bug::None;
  int64_t restart = 0;  // per mille of what the coordinator hears
  int32_t restarts_at_most = 0;
  bool resumes = false;  // workers keep what they have of a step
  bool absent = false;   // some workers are not there at the beginning
  int64_t cut = 0;       // per mille of the moves: a link between two workers is cut
};

}  // namespace tenuto
