// How far a run whose sums are made in another order may be from the plain run; see truth_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "truth/plain_reference.h"
#include "world/job.h"

namespace tenuto {

// Parameters by name.
using Parameters = std::map<std::string, std::vector<float>>;

// Reads the parameters from shards, without the optimizer's state.
Parameters read_parameters(const std::vector<std::string>& shards);

// The largest differences that a run may have from the plain one.
struct SumSpread {
  double parameters = 0, losses = 0;
};

// The spread of plain runs in which every gradient element is moved by the error bound of a sum
// with this many terms per micro-batch, plus what rounding the results adds.
SumSpread spread_of(const Job& job, const PlainResult& plain, int32_t terms_per_micro);

// The test fails unless losses and parameters are within the spread of the plain run's.
void expect_within(const SumSpread& spread, const PlainResult& plain,
                   const std::vector<double>& losses, const Parameters& parameters);

}  // namespace tenuto
