// What one plain libtorch process computes for a job: modules, autograd's backward, torch::optim.
// It shares with the engine what defines the job (data, initial values, dropout masks, learning
// rate) and nothing that is tested (layers, backward, sums, norm, optimizer, schedule).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "world/job.h"

namespace tenuto {

// Losses per step (folded in micro-batch order, divided by their count) and the final parameters.
struct PlainResult {
  std::vector<double> losses, norms;  // per step; norms before clipping
  std::map<std::string, std::vector<float>> parameters;
};

// Makes a plain run that differs by as much as another order of additions can make it differ.
//
// Summing n terms g in fp32 in any order is off by at most (n - 1) u / (1 - (n - 1) u) times the
// sum of |g|, u = 2^-24; two orders differ by at most twice that. With `terms_per_micro` terms per
// micro-batch (2 for a tied weight, whose gradient comes from both ends), every element of every
// step's gradient is moved by exactly this bound, up or down as `seed` says.
struct Perturbation {
  int32_t terms_per_micro = 1;
  uint64_t seed = 0;  // 0 = an undisturbed run
};

// The plain process, step by step. The job's layout keys only determine the number of
// micro-batches.
class PlainRun {
 public:
  explicit PlainRun(const Job& job, const Perturbation& perturbation = {});
  ~PlainRun();
  // Trains one step. Returns its loss: the micro-batches' losses, added in their order and divided
  // by their count.
  double step();
  // The norm of that step's gradients, before clipping.
  double norm() const;
  // The parameters now.
  std::map<std::string, std::vector<float>> parameters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Trains all steps of the job in this process.
PlainResult run_plain(const Job& job, const Perturbation& perturbation = {});

}  // namespace tenuto
