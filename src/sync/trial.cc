#include "sync/trial.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "sync/baseline_modes.h"
#include "sync/chooser.h"
#include "sync/formed.h"
#include "sync/gradient_code.h"
#include "sync/kappa_estimate.h"
#include "sync/loss_watch.h"
#include "sync/progress.h"
#include "sync/trial_model.h"
#include "sync/trial_step.h"

namespace tenuto {

namespace {

constexpr double kNoiseMemory = 0.95;  // of the mean squared gradients, per update

// Only a mode that stays in force may have local steps: no chooser knows them.
int32_t local_steps_of(const TrialSetting& setting) {
  return setting.policy == SyncPolicy::Fixed ? setting.mode.local_steps : 1;
}

double rate_of(const TrialSetting& setting) {
  return setting.rate.value_or(usual_rate(setting.scenario.optimizer));
}

// What takes the gradients of replicas: the parameters' optimizer, or that of a replica's copy.
StepSetting step_of_gradients(const TrialSetting& setting) {
  StepSetting step;
  step.optimizer = setting.scenario.optimizer;
  step.rate = rate_of(setting);
  step.clip = setting.clip;
  return step;
}

// What takes the offers of replicas.
StepSetting step_of_offers(const TrialSetting& setting) {
  if (local_steps_of(setting) == 1) return step_of_gradients(setting);
  return step_setting(setting.mode.outer);
}

MethodSetting method_of(const TrialSetting& setting) {
  MethodSetting method;
  method.kind = setting.method;
  method.count = setting.mode.count;
  method.replicas = setting.scenario.replicas;
  method.batch = setting.batch;
  method.rate = rate_of(setting);
  method.seed = setting.seed;
  return method;
}

// Whether what the baselines need makes sense.
Status check_baseline(const TrialSetting& setting) {
  const double share = setting.synchronous_share;
  if (!(share >= 0 && share <= 1) || !(setting.planned > 0)) {
    return invalid(
        cat("a trial needs a synchronous share from 0 to 1 and a plan above 0 gradients, "
            "found ",
            share, " and ", setting.planned));
  }
  if (setting.method == MethodKind::Plain) return ok();
  const bool coded = setting.method == MethodKind::Coded;
  const SyncMode& mode = setting.mode;
  const SyncKind kind = coded ? SyncKind::Count : SyncKind::Asynchronous;
  if (setting.policy != SyncPolicy::Fixed || mode.kind != kind || mode.local_steps != 1) {
    return invalid(cat(coded ? "gradient coding needs the mode x:K" : "Zeno++ needs asynchronous",
                       ", fixed and without local steps, found ", to_text(mode)));
  }
  const int32_t replicas = setting.scenario.replicas;
  if (coded && replicas > kMostCodedReplicas) {
    return invalid(cat("gradient coding: expected at most ", kMostCodedReplicas,
                       " replicas, found ", replicas));
  }
  return check(mode, replicas);
}

// Nobody for a fixed mode and for baselines that choose the mode by a rule of their own. Requires:
// a model for the learned chooser
std::unique_ptr<Chooser> chooser_of(const TrialSetting& setting) {
  switch (setting.policy) {
    case SyncPolicy::LookAhead:
      return look_ahead_chooser();
    case SyncPolicy::Published:
      return published_chooser();
    case SyncPolicy::Learned:
      return learned_chooser(*setting.chooser);
    case SyncPolicy::Fixed:
    case SyncPolicy::Balanced:
    case SyncPolicy::Switched:
      break;
  }
  return nullptr;
}

// Estimates the gradient noise scale from the gradients of single replicas and of their mean.
//
// Source: McCandlish et al., "An empirical model of large-batch training", 2018, appendix A.1.
class NoiseScale {
 public:
  // `single`: the mean squared norm of gradients over `batch` samples; `joint`: the squared norm of
  // the mean of `count` of them.
  void add(double single, double joint, double batch, int64_t count) {
    if (count < 2) return;
    const double all = batch * static_cast<double>(count);
    const double signal = (all * joint - batch * single) / (all - batch);
    const double noise = (single - joint) / (1 / batch - 1 / all);
    signal_ = begun_ ? kNoiseMemory * signal_ + (1 - kNoiseMemory) * signal : signal;
    noise_ = begun_ ? kNoiseMemory * noise_ + (1 - kNoiseMemory) * noise : noise;
    begun_ = true;
  }
  // In samples; 0 while there is no sound estimate.
  double samples() const { return signal_ > 0 && noise_ > 0 ? noise_ / signal_ : 0; }

