#include "sync/paired.h"

#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tenuto {

PairedRatio paired_ratio(std::span<const double> of, std::span<const double> to) {
  CHECK(!of.empty() && of.size() == to.size(), "as many values of both, at least one");
  const auto count = static_cast<double>(of.size());
  const double base = std::accumulate(to.begin(), to.end(), 0.0) / count;
  CHECK(base > 0, "a mean above 0");
  PairedRatio ratio;
  ratio.value = std::accumulate(of.begin(), of.end(), 0.0) / count / base;
  if (of.size() < 2) return ratio;
  double squares = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const double rest = of[i] - ratio.value * to[i];
    squares += rest * rest;
  }
  ratio.error = std::sqrt(squares / (count - 1) / count) / base;
  return ratio;
}

}  // namespace tenuto
