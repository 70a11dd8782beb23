// What a change of plan costs and earns over the expected course of the troubles. A part of
// choose_remedy.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "remedy/choose_remedy.h"

namespace tenuto {

// For so many steps layers move before their receivers run them, while nothing else is slower: a
// plan with further holders comes into force, the state is sent, and the next plan follows.
inline constexpr int64_t kStepsOfAMove = 4;
// From the begin or the end of a trouble until another plan is in force: for so many steps the run
// is not certain of it yet, or no worker can begin a step of the new plan.
inline constexpr int64_t kStepsOfAReaction = 6;

// What a plan costs as troubles end. Nanoseconds.
struct Outlay {
  double change = 0;          // once, now
  std::vector<double> steps;  // of a step in each phase
  // With other holders than the present plan: what it costs to move the layers to the holders of
  // the present plan, and to those of the plan of a healthy cluster.
  bool moved = false;
  double to_present = 0, to_home = 0;
};

// Prices plans in all phases.
class OutlayPricer {
 public:
  // The arguments must outlive it.
  OutlayPricer(const Plan& present, const Model& model, const Cluster& now,
               const RemedyTerms& terms);

  // Of a plan whose whole step takes `step` now, and to which the change costs `change`. Plans with
  // the holders of the present one come first: in later phases the best of them is free.
  Outlay outlay(const Plan& plan, Duration step, Duration change);

  // The least sum over all phases, for a decision `ahead` steps later: when a trouble has ended,
  // the layers may move back to where they are now, or to their first workers. The run sees the end
  // only after a while, and the move takes steps as well.
  double total(const Outlay& outlay, int64_t ahead = 0) const;

  // For how many steps the cluster is expected to stay as it is.
  double expected_steps() const { return phases_.front().steps; }

 private:
  // The step of a plan in a later phase, or of the even plan with the same holders if that is
  // shorter: coming to it costs nothing.
  double later_step(const Plan& plan, size_t phase);
  std::optional<double> even_step(const std::vector<Stage>& stages, size_t phase);
  std::vector<ClusterPhase> phases(int64_t ahead) const;
  double cost_between(const std::vector<Stage>& from, const Plan& to) const;

  const Plan& present_;
  const Model& model_;
  const Cluster& now_;
  const RemedyTerms& terms_;
  std::vector<ClusterPhase> phases_;
  bool returns_ = false;  // nothing is known of the time after: layers are expected to move back
  // The shortest steps in each phase with the holders of the present plan and with those of the
  // plan of a healthy cluster (empty = it is no choice), and what it costs to come from one to the
  // other.
  std::vector<double> present_steps_, home_steps_;
  double present_to_home_ = 0;
  std::map<std::pair<std::vector<Stage>, size_t>, std::optional<double>> even_steps_;
};

// True when both have the same stages with as many holders each, so that layers can move from one
// to the other.
bool have_equal_counts(const std::vector<Stage>& a, const std::vector<Stage>& b);

// The plan for a healthy cluster with the holders of `stages`: `home` itself if it has these. Null
// when its stages have other numbers of holders.
std::shared_ptr<const Plan> home_of(const std::shared_ptr<const Plan>& home,
                                    const std::vector<Stage>& stages);

}  // namespace tenuto
