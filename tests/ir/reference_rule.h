// The update rule once more, written apart from src/ir/update_rule.cc and for no speed: all of the
// history is kept, and each decision is made anew from it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/update_rule.h"

namespace tenuto {

// Decides as UpdateRule does; inputs are correct ones.
class ReferenceRule {
 public:
  explicit ReferenceRule(const RuleStart& start);
  Decided begin();
  Decided offer(const Offer& offer);
  Decided close(int64_t number);
  Decided change(const SyncMode& mode);
  Decided lose(int32_t replica);
  Decided join(int32_t replica, Iteration iteration);

  // Who computes now, and what.
  const std::map<int32_t, Release>& computing() const { return computing_; }
  const std::set<int32_t>& lost() const { return lost_; }
  // The window that is open; -1 = none.
  int64_t open_window() const { return open_ ? windows_ - 1 : -1; }

 private:
  int32_t ring_parent(int32_t replica) const;
  std::set<int32_t> next() const;
  Decided follow(Decided decided);

  SyncMode mode_;
  int32_t replicas_;
  int64_t micros_;
  Version version_;
  int64_t number_ = 0, windows_ = 0;
  bool open_ = false, over_ = false;
  std::map<int32_t, Release> computing_;
  std::vector<Offer> waiting_;
  std::set<int32_t> lost_;
  std::map<int32_t, Iteration> next_iteration_;
  std::map<int32_t, int64_t> clock_;
  std::map<int32_t, char> before_;  // what became of the replica's last offer: 'a'pplied, 'd'ropped
};

}  // namespace tenuto
