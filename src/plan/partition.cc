#include "plan/partition.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Layers are cut into runs by boundaries: boundary j is where run j begins, boundary 0 is the first
// layer and boundary `runs` the end.
class Cutter {
 public:
  Cutter(const std::vector<double>& cost, size_t runs)
      : layers_(cost.size()), runs_(runs), prefix_(cost.size() + 1, 0.0) {
    for (size_t i = 0; i < layers_; ++i) prefix_[i + 1] = prefix_[i] + cost[i];
  }

  // The least possible cost of the dearest run: the least number that allows a cut. It is found by
  // bisection on the bits, because non-negative doubles have the same order as their bits.
  double least_maximum() const {
    uint64_t low = 0, high = std::bit_cast<uint64_t>(prefix_[layers_]);
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (is_enough(std::bit_cast<double>(middle))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return std::bit_cast<double>(low);
  }

  // The cut with the least sum of squares whose runs cost `most` at most.
  std::vector<int32_t> cut(double most) {
    set_reach(most);
    set_windows();
    uint64_t places = 0;
    for (size_t j = 0; j <= runs_; ++j) places += last_[j] - first_[j] + 1;
    return places > kMostPlaces ? cut_evenly() : cut_best();
  }

 private:
  // More places for boundaries than this would take seconds and gigabytes.
  static constexpr uint64_t kMostPlaces = 50'000'000;

  double run(size_t begin, size_t end) const { return prefix_[end] - prefix_[begin]; }

  // The end of the longest run from `begin` on.
  size_t reach(size_t begin, double most) const {
    size_t low = begin, high = layers_;
    while (low < high) {
      const size_t middle = (low + high + 1) / 2;
      if (run(begin, middle) <= most) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // True when runs_ runs of this cost at most cover all layers.
  bool is_enough(double most) const {
    size_t begin = 0;
    for (size_t j = 0; j < runs_ && begin < layers_; ++j) {
      const size_t end = reach(begin, most);
      if (end == begin) return false;
      begin = end;
    }
    return begin == layers_;
  }

  void set_reach(double most) {
    reach_.resize(layers_ + 1);
    size_t end = 0;
    for (size_t begin = 0; begin <= layers_; ++begin) {
      end = std::max(end, begin);
      while (end < layers_ && run(begin, end + 1) <= most) ++end;
      reach_[begin] = end;
    }
  }

  // The window of each boundary: from the first place from which the runs behind it can reach the
  // end, to the last place that the runs before it can reach.
  void set_windows() {
    first_.assign(runs_ + 1, layers_);
    last_.assign(runs_ + 1, 0);
    for (size_t j = 1; j <= runs_; ++j) {
      last_[j] = std::min(reach_[last_[j - 1]], layers_ - (runs_ - j));
    }
    for (size_t j = runs_; j-- > 0;) {
      const auto begin = std::lower_bound(reach_.begin(), reach_.end(), first_[j + 1]);
      first_[j] = std::max(static_cast<size_t>(begin - reach_.begin()), j);
    }
    first_[0] = 0;
  }

  // Dynamic programming from the last boundary to the first. The row of boundary j has, for each
  // place of it, the best cut of the layers behind that place. If boundary j moves to a later
  // place, its best next boundary never moves to an earlier one, so each row is solved by divide
  // and conquer.
  std::vector<int32_t> cut_best() {
    std::vector<double> behind = {0.0};  // the row of boundary j + 1
    next_.assign(runs_, {});
    for (size_t j = runs_; j-- > 0;) {
      std::vector<double> row(last_[j] - first_[j] + 1, kNever);
      next_[j].resize(row.size());
      fill(j, behind, row);
      behind = std::move(row);
    }
    std::vector<int32_t> firsts = {0};
    for (size_t j = 0; j < runs_; ++j) {
      firsts.push_back(next_[j][static_cast<size_t>(firsts.back()) - first_[j]]);
    }
    return firsts;
  }

  void fill(size_t j, const std::vector<double>& behind, std::vector<double>& row) {
    struct Part {
      size_t begin, end;         // places of boundary j, without the end
      size_t nearest, furthest;  // where boundary j + 1 is for them
    };
    std::vector<Part> open = {{first_[j], last_[j] + 1, first_[j + 1], last_[j + 1]}};
    while (!open.empty()) {
      const Part part = open.back();
      open.pop_back();
      if (part.begin == part.end) continue;
      const size_t place = part.begin + (part.end - part.begin) / 2;
      double best = kNever;
      size_t best_end = part.nearest;
      // Longer runs are tried first, and a shorter one must be better: ties go to the longer.
      for (size_t end = std::min(part.furthest, reach_[place]);
           end >= std::max(part.nearest, place + 1); --end) {
        const double own = run(place, end);
        const double total = own * own + behind[end - first_[j + 1]];
        if (total >= best) continue;
        best = total;
        best_end = end;
      }
      row[place - first_[j]] = best;
      next_[j][place - first_[j]] = static_cast<int32_t>(best_end);
      open.push_back({part.begin, place, part.nearest, best_end});
      open.push_back({place + 1, part.end, best_end, part.furthest});
    }
  }

  // Puts each boundary, from the first on, where it divides the rest most evenly, as far as its
  // window allows.
  std::vector<int32_t> cut_evenly() const {
    std::vector<int32_t> firsts = {0};
    size_t begin = 0;
    for (size_t j = 1; j <= runs_; ++j) {
      const double share = run(begin, layers_) / static_cast<double>(runs_ - j + 1);
      const size_t low = std::max(first_[j], begin + 1), high = std::min(last_[j], reach_[begin]);
      const auto found = std::lower_bound(prefix_.begin() + static_cast<std::ptrdiff_t>(low),
                                          prefix_.begin() + static_cast<std::ptrdiff_t>(high),
                                          prefix_[begin] + share);
      begin = static_cast<size_t>(found - prefix_.begin());
      firsts.push_back(static_cast<int32_t>(begin));
    }
    return firsts;
  }

  size_t layers_, runs_;
  std::vector<double> prefix_;
  std::vector<size_t> reach_;               // end of the longest run from each layer on
  std::vector<size_t> first_, last_;        // window of each boundary
  std::vector<std::vector<int32_t>> next_;  // by boundary and place: the next boundary
};

}  // namespace

Result<std::vector<int32_t>> partition(const std::vector<double>& cost, int32_t stages) {
  if (stages < 1 || static_cast<size_t>(stages) > cost.size()) {
    return invalid(cat("the model has ", cost.size(), cost.size() == 1 ? " layer" : " layers",
                       " and ", stages, " stages were asked for, each of which needs at least one",
                       " layer: ask for 1 to ", cost.size(), " stages"));
  }
  Cutter cutter(cost, static_cast<size_t>(stages));
  return cutter.cut(cutter.least_maximum());
}

}  // namespace tenuto
