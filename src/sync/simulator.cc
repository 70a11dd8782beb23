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
      released_(static_cast<size_t>(setting_.start.replicas)),
      applied_(setting_.start.version),
      replicas_(released_.size()) {
  if (hooks_.computed) computing_.resize(replicas_.size());
  follow(rule_.begin());
}

// nullptr = there is none.
const SyncSimulator::Event* SyncSimulator::next() const {
  if (in_order_.empty()) return events_.empty() ? nullptr : &events_.top();
  const Event& first = in_order_.front();
  return events_.empty() || Later{}(events_.top(), first) ? &first : &events_.top();
}

std::optional<Duration> SyncSimulator::next_at() const {
  const Event* event = next();
  return event == nullptr ? std::nullopt : std::optional(event->at);
}

// Returns the event's sequence number. Begin and Applied are out of order only with a time of
// applying below 0.
int64_t SyncSimulator::push(Duration at, Kind kind, int64_t number) {
  const Event event{at, sequence_++, number, kind};
  const bool comes_in_order = kind == Kind::Begin || kind == Kind::Applied;
  if (comes_in_order && (in_order_.empty() || at >= in_order_.back().at)) {
    in_order_.push_back(event);
  } else {
    events_.push(event);
  }
  return event.sequence;
}

void SyncSimulator::follow(Decided decided) {
  for (const Dropped& of : decided.dropped) {
    replicas_[static_cast<size_t>(of.offer.replica.value)].dropped += of.offer.mass;
  }
  for (Update& update : decided.updates) {
    free_at_ = std::max(free_at_, now_) + setting_.apply;
    decided_.push_back(std::move(update));
    push(free_at_, Kind::Applied, 0);
  }
  for (const Release& release : decided.released) {
    const int32_t replica = release.offer.replica.value;
    released_[static_cast<size_t>(replica)] = release;
    push(std::max(free_at_, now_), Kind::Begin, replica);
  }
  if (decided.window) {
    push(now_ + decided.window->length, Kind::WindowOver, decided.window->number);
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
    push(now_ + all.compute + all.transfer, Kind::Arrive, offer.replica.value);
    return;
  }
  Computing& own = computing_[static_cast<size_t>(offer.replica.value)];
  own.left = static_cast<double>(all.compute.count());
  own.since = now_;
  own.transfer = all.transfer;
  expect_end(offer.replica);
}

// The event that was expected before stays in the queue; nothing happens in it.
void SyncSimulator::expect_end(ReplicaId replica) {
  Computing& own = computing_[static_cast<size_t>(replica.value)];
  const Duration rest(static_cast<int64_t>(std::ceil(own.left / own.speed)));
  own.event = push(now_ + rest, Kind::Computed, replica.value);
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
  if (own.event >= 0) expect_end(replica);
}

void SyncSimulator::end_computing(const Event& event) {
  Computing& own = computing_[static_cast<size_t>(event.number)];
  if (own.event != event.sequence) return;  // its speed has changed since
  own.event = -1;
  push(now_ + own.transfer, Kind::Arrive, event.number);
  hooks_.computed({static_cast<int32_t>(event.number)});
}

void SyncSimulator::advance_to(Duration moment) {
  const Event* event = next();
  CHECK(moment >= now_ && (event == nullptr || moment <= event->at),
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
  const Event* first = next();
  if (first == nullptr) return false;
  const Event event = *first;
  if (!in_order_.empty() && first == &in_order_.front()) {
    in_order_.pop_front();
  } else {
    events_.pop();
  }
  now_ = event.at;
  switch (event.kind) {
    case Kind::Begin:
      begin(released_[static_cast<size_t>(event.number)]);
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
      const Offer& offer = released_[static_cast<size_t>(event.number)].offer;
      replicas_[static_cast<size_t>(offer.replica.value)].offered += offer.mass;
      const bool refused = hooks_.refuses && hooks_.refuses(offer);
      auto decided = refused ? rule_.refuse(offer) : rule_.offer(offer);
      CHECK(decided.ok(), decided.error().message);
      follow(std::move(decided).value());
      break;
    }
  }
  return true;
}

Status SyncSimulator::change(const SyncMode& mode) {
  auto decided = rule_.change(mode);
  if (!decided.ok()) return decided.error();
  follow(std::move(decided).value());
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
