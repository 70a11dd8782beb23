#include "sync/gradient_code.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "sync/scenario.h"

namespace tenuto {

namespace {

// The solution x of rows x = right, by Gauss's elimination with the largest pivot of each column.
// `rows` has right.size() rows of as many numbers.
std::vector<double> solved(std::vector<double> rows, std::vector<double> right) {
  const size_t size = right.size();
  const auto at = [&](size_t row, size_t column) -> double& { return rows[row * size + column]; };
  for (size_t step = 0; step < size; ++step) {
    size_t pivot = step;
    for (size_t row = step + 1; row < size; ++row) {
      if (std::abs(at(row, step)) > std::abs(at(pivot, step))) pivot = row;
    }
    CHECK(at(pivot, step) != 0, "independent rows");
    std::swap(right[step], right[pivot]);
    for (size_t column = step; column < size; ++column) {
      std::swap(at(step, column), at(pivot, column));
    }
    for (size_t row = step + 1; row < size; ++row) {
      const double factor = at(row, step) / at(step, step);
      for (size_t column = step; column < size; ++column) {
        at(row, column) -= factor * at(step, column);
      }
      right[row] -= factor * right[step];
    }
  }
  for (size_t row = size; row-- > 0;) {
    for (size_t column = row + 1; column < size; ++column) {
      right[row] -= at(row, column) * right[column];
    }
    right[row] /= at(row, row);
  }
  return right;
}

}  // namespace

GradientCode::GradientCode(int32_t replicas, int32_t spare, uint64_t seed)
    : replicas_(replicas), spare_(spare) {
  CHECK(spare >= 0 && spare < replicas, "fewer spare replicas than replicas");
  const auto parts = static_cast<size_t>(replicas), vectors = static_cast<size_t>(spare);
  // Row by row: random numbers, the last of which makes the sum of the row 0.
  std::vector<double> random(vectors * parts, 0.0);
  for (size_t vector = 0; vector < vectors; ++vector) {
    double* row = random.data() + vector * parts;
    for (size_t part = 0; part + 1 < parts; ++part) {
      row[part] = normal(mix(seed, vector, part));
      row[parts - 1] -= row[part];
    }
  }
  // The first weight is 1, and the others make the row orthogonal to each random one.
  for (size_t replica = 0; replica < parts; ++replica) {
    std::vector<double> matrix, right;
    for (size_t vector = 0; vector < vectors; ++vector) {
      const double* row = random.data() + vector * parts;
      for (size_t index = 1; index <= vectors; ++index) {
        matrix.push_back(row[(replica + index) % parts]);
      }
      right.push_back(-row[replica]);
    }
    std::vector<double> weights = solved(std::move(matrix), std::move(right));
    weights.insert(weights.begin(), 1.0);
    double most = 0;
    for (const double weight : weights) most = std::max(most, std::abs(weight));
    for (const double weight : weights) weights_.push_back(weight / most);
  }
}

std::span<const double> GradientCode::weights(ReplicaId replica) const {
  const auto each = static_cast<size_t>(spare_) + 1;
  return std::span(weights_).subspan(static_cast<size_t>(replica.value) * each, each);
}

std::vector<double> GradientCode::decode(std::span<const ReplicaId> replicas) const {
  const auto used = static_cast<size_t>(replicas_ - spare_);
  CHECK(replicas.size() >= used, "the offers of all replicas but the spare ones");
  // Any `used` parts fix the factors, since the rows of all replicas span `used` dimensions, in
  // which the vector of ones lies: one equation for each of the first parts.
  std::vector<double> matrix(used * used, 0.0);
  for (size_t column = 0; column < used; ++column) {
    const std::span<const double> of = weights(replicas[column]);
    for (int32_t index = 0; index <= spare_; ++index) {
      const auto row = static_cast<size_t>(part(replicas[column], index));
      if (row < used) matrix[row * used + column] = of[static_cast<size_t>(index)];
    }
  }
  std::vector<double> factors = solved(std::move(matrix), std::vector<double>(used, 1.0));
  factors.resize(replicas.size(), 0.0);
  return factors;
}

}  // namespace tenuto
