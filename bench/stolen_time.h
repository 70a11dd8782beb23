// Whether a measurement was alone: of a virtual machine the host may take processors away.
#pragma once

#include <cstdint>

namespace tenuto {

// Measures from when it is made.
class StolenTime {
 public:
  StolenTime() : begin_(now()) {}
  // The share of the processors' time that the host gave to others since then; 0 where that cannot
  // be told.
  double share() const;

 private:
  struct Counted {
    int64_t all = 0, stolen = 0;
  };
  static Counted now();
  Counted begin_;
};

}  // namespace tenuto