 private:
  double signal_ = 0, noise_ = 0;
  bool begun_ = false;
};

// One trial while it runs.
class Trial {
 public:
  explicit Trial(const TrialSetting& setting)
      : setting_(setting),
        model_(setting.seed, setting.scenario.replicas),
        parameters_(model_.initial()),
        step_(step_of_offers(setting), parameters_.size()),
        samples_(static_cast<size_t>(setting.scenario.replicas)),
        under_way_(samples_.size()),
        method_(make_method(method_of(setting), model_)),
        chooser_(chooser_of(setting)),
        watch_(setting.scenario.replicas) {
    if (setting.learns_kappa && setting.policy == SyncPolicy::LookAhead) {
      estimate_.emplace(setting.kappa, setting.scenario.replicas);
    }
    if (local_steps_of(setting) == 1) return;
    local_.assign(samples_.size(), TrialStep(step_of_gradients(setting), parameters_.size()));
  }

  Result<TrialResult> run() {
    const SyncScenario& scenario = setting_.scenario;
    const auto first = first_mode();
    if (!first.ok()) return first.error();
    SyncHooks hooks;
    hooks.begun = [this](const Release& release, const IterationTime& time) {
      begun(release, time);
    };
    hooks.refuses = [this](const Offer& offer) { return refuses(offer); };
    hooks.applied = [this](const Update& update) { applied(update); };
    auto made = SyncSimulator::make({{first.value(), scenario.replicas, setting_.batch, {}, {}},
                                     method_->times(times_of(scenario, setting_.seed)),
                                     scenario.apply},
                                    std::move(hooks));
    if (!made.ok()) return made.error();
    SyncSimulator simulator = std::move(made).value();
    simulator_ = &simulator;
    while (simulator.now() < setting_.limit) {
      evaluate_before(std::min(simulator.next_at().value_or(setting_.limit), setting_.limit));
      if (result_.reached || !simulator.step()) break;
      look(simulator);
    }
    result_.measure = simulator.measure();
    result_.gradients = share_of(applied_mass_, {setting_.batch});
    result_.kappa = kappa();
    return result_;
  }

 private:
  // An iteration that a replica is in, or has just ended.
  struct UnderWay {
    std::vector<float> gradient;  // what it offers: the sum over its samples
    double loss = 0;              // their mean
    IterationTime time;
    Duration since{};
    double share = 1;
    bool heard = true;  // its time is among the samples
  };

  void begun(const Release& release, const IterationTime& time) {
    const Offer& offer = release.offer;
    UnderWay& own = under_way_[static_cast<size_t>(offer.replica.value)];
    TrialModel::Gradient made =
        release.local_steps == 1 ? method_->gradient(parameters_, offer) : change_of(release);
    own.loss = made.loss / static_cast<double>(offer.mass.micros);
    own.gradient = std::move(made.sum);
    own.time = time;
    own.since = simulator_->now();
    own.share = share_of(offer.mass, {setting_.batch});
    own.heard = false;
  }

  // Takes the local steps. Returns how far they have moved the parameters, times the mass, which is
  // what the sum of a gradient over so many samples would be, and the loss of all their samples.
  TrialModel::Gradient change_of(const Release& release) {
    const Offer& offer = release.offer;
    const Mass samples{offer.mass.micros / release.local_steps};
    TrialModel::Gradient all{parameters_};
    std::vector<float>& change = all.sum;
    for (int32_t i = 0; i < release.local_steps; ++i) {
      const TrialModel::Gradient one =
          model_.gradient(change, offer.replica.value, (offer.iteration + i).value, samples.micros);
      all.loss += one.loss;
      local_[static_cast<size_t>(offer.replica.value)].take(change, one.sum, samples, samples);
    }
    replace_by_change(change, parameters_, offer.mass);
    return all;
  }

  bool refuses(const Offer& offer) {
    return !method_->accept(offer, simulator_->rule().version(), parameters_,
                            under_way_[static_cast<size_t>(offer.replica.value)].gradient);
  }

