#include "sync/simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tenuto {

Result<SyncSimulator> SyncSimulator::make(SyncSetting setting, SyncHooks hooks) {
  auto rule = UpdateRule::make(setting.start);
  if (!rule.ok()) return rule.error();
  return SyncSimulator(std::move(setting), std::move(hooks), std::move(rule).value());
}

SyncSimulator::SyncSimulator(SyncSetting setting, SyncHooks hooks, UpdateRule rule)
    : setting_(std::move(setting)),
      hooks_(std::move(hooks)),
      rule_(std::move(rule)),
      applied_(setting_.start.version),
      replicas_(static_cast<size_t>(setting_.start.replicas)) {
  if (hooks_.computed) computing_.resize(replicas_.size());
  follow(rule_.begin());
}

// Returns the event's sequence number.
int64_t SyncSimulator::push(Event event) {
  event.sequence = sequence_++;
  events_.push(std::move(event));
  return sequence_ - 1;
}

void SyncSimulator::follow(const Decided& decided) {
  for (const Dropped& of : decided.dropped) {
    replicas_[static_cast<size_t>(of.offer.replica.value)].dropped += of.offer.mass;
  }
  for (const Update& update : decided.updates) {
    free_at_ = std::max(free_at_, now_) + setting_.apply;
    decided_.push_back(update);
    push({free_at_, 0, Kind::Applied, {}, 0});
  }
  for (const Release& release : decided.released) {
    push({std::max(free_at_, now_), 0, Kind::Begin, release, 0});
  }
  if (decided.window) {
    push({now_ + decided.window->length, 0, Kind::WindowOver, {}, decided.window->number});
  }
}

// Local steps compute one after the other and send once.
void SyncSimulator::begin(const Release& release) {
  const Offer& offer = release.offer;
  const double share = share_of(offer.mass, {release.local_steps * setting_.start.micros});
  IterationTime all;
  for (int32_t step = 0; step < release.local_steps; ++step) {
    const IterationTime one =
        setting_.times(offer.replica.value, (offer.iteration + step).value, now_ + all.compute);
    all.compute +=
        share == 1
            ? one.compute
            : Duration(static_cast<int64_t>(static_cast<double>(one.compute.count()) * share));
    all.transfer = one.transfer;
  }
  if (hooks_.begun) hooks_.begun(release, all);
  if (computing_.empty()) {
    push({now_ + all.compute + all.transfer, 0, Kind::Arrive, release, 0});
    return;
  }
  Computing& own = computing_[static_cast<size_t>(offer.replica.value)];
  own.left = static_cast<double>(all.compute.count());
  own.since = now_;
  own.transfer = all.transfer;
  own.release = release;
  expect_end(own);
}

// The event that was expected before stays in the queue; nothing happens in it.
void SyncSimulator::expect_end(Computing& of) {
  const Duration rest(static_cast<int64_t>(std::ceil(of.left / of.speed)));
  of.event = push({now_ + rest, 0, Kind::Computed, of.release, 0});
}

void SyncSimulator::set_speed(ReplicaId replica, double speed) {
  CHECK(!computing_.empty() && speed > 0, "replicas with speeds, and one above 0");
  Computing& own = computing_[static_cast<size_t>(replica.value)];
  if (own.speed == speed) return;
  if (own.event >= 0) {
    const auto passed = static_cast<double>((now_ - own.since).count());
    own.left = std::max(0.0, own.left - passed * own.speed);
    own.since = now_;
  }
  own.speed = speed;
  if (own.event >= 0) expect_end(own);
}

void SyncSimulator::end_computing(const Event& event) {
  const ReplicaId replica = event.release.offer.replica;
  Computing& own = computing_[static_cast<size_t>(replica.value)];
  if (own.event != event.sequence) return;  // its speed has changed since
  own.event = -1;
  push({now_ + own.transfer, 0, Kind::Arrive, event.release, 0});
  hooks_.computed(replica);
}

void SyncSimulator::advance_to(Duration moment) {
  CHECK(moment >= now_ && (events_.empty() || moment <= events_.top().at),
        "a moment between the last event and the next one");
  now_ = moment;
}

