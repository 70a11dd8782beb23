// Notices that the loss rises: then the learning rate is too high for gradients of this age.
//
// Idea:  losses are averaged over blocks, and each block is compared with the eight blocks before
//        it, or with four at least. A block is above them if its mean is higher than theirs by more
//        than three standard deviations of this difference, and by more than a hundredth. One such
//        block may be chance; two in succession are a rise. Then age costs twice as much as before
//        (caution()), so that a chooser takes modes with younger gradients, until the loss is down
//        again. Blocks after a rise are compared with each other, so that a further rise is
//        noticed, and a loss that stays high is not reported again.
// Limit: a loss that rises slower than its noise within nine blocks is not noticed.
// Right: tests/sync/loss_watch_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace tenuto {

// A rise of the loss.
struct LossRise {
  double from = 0;       // the mean before
  double to = 0;         // the mean of the newest block; infinite: a loss was not finite
  double gradients = 0;  // that have been computed since the loss was at `from`
  double caution = 1;    // LossWatch::caution() from now on
  double until = 0;      // ... until a block has this mean or a lower one
};

// What was in force when the loss has risen.
struct LossMoment {
  double age = 0;          // of the gradients
  double rate = 0;         // the learning rate
  std::string mode;        // the sync mode
  bool is_chosen = false;  // by a chooser that is told of the caution
};

// The rise as one sentence, with what follows from it.
std::string to_text(const LossRise& rise, const LossMoment& moment);

// The automaton: losses in, rises out. It has no clock.
class LossWatch {
 public:
  // Of the difference between a block and those before it.
  static constexpr double kDeviations = 3;
  // Of the mean before: no smaller rise counts.
  static constexpr double kLeastShare = 0.01;
  // Blocks that one is compared with.
  static constexpr size_t kLeastBlocks = 4, kMostBlocks = 8;
  // Each rise doubles the caution, up to this.
  static constexpr double kMostCaution = 8;

  // A block has four iterations of each replica, and at least 16 iterations.
  explicit LossWatch(int32_t replicas);

  // A replica has ended an iteration. Returns the rise that is noticed with it, if there is one.
  //
  // Units:    `gradients`: its mass as a part of a whole iteration's; `loss`: the mean over its
  //           samples, which need not be finite
  // Requires: `gradients` above 0
  std::optional<LossRise> add(double gradients, double loss);

  // The factor by which age costs more than it is thought to: 1 when the loss does not rise.
  double caution() const { return caution_; }
  // The gradients of a block.
  double block_gradients() const { return block_; }

 private:
  // Iterations in succession; their means count by mass.
  struct Block {
    double gradients = 0, sum = 0, squares = 0;
    int64_t iterations = 0;    // with a finite loss
    bool is_infinite = false;  // a loss was not finite
    double mean() const;
    double variance_of_mean() const;
  };

  std::optional<LossRise> judge(const Block& block);
  bool is_above(const Block& block) const;
  double mean_before() const;
  void keep(const Block& block);
  LossRise rise(const Block& last);

  double block_;
  Block open_;
  std::deque<Block> before_;        // the reference, oldest first
  std::vector<Block> above_;        // in succession since then
  std::optional<double> normally_;  // the mean before the first rise that is not over
  double caution_ = 1;
};

}  // namespace tenuto
