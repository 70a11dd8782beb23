// The simulated workers of a random world (random_world.h): their state, the bugs that they may
// have, and how often each event happens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "protocol/report.h"

namespace tenuto {

// A worker's true state, which the coordinator may not know yet.
struct Puppet {
  bool alive = true;
  bool exit_told = false;
  Instruction heard;  // newest
  Report report;      // what it says now
  int64_t version = 0;
  int64_t step_epoch = 0;  // the epoch in which it has taken its last step
  int64_t plan = 1;        // serial of the one in force
  // Its state: for each step the epoch in which it was made. While it learns, the same for each
  // piece that it has.
  std::vector<int64_t> state;
  std::vector<std::vector<int64_t>> pieces;
  bool joiner = false, has_place = false;
  int64_t transfer_at = -1;  // the version at which it was given the last piece
  bool expelled = false;     // it has heard that the run goes on without it
  // The epoch of its try of the next step (-1 = not begun), and the values that it has of that try.
  int64_t try_of = -1;
  std::vector<Value> has;
  std::vector<int32_t> knows;  // losses of the step in which the epoch begins
  bool resting = false;        // it runs the rest of that step
};

// Bugs of a worker or a coordinator. The checks of the world must detect each.
enum class Bug : uint8_t {
  None,
  NoUndo,            // keeps the step of an abandoned try
  LateUndo,          // reports that it runs before it has undone that step
  StepsAhead,        // does not wait for the commit of the previous version
  ForgetsLosses,     // reports a step without its losses
  HalfReceived,      // reports that it has all of the state when it has one piece
  KeepsPieces,       // keeps pieces of the state from one epoch in the next
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
  // Adds one more unreachable peer to the worker's report. Returns false if there is none.
  bool notice(size_t worker, Puppet& puppet) const {
    for (const WorkerId peer : puppet.heard.directive.members) {
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
};

}  // namespace tenuto
