// Tells how much processor time the host took from this virtual machine during a measurement.
#pragma once

#include <cstdint>

namespace tenuto {

// Measures from its construction on.
class StolenTime {
 public:
  StolenTime() : begin_(now()) {}
  // The share of processor time that the host has taken since then; 0 where that is not known.
  double share() const;

 private:
  struct Counted {
    int64_t all = 0, stolen = 0;
  };
  static Counted now();
  Counted begin_;
};

}  // namespace tenuto
