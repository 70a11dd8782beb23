// What a trial does with gradients beside its sync mode: what a replica computes for an offer,
// which offers the server takes, and how it adds them up. The plain method computes a replica's
// samples, takes all offers, and adds them; two baselines do other things.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/update_rule.h"
#include "sync/scenario.h"
#include "sync/trial_model.h"

namespace tenuto {

// The methods.
enum class MethodKind : uint8_t {
  Plain,
  Coded,   // gradient coding (sync/gradient_code.h): mode x:K, each replica computes the samples of
           // W - K + 1 replicas; offers of an older version cannot be decoded and are refused
  Scored,  // Zeno++ (sync/gradient_score.h): mode asynchronous, offers with a low score are refused
};

// What a method is made for.
struct MethodSetting {
  MethodKind kind = MethodKind::Plain;
  int32_t count = 1;     // K of Coded
  int32_t replicas = 1;  // W
  int64_t batch = 1;     // samples of a replica's iteration
  double rate = 1;       // of an update of full mass
  uint64_t seed = 0;     // of Coded's weights
};

// How the gradients of an update are added.
struct OfferFactors {
  std::vector<float> factors;  // of each member's offer, in the update's order
  Mass mass;                   // samples in the sum
};

// One method while a trial runs; this class itself is the plain one.
class TrialMethod {
 public:
  // `model` has to outlive the method.
  explicit TrialMethod(const TrialModel& model) : model_(model) {}
  TrialMethod(const TrialMethod&) = delete;
  TrialMethod& operator=(const TrialMethod&) = delete;
  virtual ~TrialMethod() = default;

  // How long iterations take, given how long those of the plain method do.
  virtual IterationTimes times(IterationTimes plain) const { return plain; }
  // What the replica of this offer computes from the parameters that it reads: a sum over samples,
  // and their loss, as that of so many samples as the offer has.
  virtual TrialModel::Gradient gradient(std::span<const float> parameters,
                                        const Offer& offer) const;
  // The offer arrives when `newest` is the newest version, and these are the server's parameters.
  // Returns false to refuse it, and may change its gradient.
  virtual bool accept([[maybe_unused]] const Offer& offer, [[maybe_unused]] Version newest,
                      [[maybe_unused]] std::span<const float> parameters,
                      [[maybe_unused]] std::span<float> gradient) {
    return true;
  }
  // How the update's offers are added.
  virtual OfferFactors factors(const Update& update) const;

 protected:
  const TrialModel& model() const { return model_; }

 private:
  const TrialModel& model_;
};

// The method of this setting. Requires: a count from 1 to replicas for Coded
std::unique_ptr<TrialMethod> make_method(const MethodSetting& setting, const TrialModel& model);

}  // namespace tenuto