  void applied(const Update& update) {
    const Mass full{setting_.batch * setting_.scenario.replicas * local_steps_of(setting_)};
    std::vector<float> sum(parameters_.size(), 0.0f);
    double single = 0;
    const OfferFactors used = method_->factors(update);
    for (size_t at = 0; at < update.members.size(); ++at) {
      const Offer& member = update.members[at];
      const auto& gradient = under_way_[static_cast<size_t>(member.replica.value)].gradient;
      const auto mass = static_cast<double>(member.mass.micros);
      single += squared_norm(gradient) / (mass * mass);
      const float factor = used.factors[at];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * gradient[i];
    }
    step_.take(parameters_, sum, used.mass, full);
    applied_mass_ += used.mass;
    if (used.mass == full) full_mass_ += used.mass;
    if (estimate_) learn_from(update);
    const auto mass = static_cast<double>(used.mass.micros);
    const auto count = std::ssize(update.members);
    noise_.add(single / static_cast<double>(count), squared_norm(sum) / (mass * mass),
               mass / static_cast<double>(count), count);
  }

  // Tells the estimate of kappa how old the gradients of an update were.
  void learn_from(const Update& update) {
    const Mass mass = mass_of(update);
    double ages = 0;  // mass x age, in samples
    for (const Offer& member : update.members) {
      ages += ages_.age_of(member, mass) * static_cast<double>(member.mass.micros);
    }
    ages_.add(mass);
    const double age = ages / static_cast<double>(mass.micros);
    estimate_->add_applied(share_of(mass, {setting_.batch}),
                           age / static_cast<double>(setting_.batch));
  }

  double kappa() const { return estimate_ ? estimate_->kappa() : setting_.kappa; }

  // Makes the evaluations that are due before `next`, the moment of the next event: with the
  // parameters of their own moment, which that event may change.
  void evaluate_before(Duration next) {
    for (; next_evaluation_ < next && !result_.reached; next_evaluation_ += setting_.evaluation) {
      result_.accuracy = model_.accuracy(parameters_);
      good_ = result_.accuracy >= setting_.target ? good_ + 1 : 0;
      if (good_ == 2) result_.reached = next_evaluation_;
    }
  }

  // Notes iterations that have ended, and decides when it is time to.
  void look(SyncSimulator& simulator) {
    bool ended = false;
    for (size_t i = 0; i < under_way_.size(); ++i) {
      UnderWay& own = under_way_[i];
      if (own.heard || simulator.now() < own.since + own.time.compute + own.time.transfer) continue;
      samples_[i].add(own.time, own.share);
      if (watch_.add(own.share, own.loss)) ++result_.rises;
      if (estimate_) estimate_->add_loss(own.share, own.loss);
      own.heard = ended = true;
    }
    if (is_due(simulator.now(), ended)) decide(simulator);
  }

  // Whether to decide now; `ended`: an iteration has ended at this moment.
  bool is_due(Duration now, bool ended) {
    if (setting_.policy == SyncPolicy::Fixed) return false;
    if (setting_.policy == SyncPolicy::Balanced) {
      const auto unheard = [](const TimeSamples& of) { return of.all().empty(); };
      return ended && std::none_of(samples_.begin(), samples_.end(), unheard);
    }
    if (now < next_decision_) return false;
    next_decision_ = now + kDecisionEvery;
    return true;
  }

  // The samples of each replica; for one that has not been heard of, a guess from what it has
  // spent.
  std::vector<std::vector<IterationTime>> heard(Duration now) const {
    std::vector<std::vector<IterationTime>> all;
    for (size_t i = 0; i < samples_.size(); ++i) {
      all.push_back(samples_[i].all());
      if (!all.back().empty()) continue;
      all.back().push_back(guess_from(now - under_way_[i].since, setting_.scenario.base.compute));
    }
    return all;
  }

  void decide(SyncSimulator& simulator) {
    const auto wanted = chosen(simulator.now(), simulator.rule().mode());
    if (!wanted.ok() || wanted.value() == simulator.rule().mode()) return;
    if (simulator.change(wanted.value()).ok()) ++result_.changes;
  }

  // The mode with which the trial begins. Nothing is known then: who chooses is told of replicas
  // that are all equally fast.
  Result<SyncMode> first_mode() const {
    const std::vector<IterationTime> equal(samples_.size(), setting_.scenario.base);
    SyncMode mode;
    switch (setting_.policy) {
      case SyncPolicy::Fixed:
        return form(setting_.mode, mean_times(setting_.scenario, setting_.seed), setting_.batch);
      case SyncPolicy::Balanced:
        mode.kind = SyncKind::Rebalanced;
        return form(mode, equal, setting_.batch);
      case SyncPolicy::Switched:
        return mode_by_switch({setting_.synchronous_share, 0, equal});
      case SyncPolicy::LookAhead:
      case SyncPolicy::Published:
      case SyncPolicy::Learned:
        break;
    }
    if (setting_.grace) mode = chooser_->first(equal, setting_.kappa);
    return mode;
  }

