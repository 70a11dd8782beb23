// Learns from the losses of a run what the age of gradients costs: kappa (sync/progress.h).
//
// Idea:  counted in gradients of age zero, the loss falls along a smooth curve, whatever the ages
//        are. With a wrong kappa the curve has a bend wherever the age changes. So for each kappa
//        of a grid, windows of gradients are placed at the gradients of age zero that they are
//        worth, and a parabola is laid through their losses: the kappa whose parabola leaves the
//        least is the likely one. 32 windows are a segment with a parabola of its own, because the
//        loss falls more slowly later on.
//        What a segment says is weighed. What the best parabola leaves is its noise, also if it is
//        not noise but a curve that is no parabola. If the loss does not fall by much more than
//        this noise, the segment counts little; if the age did not change, it does not count at
//        all. No segment alone counts beyond a limit. Older segments count less, and the kappa with
//        which the run began counts like a few windows.
// Limit: a change of the age shows only in the slope of the loss, and a parabola follows a part of
//        it. One change in a segment needs a loss that falls by some hundred times the noise of a
//        window before it is seen; several changes need less.
// Right: tests/sync/kappa_estimate_test.cc. Decision 95 says why it is a grid and a parabola.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenuto {

// Whether the estimate has changed by enough to be told: by more than a fifth, and by more than
// 0.05.
bool has_kappa_changed(double from, double to);

// Such a change as one sentence.
std::string kappa_sentence(double from, double to);

// The automaton: losses and updates in, kappa out. It has no clock, and the same calls have the
// same answer.
class KappaEstimate {
 public:
  // The estimate is between 0 and this many times the prior, but at least kLeastMost.
  static constexpr double kMostTimes = 4, kLeastMost = 2;
  // Windows of a segment, and how many a segment needs to say something.
  static constexpr size_t kSegment = 32, kLeastWindows = 12;
  // The least difference between the ages in a segment, as a part of the replicas.
  static constexpr double kLeastSpread = 0.05;

  // A window has two gradients of each replica, and at least eight. `prior`: the kappa with which
  // the run begins, finite and at least 0.
  KappaEstimate(double prior, int32_t replicas);

  // A replica has ended an iteration. A loss that is not finite is ignored.
  //
  // Units:    `gradients`: its mass as a part of a whole iteration's; `loss`: the mean over its
  //           samples
  // Requires: `gradients` above 0
  void add_loss(double gradients, double loss);

  // Updates were applied.
  //
  // Units:    `gradients`: their mass, in whole iterations of a replica; `age`: the mean of these
  //           gradients, in gradients
  // Requires: `gradients` above 0; an age of at least 0
  // Cost:     at the end of a window, 48 parabolas through at most 32 points; else nothing
  void add_applied(double gradients, double age);

  // What age costs. Exactly the prior as long as no segment has said anything.
  double kappa() const { return kappa_; }
  // The highest estimate that there can be.
  double most() const { return most_; }
  // The gradients of a window.
  double window_gradients() const { return window_; }

 private:
  // Kappas that are compared: points of log(1 + kappa), at equal distances from 0 to the most.
  static constexpr size_t kPoints = 48;
  // By point: how much a kappa is less likely than the likeliest one, as twice the difference of
  // their log likelihoods.
  using Evidence = std::array<double, kPoints>;

  struct Window {
    double gradients = 0;        // applied
    double ages = 0;             // their sum
    double mass = 0, sum = 0;    // of iterations with a finite loss; mass x loss
    std::optional<double> loss;  // the mean, once the window is over
    double age() const { return ages / gradients; }
  };

  double point(size_t index) const;
  bool has_changed_age() const;
  double left_over(double supposed) const;
  std::optional<Evidence> evidence() const;
  void estimate(const Evidence& open);

  double prior_, most_;
  int32_t replicas_;
  double window_;
  Window filling_;
  std::vector<Window> segment_;  // the windows of the newest segment that are over
  Evidence closed_{};            // of the segments before
  double kappa_;
};

}  // namespace tenuto
