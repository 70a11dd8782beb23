// Gradient coding: replicas compute more than their own part of the data, so that the gradient of
// all parts follows from the offers of any replicas but a few.
//
// The data of an update has as many parts as there are replicas. Replica i computes the gradients
// of the parts i to i + spare, counted in a circle, and offers one weighted sum of them. The
// weights are such that the offers of any replicas but `spare` have a weighted sum that is the
// plain sum of all parts. Each replica computes spare + 1 times as much, and sends as much as
// without coding.
//
// Source: Tandon, Lei, Dimakis, Karampatziakis, "Gradient coding: avoiding stragglers in
// distributed learning", ICML 2017, the cyclic scheme (algorithm 2): the rows of the matrix of
// weights are orthogonal to `spare` random vectors, each of which adds up to 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/sync_mode.h"

namespace tenuto {

// The most replicas of a code in a trial: the time to decode an update grows with the cube of their
// number.
constexpr int32_t kMostCodedReplicas = 64;

// The weights of one code.
class GradientCode {
 public:
  // The more replicas there are, and of them spare ones, the larger are the factors of `decode`,
  // and the rounding errors of the sum with them.
  //
  // Requires: spare from 0 to replicas - 1
  GradientCode(int32_t replicas, int32_t spare, uint64_t seed);

  // Which part is the `index`-th one that the replica computes; index from 0 to spare.
  int32_t part(ReplicaId replica, int32_t index) const {
    return (replica.value + index) % replicas_;
  }
  // The weights of these parts in the replica's offer: spare + 1, the largest of which is 1 or -1.
  std::span<const double> weights(ReplicaId replica) const;

  // The factors of these replicas' offers in the sum of all parts. If there are more than
  // replicas - spare of them, the last ones have the factor 0.
  //
  // Requires: at least replicas - spare different replicas
  // Cost:     replicas^3
  std::vector<double> decode(std::span<const ReplicaId> replicas) const;

 private:
  int32_t replicas_, spare_;
  std::vector<double> weights_;  // replica by replica, spare + 1 each
};

}  // namespace tenuto
