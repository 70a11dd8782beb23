// Ridge regression: weights of a linear function, found exactly.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tenuto {

// The weights w that make the sum of (target - w . row)^2 over all rows, plus penalty x |w|^2, the
// least. So weights are small where the rows say little, and 0 without rows.
//
// Shapes: rows: row by row, `width` numbers each, for as many rows as there are targets
// Requires: a width and a penalty above 0
// Cost:   rows x width^2 + width^3
// Source: Hoerl, Kennard, "Ridge regression", Technometrics 12 (1970); solved by Cholesky's method.
std::vector<double> ridge_weights(std::span<const double> rows, std::span<const double> targets,
                                  size_t width, double penalty);

}  // namespace tenuto
