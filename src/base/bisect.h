// Binary search for the place from which on a condition holds.
#pragma once

namespace tenuto {

// The least number from `low` to `high` - 1 for which `passes` is true; `high` if there is none.
//
// Requires: low <= high; `passes` is true for all numbers above one for which it is true
// Cost:     at most log2(high - low) + 1 calls
template <class Number, class Passes>
Number first_of(Number low, Number high, const Passes& passes) {
  while (low < high) {
    const Number middle = low + (high - low) / 2;
    if (passes(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// The largest number from `low` to `high` for which `fits` is true; `low` if there is none.
//
// Requires: low <= high; `fits` is true for all numbers below one for which it is true
template <class Number, class Fits>
Number last_of(Number low, Number high, const Fits& fits) {
  return first_of<Number>(low + 1, high + 1, [&](Number number) { return !fits(number); }) - 1;
}

}  // namespace tenuto
