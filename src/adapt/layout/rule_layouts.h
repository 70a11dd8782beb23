// The layouts of simple and of published rules. They are baselines: each rule looks at a part of
// the problem only. baseline_layout() runs them and checks memory.
#pragma once

#include <optional>
#include <vector>

#include "adapt/layout/device_order.h"
#include "adapt/layout/problem.h"

namespace tenuto {

// One stage with all layers on all devices.
Layout one_stage_layout(const LayoutProblem& problem);

// One device a stage, equal numbers of layers: stage n of N ends before layer (n + 1) L / N,
// rounded down. Devices beyond the number of layers are idle.
Layout even_layout(const LayoutProblem& problem);

// One device a stage; the busiest stage, with all devices equally fast, has as little work as
// possible. Of equally good cuts the last one comes as early as possible, then the one before.
// Cost: O(L N) for N stages
Layout balanced_layout(const LayoutProblem& problem);

// All devices in their natural order, taken as equally fast, and every link as slow as the slowest.
// The least maximum over stages, with t of work and P parameters on r replicas, of
// t/r + 4 (r-1) P / (r^2 rate), which is a reduction for every micro-batch, and over the cuts of
// 2 D / (r rate) for D bytes, r being the replicas behind the cut. Of equally good layouts the one
// with the earliest last cut.
//
// Source: Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN training", SOSP
//         2019, and its published optimizer
// Cost:   O(L^2 V^2) for L layers and V devices; more than 128 layers are cut in some places only,
//         and more than 64 devices are taken in groups
Layout flat_rate_layout(const LayoutProblem& problem);

// At most four stages on all devices in their natural order. Minimizes the time of the first
// micro-batch's way there and back, plus M - 1 times the busiest stage or link, plus the time by
// which the longest reduction outlasts the backwards before it. Does not simulate.
//
// Returns: nothing when `memory` counts and no such layout fits (memory_shortage)
// Source:  Fan et al., "DAPPLE: A pipelined data parallel approach for training large models",
//          PPoPP 2021
// Cost:    O(L^3 V^3) at worst, usually far less; more than 64 layers are cut in some places only,
//          and more than 16 devices are taken in groups
std::optional<Layout> exposed_reduction_layout(const LayoutProblem& problem, bool memory);

// The devices sorted by speed, the fastest first; of equally fast ones, well connected ones stand
// side by side.
DeviceOrder speed_order(const LayoutProblem& problem);

// Virtual workers of equal size, `count` of them: each is a pipeline with one device a stage, and
// stage n of all of them are replicas of one stage, which is the next `count` devices of the order.
// With speed_order() every virtual worker so has the same mix of speeds. The cuts make the longest
// stage as short as possible, for the speeds of the stages.
//
// Returns: nothing when `count` does not divide the number of devices, or there are fewer layers
//          than stages
// Source:  Park et al., "HetPipe: Enabling large DNN training on (whimpy) heterogeneous GPU
//          clusters", USENIX ATC 2020 (virtual workers of equal mix; there with a parameter server
//          and without waiting for each other)
std::optional<Layout> virtual_worker_layout(const LayoutProblem& problem, const DeviceOrder& order,
                                            int32_t count);

}  // namespace tenuto
