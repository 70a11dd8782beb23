// A sum that does not depend on the order of its terms. Norms are such sums, so they are the same
// to the last bit however a model is cut into stages and in whatever order the stages add them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tenuto {

// Fixed point, wide enough for the square of any fp32 number: nothing is rounded before value().
// It is a plain array of words, so it can be sent as bytes.
class ExactSum {
 public:
  // Adds a number; its bits below 2^-384 are cut off.
  //
  // Requires: finite, not negative, below 2^300; fewer than 2^20 terms
  void add(double number);
  // Adds the terms of another sum.
  void add(const ExactSum& other);
  // The sum, rounded to the nearest double, ties to even. It never falls when a term is added.
  double value() const;

 private:
  static constexpr int kPoint = 384;  // bits behind the point
  static constexpr size_t kWords = 11;

  std::array<uint64_t, kWords> words_{};  // the least first
};

}  // namespace tenuto
