// A lower bound on the step of every layout.
#pragma once

#include "adapt/layout/problem.h"

namespace tenuto {

// No layout of the model on these devices, with rows split over replicas, has a shorter step, in
// whatever order it runs its ops. Relaxations: the devices are counted but not told apart; every
// set of devices of a size is as fast, and as well connected, as the best such set; every link has
// the best rate between two sets of such sizes; a stage waits for the first micro-batch to come and
// for the last one to go, but is busy in between. Memory does not count.
//
// It is at least the least bottleneck() of all layouts under the same relaxations, which is the
// published bound, and at least the work of all micro-batches divided by the sum of the speeds.
//
// The result is below the least limit that passes by 1e-9 of it, or 1e-4 for larger problems (more
// than 8 devices with 216 layers, or 16 with 76).
//
// Cost:   some 20 to 40 probes of O(L^2 V^2) for L layers and V devices at most. Above 64 devices,
//         or when L V exceeds 15,500, a weaker form: O(V^2) once and probes of O(V L). There,
//         transfers take no time, a stage waits for the work before it as if all devices shared it,
//         and more than 1,024 layers are taken in groups
// Source: Luo et al., INFOCOM 2022 (bottleneck)
double least_step(const LayoutProblem& problem);

}  // namespace tenuto
