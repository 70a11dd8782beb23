#include "sync/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr double kRounds = 4, kLeastIterations = 16;  // of a block
constexpr size_t kInSuccession = 2;                   // blocks that are above the others

}  // namespace

double LossWatch::Block::mean() const {
  return is_infinite ? std::numeric_limits<double>::infinity() : sum / gradients;
}

double LossWatch::Block::variance_of_mean() const {
  if (is_infinite || iterations < 2) return 0;
  const double spread = std::max(0.0, squares / gradients - mean() * mean());
  return spread / static_cast<double>(iterations - 1);
}

LossWatch::LossWatch(int32_t replicas)
    : block_(std::max(kLeastIterations, kRounds * static_cast<double>(replicas))) {}

std::optional<LossRise> LossWatch::add(double gradients, double loss) {
  if (!std::isfinite(loss)) {
    // What was finite before it is worth comparing with, be it less than a block.
    if (open_.iterations > 0 && !open_.is_infinite) keep(std::exchange(open_, Block{}));
    open_.is_infinite = true;
  } else {
    open_.sum += gradients * loss;
    open_.squares += gradients * loss * loss;
    ++open_.iterations;
  }
  open_.gradients += gradients;
  if (open_.gradients < block_) return std::nullopt;
  return judge(std::exchange(open_, Block{}));
}

std::optional<LossRise> LossWatch::judge(const Block& block) {
  if (normally_ && block.mean() <= *normally_) {
    normally_.reset();
    caution_ = 1;
  }
  if (is_above(block)) {
    above_.push_back(block);
    const size_t needed = block.is_infinite ? 1 : kInSuccession;
    if (above_.size() < needed) return std::nullopt;
    return rise(block);
  }
  for (const Block& one : above_) keep(one);
  above_.clear();
  keep(block);
  return std::nullopt;
}

bool LossWatch::is_above(const Block& block) const {
  if (block.is_infinite) {
    // The first one needs no more to compare with than some loss.
    return normally_ ? before_.size() >= kLeastBlocks : !before_.empty();
  }
  if (before_.size() < kLeastBlocks) return false;
  const auto count = static_cast<double>(before_.size());
  const double mean = mean_before();
  double between = 0, within = 0;
  for (const Block& one : before_) {
    between += (one.mean() - mean) * (one.mean() - mean) / (count - 1);
    within += one.variance_of_mean() / count;
  }
  const double variance = std::max(between, within);
  const double of_difference = variance / count + std::max(variance, block.variance_of_mean());
  return block.mean() - mean >
         std::max(kDeviations * std::sqrt(of_difference), kLeastShare * std::abs(mean));
}

double LossWatch::mean_before() const {
  double sum = 0;
  for (const Block& one : before_) sum += one.mean();
  return sum / static_cast<double>(before_.size());
}

// Infinite ones are nothing to compare with.
void LossWatch::keep(const Block& block) {
  if (block.is_infinite) return;
  before_.push_back(block);
  if (before_.size() > kMostBlocks) before_.pop_front();
}

LossRise LossWatch::rise(const Block& last) {
  LossRise found;
  found.from = mean_before();
  found.to = last.mean();
  for (const Block& one : above_) found.gradients += one.gradients;
  if (!normally_) normally_ = found.from;
  caution_ = std::min(kMostCaution, 2 * caution_);
  found.caution = caution_;
  found.until = *normally_;
  before_.clear();
  above_.clear();
  return found;
}

std::string to_text(const LossRise& rise, const LossMoment& moment) {
  const std::string what =
      std::isfinite(rise.to)
          ? cat("the loss has risen by ", fixed(rise.to - rise.from, 4), " from ",
                fixed(rise.from, 4), " within ", fixed(rise.gradients, 0), " gradients")
          : cat("the loss was ", fixed(rise.from, 4), ", and is not finite within ",
                fixed(rise.gradients, 0), " gradients");
  const std::string then =
      moment.is_chosen
          ? cat("kappa counts ", fixed(rise.caution, 0), " times until the loss is ",
                fixed(rise.until, 4), " again")
          : std::string("lower optimizer.learning_rate, or choose a mode with younger gradients");
  return cat(what, " of age ", fixed(moment.age, 2), ": the learning rate ", moment.rate,
             " is too high for sync mode ", moment.mode, "; ", then);
}

}  // namespace tenuto
