// How far behind its virtual clock a device was.
#pragma once

#include <cstdint>
#include <vector>

#include "base/unit.h"

namespace tenuto {

// A summary of lags, and of the lengths of the ops that had them.
struct Lag {
  Duration median{}, p99{}, worst{};
  Duration typical_op{};  // median of the lengths above zero
  int64_t ops = 0;        // that the summary is made of
  // False when p99 exceeds a fifth of a typical op: the run's times are invalid.
  bool valid() const { return p99 * 5 <= typical_op; }
};

// Keeps the last million lags.
class LagRecord {
 public:
  // Notes one op. A lag below zero counts as none.
  void note(Duration lag, Duration length);
  // The summary of what is kept.
  Lag summary() const;

 private:
  std::vector<int64_t> lags_, lengths_;
  size_t next_ = 0;
};

}  // namespace tenuto
