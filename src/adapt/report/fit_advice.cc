#include "adapt/report/fit_advice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "adapt/layout/frugal.h"
#include "adapt/report/figures.h"
#include "base/bisect.h"
#include "base/sentence.h"
#include "base/text.h"
#include "world/cluster_file.h"

namespace tenuto {

namespace {

// If the number of rows of a micro-batch is not known, it is cut into at most this many parts.
constexpr int64_t kMostParts = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 53;
// Besides each byte of the weights, a device keeps at least a byte of their gradient.
constexpr double kLeastBeside = 1;

// The least number from `low` to `high` for which `passes` is true; nothing if it is false for
// `high`. Requires: `passes` is true for all numbers above one for which it is true.
std::optional<int64_t> least_of(int64_t low, int64_t high,
                                const std::function<bool(int64_t)>& passes) {
  if (low > high || !passes(high)) return std::nullopt;
  return first_of(low, high, passes);
}

class Advice {
 public:
  explicit Advice(const UnfitModel& model)
      : model_(model), problem_(model.problem), frugal_(model.problem) {
    now_.recompute = true;
    now_.whole = model.whole;
  }

  std::string text() const {
    const std::vector<std::string> changes = all_changes();
    std::string text = large_layer();
    for (size_t i = 0; i < changes.size(); ++i) {
      const bool last = i + 1 == changes.size();
      text += cat(i == 0 ? "; it would fit with " : last ? ", or with " : ", with ", changes[i]);
    }
    return text;
  }

 private:
  std::vector<std::string> all_changes() const {
    std::vector<std::string> changes;
    for (auto& change : {memory(), rows(), devices(), optimizer()}) {
      if (change) changes.push_back(*change);
    }
    return changes;
  }

  // Names the layer with the largest state if that is larger than the memory of every device.
  std::string large_layer() const {
    const int32_t device = frugal_.largest();
    int32_t largest = 0;
    for (int32_t layer = 1; layer < problem_.layer_count(); ++layer) {
      if (state(layer) > state(largest)) largest = layer;
    }
    const double missing = state(largest) - problem_.memory(device);
    if (missing <= 0) return {};
    return cat("; layer ", largest, " (", excerpt(model_.names[static_cast<size_t>(largest)]),
               ") alone keeps ", whole_bytes(state(largest)),
               " bytes of weights, gradients and optimizer state, ", whole_bytes(missing),
               " more than the memory of device ", problem_.worker(device),
               ", which has the most; a layer cannot be divided");
  }
  double state(int32_t layer) const { return problem_.state({layer, layer + 1}); }

  std::optional<std::string> memory() const {
    const auto more = least_of(1, kMostBytes, [&](int64_t bytes) {
      MemoryCase it = now_;
      it.more = static_cast<double>(bytes);
      return frugal_.fits(it);
    });
    if (!more) return std::nullopt;
    const double least = problem_.memory(frugal_.largest());
    const bool equal = least == problem_.memory(frugal_.smallest());
    if (!equal) return cat(*more, " bytes more memory on each device");
    const double all = least + static_cast<double>(*more);
    return cat(whole_bytes(all), " bytes (", bytes_text(all), ") of memory on each device");
  }

  std::optional<std::string> rows() const {
    const auto fits = [&](double share) {
      MemoryCase it = now_;
      it.rows = share;
      return frugal_.fits(it);
    };
    if (model_.rows > 0) {
      // Searches for the least number of rows to leave out.
      const auto fewer = least_of(1, model_.rows - 1, [&](int64_t out) {
        return fits(static_cast<double>(model_.rows - out) / model_.rows);
      });
      if (!fewer) return std::nullopt;
      const int64_t left = model_.rows - *fewer;
      return cat("micro-batches of at most ", left, left == 1 ? " row" : " rows",
                 " (--micro-rows)");
    }
    for (int64_t parts = 2; parts <= kMostParts; parts *= 2) {
      if (!fits(1.0 / static_cast<double>(parts))) continue;
      return cat("micro-batches of 1/", parts, " of the rows, and ", parts,
                 " times as many of them");
    }
    return std::nullopt;
  }

  std::optional<std::string> devices() const {
    const auto more = least_of(1, kMostDevices - problem_.device_count(), [&](int64_t number) {
      MemoryCase it = now_;
      it.devices = static_cast<int32_t>(number);
      return frugal_.fits(it);
    });
    if (!more) return std::nullopt;
    return cat(*more, *more == 1 ? " more device" : " more devices", " like device ",
               problem_.worker(frugal_.largest()));
  }

  std::optional<std::string> optimizer() const {
    const Layers all{0, problem_.layer_count()};
    const double weights = problem_.parameters(all), beside = problem_.state(all) - weights;
    if (weights == 0 || beside <= kLeastBeside * weights) return std::nullopt;
    // Counts in hundredths of a byte for each byte of weights.
    const auto fits = [&](int64_t hundredths) {
      MemoryCase it = now_;
      it.optimizer = static_cast<double>(hundredths) / 100 * weights / beside;
      return frugal_.fits(it);
    };
    const auto now = static_cast<int64_t>(std::floor(100 * beside / weights));
    const auto least = static_cast<int64_t>(100 * kLeastBeside);
    const auto less = least_of(0, now - least, [&](int64_t by) { return fits(now - by); });
    if (!less) return std::nullopt;
    return cat("an optimizer that keeps, with the gradients, at most ",
               fixed(static_cast<double>(now - *less) / 100, 2),
               " bytes for each byte of weights (now ", fixed(beside / weights, 2), ")");
  }

  static int64_t whole_bytes(double bytes) { return static_cast<int64_t>(std::ceil(bytes)); }

  const UnfitModel& model_;
  const LayoutProblem& problem_;
  const FrugalLayouts frugal_;
  MemoryCase now_;
};

}  // namespace

std::string fit_advice(const UnfitModel& model) { return Advice(model).text(); }

}  // namespace tenuto
