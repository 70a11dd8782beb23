// What a gradient is worth: its age, and the progress that a mode makes per second.
//
// The age of a gradient is the mass that was applied between its read and its update, plus half of
// the rest of its own update. In units of one replica's gradient it is (W - 1) / 2 with W
// synchronous replicas, W - 1 with asynchronous ones whatever the stragglers (W gradients are under
// way, Little's law), and (2 W - x - 1) / 2 for x:x. Gradients to a target grow as 1 + kappa x age
// / W: kappa is 0.1 to 0.35 for plain SGD well below the edge of stability, 0.35 to 0.8 with
// momentum, above 1 near the edge.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/update_rule.h"

namespace tenuto {

// What kappa is taken for until it is measured: plain SGD, and momentum or Adam.
constexpr double kPlainKappa = 0.3, kMomentumKappa = 0.6;
// Where a measured kappa is cut.
constexpr double kMostKappa = 1.5;

// Gradients of age zero that are worth as much as one of this mean age.
double value_of_gradient(double age, int32_t replicas, double kappa);

// The age of gradients in the mode x:`count`, for any times of iterations.
double age_of_count(int32_t replicas, int32_t count);

// The ages of the gradients of a run, update by update.
class AppliedMass {
 public:
  // `first`: the version of the parameters with which the run begins.
  explicit AppliedMass(Version first) : first_(first), at_{Mass{}} {}
  // The age of a member of the next update, in micro-batches; `update`: the mass of that update.
  //
  // Requires: the member has read a version that there was
  double age_of(const Offer& member, Mass update) const;
  // The next update, which has this mass, has been applied.
  void add(Mass update) { at_.push_back(at_.back() + update); }
  // No member of a later update has read a version before this one, which is not newer than the
  // newest. Their masses may be forgotten.
  void forget_before(Version oldest);

 private:
  Version first_;
  std::vector<Mass> at_;  // at_[v]: what was applied when version first_ + v was made
};

// What a mode achieved: its gradients' mean age, and how much the loss fell per gradient.
struct LossDrop {
  double age = 0, per_gradient = 0;
};
// The kappa at which both modes would need the same number of gradients of age zero for the same
// progress, between 0 and kMostKappa. `old` has the higher age; both drops are above 0.
double kappa_of(const LossDrop& fresh, const LossDrop& old, int32_t replicas);

}  // namespace tenuto
