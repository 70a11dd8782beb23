#include "sync/trial_method.h"

#include <utility>

#include "base/random.h"
#include "sync/gradient_code.h"
#include "sync/gradient_score.h"

namespace tenuto {

namespace {

// Zeno++: gradients between two references, and samples of a reference.
constexpr int64_t kReferenceEvery = 10, kReferenceSamples = 128;
constexpr uint64_t kCodeSeed = 21;  // sets the weights apart from all else that a seed draws

class CodedMethod : public TrialMethod {
 public:
  CodedMethod(const MethodSetting& setting, const TrialModel& model)
      : TrialMethod(model),
        spare_(setting.replicas - setting.count),
        full_{setting.replicas * setting.batch},
        code_(setting.replicas, spare_, mix(setting.seed, kCodeSeed)) {}

  IterationTimes times(IterationTimes plain) const override {
    return [plain = std::move(plain), parts = spare_ + 1](int32_t replica, int64_t iteration,
                                                          Duration now) {
      const IterationTime one = plain(replica, iteration, now);
      return IterationTime{one.compute * parts, one.transfer};
    };
  }

  // A part's samples are those that its replica would read in the iteration that has the version's
  // number, so that all replicas mean the same ones.
  TrialModel::Gradient gradient(std::span<const float> parameters,
                                const Offer& offer) const override {
    TrialModel::Gradient all{std::vector<float>(parameters.size(), 0.0f)};
    const std::span<const double> weights = code_.weights(offer.replica);
    for (int32_t index = 0; index <= spare_; ++index) {
      const TrialModel::Gradient part = model().gradient(
          parameters, code_.part(offer.replica, index), offer.version.value, offer.mass.micros);
      const auto weight = static_cast<float>(weights[static_cast<size_t>(index)]);
      for (size_t i = 0; i < all.sum.size(); ++i) all.sum[i] += weight * part.sum[i];
      all.loss += part.loss / (spare_ + 1);
    }
    return all;
  }

  bool accept(const Offer& offer, Version newest, std::span<const float>,
              std::span<float>) override {
    return offer.version == newest;
  }

  OfferFactors factors(const Update& update) const override {
    std::vector<ReplicaId> replicas;
    for (const Offer& member : update.members) replicas.push_back(member.replica);
    OfferFactors found{{}, full_};
    for (const double factor : code_.decode(replicas)) {
      found.factors.push_back(static_cast<float>(factor));
    }
    return found;
  }

 private:
  int32_t spare_;
  Mass full_;
  GradientCode code_;
};

class ScoredMethod : public TrialMethod {
 public:
  ScoredMethod(const MethodSetting& setting, const TrialModel& model)
      : TrialMethod(model), score_(score_setting(setting)) {}

  bool accept(const Offer& offer, Version, std::span<const float> parameters,
              std::span<float> gradient) override {
    if (arrived_ % kReferenceEvery == 0) {
      std::vector<float> reference =
          model().server_gradient(parameters, arrived_ / kReferenceEvery, kReferenceSamples).sum;
      for (float& value : reference) value /= static_cast<float>(kReferenceSamples);
      score_.renew(std::move(reference));
    }
    ++arrived_;
    if (!score_.accept(gradient)) return false;
    for (float& value : gradient) value *= static_cast<float>(offer.mass.micros);
    return true;
  }

 private:
  static ScoreSetting score_setting(const MethodSetting& setting) {
    ScoreSetting score;
    score.rate = setting.rate / setting.replicas;
    return score;
  }

  GradientScore score_;
  int64_t arrived_ = 0;
};

}  // namespace

TrialModel::Gradient TrialMethod::gradient(std::span<const float> parameters,
                                           const Offer& offer) const {
  return model_.gradient(parameters, offer.replica.value, offer.iteration.value, offer.mass.micros);
}

OfferFactors TrialMethod::factors(const Update& update) const {
  return {std::vector<float>(update.members.size(), 1.0f), mass_of(update)};
}

std::unique_ptr<TrialMethod> make_method(const MethodSetting& setting, const TrialModel& model) {
  switch (setting.kind) {
    case MethodKind::Coded:
      return std::make_unique<CodedMethod>(setting, model);
    case MethodKind::Scored:
      return std::make_unique<ScoredMethod>(setting, model);
    case MethodKind::Plain:
      break;
  }
  return std::make_unique<TrialMethod>(model);
}

}  // namespace tenuto