  // The mode from now on, by the policy, which is not Fixed.
  Result<SyncMode> chosen(Duration now, const SyncMode& current) {
    const std::vector<std::vector<IterationTime>> samples = heard(now);
    if (setting_.policy == SyncPolicy::Balanced) return mode_by_speed(samples, setting_.batch);
    if (setting_.policy == SyncPolicy::Switched) {
      const double done = share_of(full_mass_, {setting_.batch}) / setting_.planned;
      return mode_by_switch({setting_.synchronous_share, done, means_of(samples)});
    }
    const double seconds = to_milliseconds(now - decided_at_) / 1000;
    const double rate = share_of(applied_mass_ - decided_mass_, {setting_.batch}) / seconds;
    if (rate > 0) chooser_->achieved(rate);
    decided_at_ = now;
    decided_mass_ = applied_mass_;
    ChooseInput input;
    input.samples = samples;
    input.apply = setting_.scenario.apply;
    input.micros = setting_.batch;
    input.kappa = kappa() * watch_.caution();
    input.current = current;
    input.seed = setting_.seed;
    // A micro-batch is one sample here, and so is the unit of the noise.
    input.noise = noise_.samples();
    input.grace = setting_.grace;
    const auto choice = chooser_->choose(input);
    if (!choice.ok()) return choice.error();
    return choice.value().mode;
  }

  const TrialSetting& setting_;
  TrialModel model_;
  std::vector<float> parameters_;
  TrialStep step_;                // of the offers
  std::vector<TrialStep> local_;  // of each replica's local steps
  std::vector<TimeSamples> samples_;
  std::vector<UnderWay> under_way_;
  std::unique_ptr<TrialMethod> method_;
  SyncSimulator* simulator_ = nullptr;  // while run() is active
  NoiseScale noise_;
  std::unique_ptr<Chooser> chooser_;  // of LookAhead, Published, Learned
  LossWatch watch_;
  std::optional<KappaEstimate> estimate_;  // none: kappa stays as it is
  AppliedMass ages_{Version{}};            // with estimate_: of all updates
  Duration next_evaluation_{}, next_decision_ = kDecisionEvery;
  Duration decided_at_{};  // the last decision, and what was applied until then
  Mass decided_mass_;
  int good_ = 0;
  Mass applied_mass_, full_mass_;  // full_mass_: in updates that have the full mass
  TrialResult result_;
};

}  // namespace

std::vector<IterationTime> mean_times(const SyncScenario& scenario, uint64_t seed) {
  constexpr int64_t kDraws = 256;
  // A phase that lasts for ever is nearly all of the time.
  const PhaseRound round = round_of(scenario);
  const IterationTimes times = times_of(scenario, seed);
  std::vector<IterationTime> means;
  for (int32_t replica = 0; replica < scenario.replicas; ++replica) {
    IterationTime sum;
    for (int64_t i = 0; i < kDraws; ++i) {
      const Duration moment = round.repeats ? round.length * i / kDraws : round.length;
      const IterationTime one = times(replica, i, moment);
      sum.compute += one.compute;
      sum.transfer += one.transfer;
    }
    means.push_back({sum.compute / kDraws, sum.transfer / kDraws});
  }
  return means;
}

Result<TrialResult> run_trial(const TrialSetting& setting) {
  if (setting.batch < 1 || !(rate_of(setting) > 0)) {
    return invalid(cat("a trial needs a batch and a rate above 0, found ", setting.batch, " and ",
                       rate_of(setting)));
  }
  if (local_steps_of(setting) > kMostTrialSteps) {
    return invalid(cat("sync mode ", to_text(setting.mode), ": expected at most ", kMostTrialSteps,
                       " local steps in a trial"));
  }
  const int32_t replicas = setting.scenario.replicas;
  if (replicas < 1 || replicas > kMostTrialReplicas) {
    return invalid(cat("a trial needs 1 to ", kMostTrialReplicas, " replicas, found ", replicas));
  }
  if (const Status fault = check_baseline(setting); !fault.ok()) return fault.error();
  if (setting.policy == SyncPolicy::Learned) {
    if (!setting.chooser) return invalid("a trial of the learned chooser needs one, found none");
    if (setting.chooser->replicas != replicas) {
      return invalid(cat("a trial of ", replicas,
                         " replicas needs a chooser for as many, found one "
                         "for ",
                         setting.chooser->replicas));
    }
  }
  return Trial(setting).run();
}

}  // namespace tenuto
