// Troubles drawn at random: when they begin, where, how bad they are and how long they last.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/unit.h"
#include "outlook/trouble.h"

namespace tenuto::outlook {

// A lognormal distribution by its mean and the deviation of its logarithm; with a deviation of 0
// every draw is the mean.
struct Lognormal {
  double mean = 0, sigma = 0;
};

// An exponential draw: the time to the next event of a process without memory.
double draw_exponential(Random& random, double mean);
// A lognormal draw.
double draw_lognormal(Random& random, const Lognormal& distribution);

// Troubles of one kind. Those of a worker (of a link) begin as a Poisson process.
struct TroubleProcess {
  double hours_between = 0;  // mean, of one worker or one link; 0 = never
  Lognormal hours;           // how long one lasts; a mean of 0 = for ever
  Lognormal excess;          // its factor is 1 + excess, rounded to twentieths, at least 1.05
};

// The processes of a cluster, with parameters fitted to published figures (docs/weeks.md).
//
// Source: Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783 (deaths: 419 in 54
//         days of 16,384 workers); Wu et al., "Falcon", arXiv 2410.12588 (slow workers last 10
//         minutes on average, slow links 24, both from seconds to hours). The hours of a repair and
//         the factors are assumptions.
struct Processes {
  TroubleProcess deaths{50'000, {4, 1}, {}};
  TroubleProcess slow_workers{200'000, {1.0 / 6, 1.5}, {0.5, 0.8}};
  TroubleProcess slow_links{300'000, {0.4, 1.5}, {4, 1}};
};

// The troubles that begin before `length`, ordered by their begin. Equal arguments give equal
// troubles; the troubles of one kind do not depend on the processes of the others.
std::vector<Trouble> draw_troubles(const ClusterShape& shape, const Processes& processes,
                                   Duration length, uint64_t seed);

}  // namespace tenuto::outlook