void SyncSimulator::count(const Update& update) {
  const Mass mass = mass_of(update);
  // What is applied at the moment in which measuring begins is not of the time that is measured.
  if (measures_ && now_ > first_) {
    measured_mass_ += mass;
    ++measured_updates_;
    for (const Offer& member : update.members) {
      age_sum_ += applied_.age_of(member, mass) * static_cast<double>(member.mass.micros);
    }
  } else if (!measures_) {
    measures_ = true;
    first_ = now_;
  }
  last_ = now_;
  applied_.add(mass);
}

void SyncSimulator::apply_next() {
  CHECK(!decided_.empty(), "an update that was decided");
  const Update update = std::move(decided_.front());
  decided_.pop_front();
  ++applied_updates_;
  count(update);
  if (hooks_.applied) hooks_.applied(update);
}

bool SyncSimulator::step() {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  switch (event.kind) {
    case Kind::Begin:
      begin(event.release);
      break;
    case Kind::Computed:
      end_computing(event);
      break;
    case Kind::Applied:
      apply_next();
      break;
    case Kind::WindowOver:
      follow(rule_.close(event.number));
      break;
    case Kind::Arrive: {
      ++offers_;
      const Offer& offer = event.release.offer;
      replicas_[static_cast<size_t>(offer.replica.value)].offered += offer.mass;
      const bool refused = hooks_.refuses && hooks_.refuses(offer);
      auto decided = refused ? rule_.refuse(offer) : rule_.offer(offer);
      CHECK(decided.ok(), decided.error().message);
      follow(decided.value());
      break;
    }
  }
  return true;
}

Status SyncSimulator::change(const SyncMode& mode) {
  auto decided = rule_.change(mode);
  if (!decided.ok()) return decided.error();
  follow(decided.value());
  return ok();
}

void SyncSimulator::begin_to_measure() {
  measures_ = false;
  measured_mass_ = {};
  measured_updates_ = 0;
  age_sum_ = 0;
  std::fill(replicas_.begin(), replicas_.end(), Counted{});
}

SyncMeasure SyncSimulator::measure() const {
  SyncMeasure measure;
  const auto micros = static_cast<double>(setting_.start.micros);
  const double seconds = to_milliseconds(last_ - first_) / 1000;
  const auto mass = static_cast<double>(measured_mass_.micros);
  if (measured_updates_ > 0 && seconds > 0) {
    measure.gradients_per_second = mass / micros / seconds;
    measure.updates_per_second = static_cast<double>(measured_updates_) / seconds;
  }
  if (measured_mass_ > Mass{}) measure.mean_age = age_sum_ / mass / micros;
  Mass offered, dropped;
  for (const Counted& of : replicas_) {
    offered += of.offered;
    dropped += of.dropped;
    const double share = of.offered == Mass{} ? 0 : share_of(of.dropped, of.offered);
    measure.applied_fraction.push_back(1 - share);
  }
  measure.dropped_fraction = offered == Mass{} ? 0 : share_of(dropped, offered);
  measure.updates = applied_updates_;
  measure.end = last_;
  return measure;
}

Result<SyncMeasure> simulate_sync(const SyncSetting& setting, const SyncLimits& limits) {
  if (limits.offers <= 0 && limits.updates <= 0 && limits.time.count() <= 0) {
    return invalid("a simulation of a sync mode needs a limit: offers, updates or time");
  }
  auto made = SyncSimulator::make(setting);
  if (!made.ok()) return made.error();
  SyncSimulator simulator = std::move(made).value();
  bool warm = limits.warm_up_offers <= 0 && limits.warm_up.count() <= 0;
  while (simulator.step()) {
    if (!warm && simulator.offers() >= limits.warm_up_offers && simulator.now() >= limits.warm_up) {
      simulator.begin_to_measure();
      warm = true;
    }
    if (limits.offers > 0 && simulator.offers() >= limits.offers) break;
    if (limits.updates > 0 && simulator.updates() >= limits.updates) break;
    if (limits.time.count() > 0 && simulator.now() >= limits.time) break;
  }
  return simulator.measure();
}

}  // namespace tenuto
