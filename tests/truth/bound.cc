#include "truth/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "base/safetensors.h"

namespace tenuto {
namespace {

constexpr uint64_t kPerturbedRuns = 4;

// The largest difference of one element.
double distance(const Parameters& left, const Parameters& right) {
  EXPECT_EQ(left.size(), right.size());
  double most = 0;
  for (const auto& [name, values] : left) {
    const std::vector<float>& others = right.at(name);
    EXPECT_EQ(values.size(), others.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(double{values[i]} - double{others[i]}));
    }
  }
  return most;
}

double largest(const Parameters& parameters) {
  double most = 0;
  for (const auto& [name, values] : parameters) {
    for (const float value : values) most = std::max(most, std::abs(double{value}));
  }
  return most;
}

double distance(const std::vector<double>& left, const std::vector<double>& right) {
  EXPECT_EQ(left.size(), right.size());
  double most = 0;
  for (size_t i = 0; i < left.size(); ++i) most = std::max(most, std::abs(left[i] - right[i]));
  return most;
}

}  // namespace

Parameters read_parameters(const std::vector<std::string>& shards) {
  Parameters parameters;
  for (const std::string& path : shards) {
    auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(file.ok());
    for (const auto& [name, tensor] : file.value().tensors()) {
      if (name.starts_with("optimizer.")) continue;
      std::vector<float>& values = parameters[name];
      values.resize(static_cast<size_t>(tensor.end - tensor.first) / sizeof(float));
      EXPECT_TRUE(file.value().read(name, std::as_writable_bytes(std::span(values))).ok());
    }
  }
  return parameters;
}

SumSpread spread_of(const Job& job, const PlainResult& plain, int32_t terms_per_micro) {
  constexpr double kUnit = 0x1.0p-24;
  SumSpread spread;
  for (uint64_t seed = 1; seed <= kPerturbedRuns; ++seed) {
    const PlainResult moved = run_plain(job, {terms_per_micro, seed});
    spread.parameters = std::max(spread.parameters, distance(moved.parameters, plain.parameters));
    spread.losses = std::max(spread.losses, distance(moved.losses, plain.losses));
  }
  spread.parameters += 2 * kUnit * static_cast<double>(job.steps) * largest(plain.parameters);
  spread.losses += 2 * kUnit * *std::max_element(plain.losses.begin(), plain.losses.end());
  return spread;
}

void expect_within(const SumSpread& spread, const PlainResult& plain,
                   const std::vector<double>& losses, const Parameters& parameters) {
  const double parameter = distance(parameters, plain.parameters);
  const double loss = distance(losses, plain.losses);
  EXPECT_LE(parameter, spread.parameters);
  EXPECT_LE(loss, spread.losses);
  std::printf("    parameters off by %.2e (bound %.2e), losses by %.2e (bound %.2e)\n", parameter,
              spread.parameters, loss, spread.losses);
}

}  // namespace tenuto
