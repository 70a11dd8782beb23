// What stands beside our sync modes in `tenuto bench sync`: published systems, and our own choice
// without one of its parts.
//
//     lb-bsp             LB-BSP: synchronous, with batches by predicted speed
//                        (sync/baseline_modes.h)
//     sync-switch:P      Sync-Switch: P percent of the run synchronous, the rest asynchronous
//                        (sync/baseline_modes.h)
//     gradient-coding:S  gradient coding: each update does without S replicas, and each replica
//                        computes S + 1 times as much (sync/gradient_code.h)
//     zeno++             Zeno++: asynchronous, gradients with a low score are dropped
//                        (sync/gradient_score.h)
//     no-grace           the look-ahead without modes that have a window of grace
//
// SSP, the stale synchronous parallel training of Ho et al., is the sync mode bounded:S.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sync/trial.h"

namespace tenuto {

// Those that the bench runs: each of them, with figures where it has some.
const std::vector<std::string>& usual_baselines();

// Whether this is the name of a baseline, whatever stands behind its colon.
bool is_baseline(std::string_view name);

// Makes it a trial of this baseline; the trial has its scenario already.
//
// Errors: Invalid/Call  no baseline of this name; figures out of range, missing, or not wanted. The
//         trial is unchanged then.
Status set_baseline(std::string_view name, TrialSetting& trial);

}  // namespace tenuto
