#include "parameter_server/mode_choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"
#include "ir/update_rule.h"
#include "sync/formed.h"

namespace tenuto::servers {

namespace {

// From the begin of a run: how long a mode that is not formed yet waits for iterations.
constexpr Duration kWaitForTimes = std::chrono::seconds(10);

// The mode with one step for each offer.
SyncMode without_local_steps(SyncMode mode) {
  mode.local_steps = 1;
  mode.outer = {};
  return mode;
}

bool is_synchronous(const SyncMode& mode) { return mode.kind == SyncKind::Synchronous; }

// The part by which the progress grows from one mode to another, by the chooser's scores; none = it
// has none for them.
std::optional<double> gain_of(const SyncChoice& choice, const SyncMode& from, const SyncMode& to) {
  const auto score_of = [&choice](const SyncMode& mode) {
    const auto found = std::find_if(choice.alternatives.begin(), choice.alternatives.end(),
                                    [&](const SyncAlternative& one) { return one.mode == mode; });
    return found == choice.alternatives.end() ? 0 : found->score;
  };
  const double before = score_of(from), after = score_of(to);
  if (!(before > 0 && after > 0)) return std::nullopt;
  return std::max(0.0, after / before - 1);
}

double seconds_of(Duration time) { return to_milliseconds(time) / 1000; }

// In a mode without a ring all replicas keep ranges.
bool keeps(const std::vector<ReplicaId>& ring, ReplicaId replica) {
  return ring.empty() || std::find(ring.begin(), ring.end(), replica) != ring.end();
}

}  // namespace

std::vector<ModeAlternative> best_alternatives(const SyncChoice& choice) {
  std::vector<ModeAlternative> best;
  for (const SyncAlternative& one : choice.alternatives) {
    if (best.size() == kMostAlternatives) break;
    best.push_back({one.mode, one.measure.gradients_per_second, one.measure.mean_age, one.score});
  }
  return best;
}

ModeChoice::ModeChoice(const ModeChoiceSettings& settings, std::unique_ptr<Chooser> chooser)
    : settings_(settings),
      chooser_(std::move(chooser)),
      samples_(static_cast<size_t>(settings.replicas)),
      relays_(settings.replicas),
      watch_(settings.replicas) {
  if (settings.learns_kappa && chooser_ != nullptr) {
    kappa_.emplace(settings.kappa, settings.replicas);
  }
}

Status ModeChoice::add(const MeasuredIteration& iteration) {
  const int32_t replica = iteration.replica.value;
  if (replica < 0 || replica >= settings_.replicas) {
    return invalid(cat("an iteration of replica ", replica, " was measured in a run of ",
                       settings_.replicas, " replicas"));
  }
  const IterationTime& time = iteration.time;
  if (time.compute < Duration{} || time.transfer < Duration{} || !(iteration.share > 0)) {
    return invalid(cat("an iteration of replica ", replica,
                       " was measured: expected times of at least 0 ms and a share above 0, found ",
                       to_milliseconds(time.compute), " ms, ", to_milliseconds(time.transfer),
                       " ms and ", iteration.share));
  }
  samples_[static_cast<size_t>(replica)].add(time, iteration.share);
  relays_.add(iteration.replica, {time, iteration.receive, iteration.processor.pressure});
  // The host hears of the same iterations, and tells of rises.
  if (iteration.loss) (void)watch_.add(iteration.share, *iteration.loss);
  if (iteration.loss && kappa_) kappa_->add_loss(iteration.share, *iteration.loss);
  return ok();
}

// The first report has what was applied before this choice began.
void ModeChoice::add(const CommittedReport& report) {
  if (!kappa_) return;
  const Mass before = applied_.value_or(report.applied);
  applied_ = report.applied;
  if (report.works > 0) age_ = report.age;
  const double gradients = share_of(report.applied - before, {settings_.micros});
  if (age_ && gradients > 0) kappa_->add_applied(gradients, *age_);
}

std::optional<double> ModeChoice::learned_kappa() const {
  return kappa_ ? std::optional(kappa_->kappa()) : std::nullopt;
}

Status ModeChoice::want(const std::optional<SyncMode>& mode) {
  if (mode) {
    const Status fault = check_mode_of_run(*mode, settings_.replicas, settings_.micros);
    if (!fault.ok()) return fault;
  }
  wanted_ = mode;
  held_.reset();
  delayed_.reset();
  missed_ = 0;
  next_ = Duration{};  // now
  return ok();
}

// A replica that has not been heard of is still in its first iteration.
std::vector<std::vector<IterationTime>> ModeChoice::samples(Duration now) const {
  std::vector<std::vector<IterationTime>> all;
  for (const TimeSamples& of : samples_) {
    all.push_back(of.all());
    if (!of.all().empty()) continue;
    all.back().push_back(guess_from(now - begun_.value_or(now), settings_.compute));
  }
  return all;
}

std::vector<RelayLimit> ModeChoice::relay_limits() const {
  std::vector<RelayLimit> limits = relays_.limits();
  for (RelayLimit& limit : limits) {
    if (!settings_.children_send_to_parents) limit.most_children = kMostReplicas;
  }
  return limits;
}

// A mode that is not formed yet is to have the times of all replicas. One that is lost has none.
bool ModeChoice::waits_for_times(Duration now) const {
  if (!wanted_ || is_formed(*wanted_) || now - begun_.value_or(now) >= kWaitForTimes) return false;
  return std::any_of(samples_.begin(), samples_.end(),
                     [](const TimeSamples& of) { return of.all().empty(); });
}

Result<SyncChoice> ModeChoice::choose_wanted(Duration now) {
  std::string against;
  // Formed once: with each second's times the mode would change again and again.
  if (!is_formed(*wanted_)) {
    const std::vector<IterationTime> means = means_of(samples(now));
    auto formed = form(*wanted_, means, settings_.micros, relay_limits());
    if (!formed.ok() && formed.error().code == Code::Infeasible) {
      against = cat(", although this is against it: ", formed.error().message);
      formed = form(*wanted_, means, settings_.micros);
    }
    if (!formed.ok()) return formed.error();
    wanted_ = std::move(formed).value();
  }
  return SyncChoice{*wanted_, cat(to_text(*wanted_), " is wanted", against), {}};
}

Result<SyncChoice> ModeChoice::choose(const SyncMode& current, Duration now) {
  if (wanted_) return choose_wanted(now);
  if (chooser_ == nullptr) return SyncChoice{current, cat(to_text(current), " stays"), {}};
  ChooseInput input;
  input.samples = samples(now);
  input.apply = settings_.apply;
  input.micros = settings_.micros;
  input.kappa = learned_kappa().value_or(settings_.kappa) * watch_.caution();
  // A wish for local steps has been withdrawn.
  input.current = without_local_steps(current);
  input.seed = settings_.seed;
  input.relays = relay_limits();
  auto choice = chooser_->choose(input);
  if (choice.ok() && !choice.value().alternatives.empty()) {
    choice.value().reason += cat("; kappa ", fixed(input.kappa, 2));
  }
  if (choice.ok() && current.local_steps > 1) {
    choice.value().reason += " (local steps end: no chooser knows what they are worth)";
  }
  return choice;
}

void ModeChoice::set_gate(bool is_open) {
  if (is_open == is_open_) return;
  is_open_ = is_open;
  if (!is_open) held_.reset();
  next_ = Duration{};  // now
}

std::optional<AskReport> ModeChoice::take_question() {
  std::optional<AskReport> question = std::move(question_);
  question_.reset();
  return question;
}

bool ModeChoice::is_held_back(const SyncMode& mode) const {
  return settings_.asks && !is_open_ && !wanted_ && !is_synchronous(mode);
}

// Of R ranges a replica keeps two, so it hands over (or gets) 2 / R x `kept_numbers` numbers for
// each parameter. In the transfer of an iteration it has moved at least two: the parameter and its
// gradient. All that leave the ring or enter it do so at the same time.
Duration ModeChoice::handover_time(const SyncMode& from, const SyncMode& to) const {
  if (!(settings_.kept_numbers > 0)) return {};
  const std::vector<ReplicaId> before = ring_of(from), after = ring_of(to);
  Duration longest{};
  for (int32_t i = 0; i < settings_.replicas; ++i) {
    if (keeps(before, {i}) == keeps(after, {i})) continue;
    longest = std::max(longest, samples_[static_cast<size_t>(i)].mean().transfer);
  }
  return Duration(std::llround(static_cast<double>(longest.count()) * settings_.kept_numbers /
                               settings_.replicas));
}

// Takes a change back that does not pay yet. A chooser may speak only of changes, so one that waits
// is taken up again as long as the scores are for it.
void ModeChoice::wait_until_it_pays(SyncChoice& choice, const SyncMode& current) {
  if (choice.mode == current && delayed_ &&
      gain_of(choice, current, delayed_->mode).value_or(0) > kHysteresis - 1) {
    choice.mode = delayed_->mode;
    choice.reason = delayed_->reason;
  }
  delayed_.reset();
  const Duration handover = handover_time(current, choice.mode);
  const std::optional<double> gain = gain_of(choice, current, choice.mode);
  if (choice.mode == current || handover == Duration{} || !gain) {
    missed_ = 0;
    return;
  }
  missed_ += *gain * seconds_of(kDecisionEvery);
  if (missed_ > seconds_of(handover)) {
    missed_ = 0;
    choice.reason +=
        cat(" (its ranges are handed over in about ", fixed(seconds_of(handover), 2), " s)");
    return;
  }
  delayed_ = choice;
  choice.mode = current;
}

Result<std::optional<SyncChoice>> ModeChoice::next(const SyncMode& current, Duration now) {
  if (!begun_) {
    begun_ = now;
    if (!wanted_) next_ = now + kDecisionEvery;
  }
  if (now < next_ || waits_for_times(now)) return std::optional<SyncChoice>();
  next_ = now + kDecisionEvery;
  question_.reset();
  if (chooser_ != nullptr && is_held_back(current)) {
    SyncChoice back;
    back.reason = cat(to_text(back.mode), ": the job may not take more of its host any longer");
    return std::optional(std::move(back));
  }
  if (is_open_ && held_ && !wanted_ && is_synchronous(current)) {
    std::optional<SyncChoice> granted = std::move(held_);
    held_.reset();
    return granted;
  }
  auto choice = choose(current, now);
  if (!choice.ok()) return choice.error();
  if (!wanted_) wait_until_it_pays(choice.value(), current);
  if (choice.value().mode == current) return std::optional<SyncChoice>();
  if (is_held_back(choice.value().mode)) {
    const SyncMode& mode = choice.value().mode;
    question_ = AskReport{mode, gain_of(choice.value(), current, mode).value_or(0)};
    held_ = std::move(choice).value();
    return std::optional<SyncChoice>();
  }
  return std::optional(std::move(choice).value());
}

}  // namespace tenuto::servers
