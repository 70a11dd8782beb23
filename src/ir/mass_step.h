// What one update does to the parameters, by its mass: plain SGD, momentum, Adam and the outer step
// of local steps.
//
// An update of mass q, where a synchronous one has the full mass F, moves by q / F of what a
// synchronous one does, and a moment with factor beta keeps beta^(q / F). So F / q updates with the
// same gradient move as one synchronous update does. With plain SGD this is exact; with moments
// there is a difference, because parameters are also read between these updates. A sync mode can
// change at any update, and no learning rate or momentum changes with it. At full mass every factor
// is that of the plain optimizer, bit for bit.
//
// Clipping: an update's mean gradient is clipped to the same norm whatever its mass. So updates of
// one full mass together never move further than one clipped synchronous update does. The mean of
// fewer gradients has more noise and a larger norm, so it is clipped more often: partial updates
// are clipped too much rather than too little. For the same reason Adam's second moment is larger,
// and its steps shorter, the fewer gradients an update has.
//
// Sources: Kingma, Ba, "Adam", ICLR 2015; Loshchilov, Hutter, "Decoupled weight decay
// regularization", ICLR 2019; Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent
// neural networks", ICML 2013 (clipping); Nesterov's method as in Sutskever et al., "On the
// importance of initialization and momentum in deep learning", ICML 2013. The powers: ours.
#pragma once

#include <span>

#include "ir/mass.h"

namespace tenuto {

// The mass of an update.
struct UpdateMass {
  Mass mass{1};  // of this update, above 0
  Mass full{1};  // of one iteration of all replicas, above 0
  Mass before;   // of all updates before this one
};

// The part of a synchronous update that this one is: 1 at full mass.
double share_of_full(const UpdateMass& of);

// What is left of a moment whose factor is `beta` at full mass.
double decay_of_mass(double beta, const UpdateMass& of);

// Factors of one update: moment = keep x moment + take x gradient; parameter -= rate x moment. With
// Nesterov's method: parameter -= rate x (take x gradient + keep x moment), with the new moment.
struct MomentumFactors {
  double keep = 0, take = 1, rate = 0;
};

// Plain SGD is momentum 0. `rate` is that of a synchronous update.
MomentumFactors momentum_factors(double rate, double momentum, const UpdateMass& of);

// What Adam takes from a job.
struct AdamSettings {
  double rate = 0.001, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
};

// Factors of one update: first = keep_first x first + take_first x gradient; second likewise with
// the gradient's square; parameter = shrink x parameter - rate x (first / first_correction) /
// (sqrt(second / second_correction) + epsilon).
struct AdamFactors {
  double keep_first = 0, take_first = 1, keep_second = 0, take_second = 1;
  double first_correction = 1, second_correction = 1;
  double rate = 0, shrink = 1;
};

// `before` + `mass` of the update says how far the moments' corrections have come.
AdamFactors adam_factors(const AdamSettings& settings, const UpdateMass& of);

// The margin of clip_factor() when a job is trained: that of torch.nn.utils.clip_grad_norm_.
inline constexpr double kClipMargin = 1e-6;

// What a mean gradient with this norm is multiplied by: limit / (norm + margin), but 1 at most.
// A limit of 0 means no clipping.
double clip_factor(double norm, double limit, double margin);

// Weight decay of SGD, as torch::optim::SGD has it: gradient += decay x parameter. The sum is then
// the gradient of the update, so the decay goes by mass as the gradient does.
//
// Shapes: both have the same length; `gradient` is the mean over the update's micro-batches
void add_weight_decay(std::span<float> gradient, std::span<const float> parameters, double decay);

// Takes one update in place. Elements do not depend on each other, so the parts of a long vector
// can be taken one after the other, in any order, with the same bits.
//
// Shapes: all spans have the same length; `gradient` is the mean over the update's micro-batches
void take_momentum_step(std::span<float> parameters, std::span<float> moment,
                        std::span<const float> gradient, const MomentumFactors& factors);
// The same with Nesterov's method.
void take_nesterov_step(std::span<float> parameters, std::span<float> moment,
                        std::span<const float> gradient, const MomentumFactors& factors);
// Plain SGD without a moment: parameter -= rate x gradient.
void take_plain_step(std::span<float> parameters, std::span<const float> gradient, double rate);
// Adam's update; `settings` are those that the factors were made from.
void take_adam_step(std::span<float> parameters, std::span<float> first, std::span<float> second,
                    std::span<const float> gradient, const AdamSettings& settings,
                    const AdamFactors& factors);

}  // namespace tenuto
