#include "plan/partition.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Costs of runs from sums over prefixes, and the two tables of the dynamic programme.
class Cutter {
 public:
  Cutter(const std::vector<double>& cost, size_t stages)
      : layers_(cost.size()), stages_(stages), prefix_(cost.size() + 1, 0.0) {
    for (size_t i = 0; i < layers_; ++i) prefix_[i + 1] = prefix_[i] + cost[i];
  }

  // The least possible cost of the dearest run.
  double least_maximum() {
    fill([](double run, double rest) { return std::max(run, rest); });
    return best_[0][stages_];
  }

  // The cut with the least sum of squares whose runs cost `most` at most.
  std::vector<int32_t> cut(double most) {
    fill([most](double run, double rest) { return run <= most ? run * run + rest : kNever; });
    std::vector<int32_t> firsts;
    size_t at = 0;
    for (size_t left = stages_; left > 0; --left) {
      firsts.push_back(static_cast<int32_t>(at));
      at = next_[at][left];
    }
    firsts.push_back(static_cast<int32_t>(at));
    return firsts;
  }

 private:
  // best_[i][k] = the least cost of cutting layers i .. end into k runs; next_ = the first run's
  // end.
  template <class Join>
  void fill(Join join) {
    best_.assign(layers_ + 1, std::vector<double>(stages_ + 1, kNever));
    next_.assign(layers_ + 1, std::vector<size_t>(stages_ + 1, layers_));
    best_[layers_][0] = 0;
    for (size_t left = 1; left <= stages_; ++left) {
      for (size_t i = 0; i + left <= layers_; ++i) {
        // Longer runs are tried first and shorter ones must be better: ties go to the longer.
        for (size_t end = layers_ - left + 1; end > i; --end) {
          if (best_[end][left - 1] == kNever) continue;
          const double total = join(prefix_[end] - prefix_[i], best_[end][left - 1]);
          if (total >= best_[i][left]) continue;
          best_[i][left] = total;
          next_[i][left] = end;
        }
      }
    }
  }

  size_t layers_, stages_;
  std::vector<double> prefix_;
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<size_t>> next_;
};

}  // namespace

Result<std::vector<int32_t>> partition(const std::vector<double>& cost, int32_t stages) {
  if (stages < 1 || static_cast<size_t>(stages) > cost.size()) {
    return invalid(cat("the model has ", cost.size(), cost.size() == 1 ? " layer" : " layers",
                       " and ", stages, " stages were asked for, each of which needs at least one",
                       " layer: ask for 1 to ", cost.size(), " stages"));
  }
  Cutter cutter(cost, static_cast<size_t>(stages));
  const double most = cutter.least_maximum();
  return cutter.cut(most);
}

}  // namespace tenuto
