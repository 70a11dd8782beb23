// Random numbers without state: a function of a key and a counter, so that every worker draws the
// same numbers under every schedule.
#pragma once

#include <array>
#include <cstdint>

namespace tenuto {

// Philox 4x32-10: four words of random bits for (key, counter).
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

// Hashes up to four words into one. Keys are made with it.
uint64_t mix(uint64_t first, uint64_t second = 0, uint64_t third = 0, uint64_t fourth = 0);

// A seeded sequence for tests, faults and searches: philox with a running counter.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  // The next 64 bits.
  uint64_t next();
  // Uniform in [0, bound); bound must be above 0.
  int64_t below(int64_t bound);
  // Uniform in [0, 1).
  double uniform();

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace tenuto
