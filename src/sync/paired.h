// Two ways to do the same, compared over the same seeds.
#pragma once

#include <span>

namespace tenuto {

// A ratio of two means and its standard error.
struct PairedRatio {
  double value = 0, error = 0;
};

// The mean of `of` over the mean of `to`, whose i-th values are of one seed. What a seed does to
// both cancels, so the error is smaller than that of either mean; it is 0 for one pair.
//
// As many values of both, at least one, with a mean of `to` above 0.
//
// Source: the variance of a ratio estimator, Cochran, "Sampling techniques", 1977, chapter 6.
PairedRatio paired_ratio(std::span<const double> of, std::span<const double> to);

}  // namespace tenuto
