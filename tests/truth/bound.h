// How far a run may be from the plain one whose sums are made in another order, see truth_test.cc.
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

// The parameters in shards, without the optimizer's state.
Parameters read_parameters(const std::vector<std::string>& shards);

// How far runs may be from the plain one, and how far the moved ones were.
struct SumSpread {
  double parameters = 0, losses = 0;
};

// Of runs of the job's steps whose every gradient element is moved by the bound of a sum of so many
// terms a micro-batch.
SumSpread spread_of(const Job& job, const PlainResult& plain, int32_t terms_per_micro);

// The test fails unless losses and parameters are within the spread of the plain run's.
void expect_within(const SumSpread& spread, const PlainResult& plain,
                   const std::vector<double>& losses, const Parameters& parameters);

}  // namespace tenuto
