#include "ir/mass_step.h"

#include <cmath>

namespace tenuto {

namespace {

// What a moment takes of a gradient, relative to an update of full mass, where it is exactly 1.
// With the same gradient all the time the moment is gradient / (1 - beta) in every mode.
double take_of_mass(double beta, const UpdateMass& of) {
  return of.mass == of.full ? 1 : (1 - decay_of_mass(beta, of)) / (1 - beta);
}

}  // namespace

double share_of_full(const UpdateMass& of) { return share_of(of.mass, of.full); }

double decay_of_mass(double beta, const UpdateMass& of) {
  return of.mass == of.full ? beta : std::pow(beta, share_of_full(of));
}

MomentumFactors momentum_factors(double rate, double momentum, const UpdateMass& of) {
  return {decay_of_mass(momentum, of), take_of_mass(momentum, of), rate * share_of_full(of)};
}

AdamFactors adam_factors(const AdamSettings& settings, const UpdateMass& of) {
  AdamFactors factors;
  factors.keep_first = decay_of_mass(settings.beta1, of);
  factors.keep_second = decay_of_mass(settings.beta2, of);
  factors.take_first = 1 - factors.keep_first;
  factors.take_second = 1 - factors.keep_second;
  // A whole number of full masses gives a whole number here, so the powers are the plain ones.
  const double steps = share_of(of.before + of.mass, of.full);
  factors.first_correction = 1 - std::pow(settings.beta1, steps);
  factors.second_correction = 1 - std::pow(settings.beta2, steps);
  factors.rate = settings.rate * share_of_full(of);
  factors.shrink = 1 - factors.rate * settings.weight_decay;
  return factors;
}

double clip_factor(double norm, double limit, double margin) {
  const double length = norm + margin;
  return limit > 0 && length > limit ? limit / length : 1;
}

void add_weight_decay(std::span<float> gradient, std::span<const float> parameters, double decay) {
  const auto factor = static_cast<float>(decay);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += factor * parameters[i];
}

void take_momentum_step(std::span<float> parameters, std::span<float> moment,
                        std::span<const float> gradient, const MomentumFactors& factors) {
  const auto keep = static_cast<float>(factors.keep), take = static_cast<float>(factors.take);
  const auto rate = static_cast<float>(factors.rate);
  for (size_t i = 0; i < parameters.size(); ++i) {
    moment[i] = keep * moment[i] + take * gradient[i];
    parameters[i] -= rate * moment[i];
  }
}

void take_nesterov_step(std::span<float> parameters, std::span<float> moment,
                        std::span<const float> gradient, const MomentumFactors& factors) {
  const auto keep = static_cast<float>(factors.keep), take = static_cast<float>(factors.take);
  const auto rate = static_cast<float>(factors.rate);
  for (size_t i = 0; i < parameters.size(); ++i) {
    moment[i] = keep * moment[i] + take * gradient[i];
    parameters[i] -= rate * (take * gradient[i] + keep * moment[i]);
  }
}

void take_plain_step(std::span<float> parameters, std::span<const float> gradient, double rate) {
  const auto factor = static_cast<float>(rate);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= factor * gradient[i];
}

void take_adam_step(std::span<float> parameters, std::span<float> first, std::span<float> second,
                    std::span<const float> gradient, const AdamSettings& settings,
                    const AdamFactors& factors) {
  const auto keep_first = static_cast<float>(factors.keep_first);
  const auto take_first = static_cast<float>(factors.take_first);
  const auto keep_second = static_cast<float>(factors.keep_second);
  const auto take_second = static_cast<float>(factors.take_second);
  const auto shrink = static_cast<float>(factors.shrink);
  const auto step = static_cast<float>(factors.rate / factors.first_correction);
  const auto root = static_cast<float>(std::sqrt(factors.second_correction));
  const auto epsilon = static_cast<float>(settings.epsilon);
  for (size_t i = 0; i < parameters.size(); ++i) {
    first[i] = keep_first * first[i] + take_first * gradient[i];
    second[i] = keep_second * second[i] + take_second * (gradient[i] * gradient[i]);
    parameters[i] =
        shrink * parameters[i] - step * first[i] / (std::sqrt(second[i]) / root + epsilon);
  }
}

}  // namespace tenuto
