// The score of Zeno++: an asynchronous server estimates how much a gradient lets the loss fall, and
// drops the gradient if that is too little.
//
// The server computes a reference gradient from data of its own, and renews it now and then. A
// gradient that arrives is first scaled to the reference's length. Its score is the estimated fall
// of the loss, rate x (gradient . reference), minus rho x |gradient|^2. It is dropped if that is
// below -rate x epsilon. How old it is does not matter by itself: an old gradient is dropped when
// it points elsewhere by now.
//
// Source: Xie, Koyejo, Gupta, "Zeno++: robust fully asynchronous SGD", ICML 2020.
#pragma once

#include <span>
#include <vector>

namespace tenuto {

// What a score is made of.
struct ScoreSetting {
  double rate = 0.1;     // of one gradient's update, above 0
  double rho = 0.001;    // what the length of a gradient costs, at least 0
  double epsilon = 0.0;  // how much the loss may rise, at least 0
};

// Scores gradients against one reference.
class GradientScore {
 public:
  explicit GradientScore(const ScoreSetting& setting) : setting_(setting) {}

  // Another reference from now on: a mean gradient over samples.
  void renew(std::vector<float> reference);

  // Scales a gradient to the reference's length, in place, and returns whether its score is high
  // enough. False, without a change, for a gradient of zeros or one that is not finite.
  //
  // Shapes: as the reference. Requires: a reference
  bool accept(std::span<float> gradient) const;

 private:
  ScoreSetting setting_;
  std::vector<float> reference_;
  double length_ = 0;  // of the reference
};

}  // namespace tenuto
