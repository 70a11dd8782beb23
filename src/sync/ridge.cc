#include "sync/ridge.h"

#include <cmath>

#include "base/check.h"

namespace tenuto {

namespace {

// Solves a x = b in place for a symmetric matrix with positive eigenvalues, row by row in `a`.
void solve(std::vector<double>& a, std::vector<double>& b) {
  const size_t size = b.size();
  // a = lower x lower transposed; `lower` takes the place of the lower triangle.
  for (size_t row = 0; row < size; ++row) {
    for (size_t column = 0; column <= row; ++column) {
      double rest = a[row * size + column];
      for (size_t k = 0; k < column; ++k) rest -= a[row * size + k] * a[column * size + k];
      if (row == column) CHECK(rest > 0, "a penalty that is not lost beside the rows");
      a[row * size + column] = row == column ? std::sqrt(rest) : rest / a[column * size + column];
    }
  }
  for (size_t row = 0; row < size; ++row) {
    for (size_t k = 0; k < row; ++k) b[row] -= a[row * size + k] * b[k];
    b[row] /= a[row * size + row];
  }
  for (size_t row = size; row-- > 0;) {
    for (size_t k = row + 1; k < size; ++k) b[row] -= a[k * size + row] * b[k];
    b[row] /= a[row * size + row];
  }
}

}  // namespace

std::vector<double> ridge_weights(std::span<const double> rows, std::span<const double> targets,
                                  size_t width, double penalty) {
  CHECK(width > 0 && penalty > 0, "a width and a penalty above 0");
  CHECK(rows.size() == targets.size() * width, "as many rows as targets");
  std::vector<double> squares(width * width, 0.0), weights(width, 0.0);
  for (size_t i = 0; i < width; ++i) squares[i * width + i] = penalty;
  for (size_t at = 0; at < targets.size(); ++at) {
    const auto row = rows.subspan(at * width, width);
    for (size_t i = 0; i < width; ++i) {
      for (size_t k = 0; k < width; ++k) squares[i * width + k] += row[i] * row[k];
      weights[i] += row[i] * targets[at];
    }
  }
  solve(squares, weights);
  return weights;
}

}  // namespace tenuto
