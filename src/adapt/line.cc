#include "adapt/line.h"

#include <algorithm>

#include "ir/dispatch.h"

namespace tenuto {

namespace {

constexpr Duration kNever = Duration::max();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// A stage while a policy is played.
struct Seat {
  int32_t forwards = 0, backwards = 0, weights = 0;  // begun; a free stage has ended them too
  Duration free_at{};
  Duration left{};  // work that it has not begun
  Duration down_free_at{}, up_free_at{};
  int32_t warm_up = 0;  // forwards before the first backward
  HeldLimit limit;
  // When the inputs of each micro-batch arrive; never behind the last micro-batch.
  Duration* activations = nullptr;
  Duration* gradients = nullptr;

  Duration next_activation() const { return activations[forwards]; }
  Duration next_gradient() const { return gradients[backwards]; }
  HeldMicros held() const { return {forwards - backwards, backwards - weights}; }
};

class Player {
 public:
  Player(const Line& line, const Policy& policy, Duration most)
      : line_(line),
        policy_(policy),
        most_(most),
        window_(window_of(line)),
        seats_(line.legs.size()),
        look_at_(line.legs.size(), kNever) {
    const size_t row = at(line.micros) + 1;
    arrivals_.assign(2 * seats_.size() * row, kNever);
    std::fill_n(arrivals_.begin(), at(line.micros), Duration{});
    look_at_[0] = {};
    for (size_t s = 0; s < seats_.size(); ++s) {
      const Leg& leg = line.legs[s];
      Seat& seat = seats_[s];
      seat.activations = arrivals_.data() + 2 * s * row;
      seat.gradients = seat.activations + row;
      seat.left = line.micros * (leg.forward + leg.backward + leg.weight);
      if (!policy.most.empty()) seat.limit.micros = policy.most[s];
      seat.limit.memory = leg.memory;
      seat.warm_up = std::min(policy.warm_up[s], line.micros);
      // A strict warm-up is cut to the forwards that fit. The plan cuts a worker's warm-up to the
      // forwards before its first backward, so the worker runs the same ops.
      if (policy.strict) {
        seat.warm_up =
            std::min({seat.warm_up, seat.limit.micros, leg.memory.most_whole(line.micros)});
      }
    }
    result_.sequences.resize(seats_.size());
    for (Sequence& sequence : result_.sequences) sequence.reserve(3 * at(line.micros));
  }

  // An op that a stage begins affects another stage one window later at the earliest. So within a
  // window each stage chooses alone, and the events of all stages need not be merged in time order.
  std::optional<Played> run() {
    while (begun_ < line_.ops()) {
      const Duration from = *std::min_element(look_at_.begin(), look_at_.end());
      if (from == kNever) return std::nullopt;
      for (int32_t stage = 0; stage < line_.stages(); ++stage) {
        while (look_at_[at(stage)] < from + window_) {
          const std::optional<OpKind> kind = choose(stage);
          if (!kind) continue;
          if (look_at_[at(stage)] + seats_[at(stage)].left > most_) return std::nullopt;
          begin(stage, *kind);
          ++begun_;
        }
      }
    }
    for (const Seat& seat : seats_) result_.makespan = std::max(result_.makespan, seat.free_at);
    return std::move(result_);
  }
  // Ops that were begun.
  int64_t begun() const { return begun_; }

 private:
  // The shortest time from the start of an op to the arrival of what it sends.
  static Duration window_of(const Line& line) {
    Duration window = kNever;
    for (size_t s = 0; s < line.legs.size(); ++s) {
      const Leg& leg = line.legs[s];
      if (s + 1 < line.legs.size())
        window = std::min(window, leg.forward + leg.down_busy + leg.down);
      if (s > 0) window = std::min(window, leg.backward + leg.up_busy + leg.up);
    }
    return std::clamp(window, Duration(1), Duration::max() / 2);
  }
  // The op that a free stage runs now; if there is none, sets when it looks again.
  std::optional<OpKind> choose(int32_t stage) {
    const Seat& seat = seats_[at(stage)];
    const Leg& leg = line_.legs[at(stage)];
    Duration& look_at = look_at_[at(stage)];
    const Duration now = look_at;
    const bool warms_up = seat.forwards < seat.warm_up;
    const bool prefers_forward = warms_up && !policy_.strict && seat.limit.fits(seat.held());
    const bool weighs = seat.weights < seat.backwards;
    const auto soon = [&](Duration arrival, Duration op) {
      return arrival > now && arrival != kNever && arrival - now <= op * policy_.look_ahead / 2;
    };
    Duration gradient = kNever, activation = kNever, until = kNever;
    if (prefers_forward && seat.next_activation() <= now) return OpKind::Forward;
    const int32_t choice = first_ready(
        warms_up && policy_.strict, seat,
        [&] {
          gradient = seat.next_gradient();
          return gradient <= now ? number(OpKind::BackwardInput) : kNoOp;
        },
        [&] {
          activation = seat.next_activation();
          if (activation > now) return kNoOp;
          if (soon(gradient, leg.forward)) return until = gradient, kWait;
          const bool full = seat.forwards - seat.backwards >= policy_.warm_up[at(stage)];
          if (policy_.weights_before_forwards && weighs && full) return kNoOp;
          return number(OpKind::Forward);
        },
        [&] {
          until = std::min(gradient, activation);
          const bool waits = !weighs || prefers_forward || soon(until, leg.weight);
          return waits ? kWait : number(OpKind::BackwardWeight);
        });
    if (choice >= 0) return static_cast<OpKind>(choice);
    look_at = until;
    return std::nullopt;
  }
  static int32_t number(OpKind kind) { return static_cast<int32_t>(kind); }

  void begin(int32_t stage, OpKind kind) {
    Seat& seat = seats_[at(stage)];
    const Leg& leg = line_.legs[at(stage)];
    const Duration now = look_at_[at(stage)];
    result_.sequences[at(stage)].push_back(kind);
    if (kind == OpKind::Forward) {
      seat.free_at = now + leg.forward;
      const int32_t micro = seat.forwards++;
      if (stage + 1 == line_.stages()) {
        seat.gradients[micro] = seat.free_at;
      } else {
        seat.down_free_at = std::max(seat.free_at, seat.down_free_at) + leg.down_busy;
        arrive(stage + 1, seats_[at(stage + 1)].activations[micro], seat.down_free_at + leg.down);
      }
    } else if (kind == OpKind::BackwardInput) {
      seat.free_at = now + leg.backward;
      const int32_t micro = seat.backwards++;
      if (stage > 0) {
        seat.up_free_at = std::max(seat.free_at, seat.up_free_at) + leg.up_busy;
        arrive(stage - 1, seats_[at(stage - 1)].gradients[micro], seat.up_free_at + leg.up);
      }
    } else {
      seat.free_at = now + leg.weight;
      ++seat.weights;
    }
    seat.left -= seat.free_at - now;
    look_at_[at(stage)] = seat.free_at;
  }

  void arrive(int32_t stage, Duration& arrival, Duration moment) {
    arrival = moment;
    const Duration look = std::max(moment, seats_[at(stage)].free_at);
    look_at_[at(stage)] = std::min(look_at_[at(stage)], look);
  }

  const Line& line_;
  const Policy& policy_;
  const Duration most_;
  const Duration window_;
  std::vector<Seat> seats_;
  std::vector<Duration> look_at_;  // when each stage has to look again
  int64_t begun_ = 0;
  std::vector<Duration> arrivals_;  // the rows that the seats point to
  Played result_;
};

}  // namespace

std::optional<Played> play(const Line& line, const Policy& policy, Duration most, int64_t* begun) {
  Player player(line, policy, most);
  auto played = player.run();
  if (begun != nullptr) *begun += player.begun();
  return played;
}

bool fits_memory(const Leg& leg, const Sequence& sequence) {
  const MemoryLimit& memory = leg.memory;
  if (memory.most == 0) return true;
  int64_t held = 0;
  for (const OpKind kind : sequence) {
    if ((held += memory.change(kind)) > memory.most) return false;
  }
  return true;
}

Replay::Replay(const Line& line) : line_(line), stations_(line.legs.size()) {
  const size_t all = line.legs.size() * static_cast<size_t>(line.micros);
  activation_at_.resize(all);
  gradient_at_.resize(all);
  queue_.reserve(line.legs.size());
}

std::optional<Duration> Replay::run(const std::vector<Sequence>& sequences) {
  std::fill(activation_at_.begin() + line_.micros, activation_at_.end(), kNever);
  std::fill(gradient_at_.begin(), gradient_at_.end(), kNever);
  std::fill(stations_.begin(), stations_.end(), Station{});
  for (int32_t stage = line_.stages(); stage-- > 0;) wake(stage);
  while (!queue_.empty()) {
    const int32_t stage = queue_.back();
    queue_.pop_back();
    go(stage, sequences[static_cast<size_t>(stage)]);
  }
  Duration makespan{};
  for (const Station& station : stations_) {
    if (station.next < 3 * line_.micros) return std::nullopt;
    makespan = std::max(makespan, station.free_at);
  }
  return makespan;
}

void Replay::wake(int32_t stage) {
  Station& station = stations_[static_cast<size_t>(stage)];
  if (station.queued) return;
  station.queued = true;
  queue_.push_back(stage);
}

// Runs a stage as far as the arrivals of its messages are known.
void Replay::go(int32_t stage, const Sequence& sequence) {
  Station& station = stations_[static_cast<size_t>(stage)];
  const Leg& leg = line_.legs[static_cast<size_t>(stage)];
  station.queued = false;
  bool down = false, up = false;
  for (; station.next < 3 * line_.micros; ++station.next) {
    const OpKind kind = sequence[static_cast<size_t>(station.next)];
    Duration start = station.free_at;
    if (kind == OpKind::Forward) {
      const size_t own = at(stage, station.forward);
      if (activation_at_[own] == kNever) break;
      start = std::max(start, activation_at_[own]);
      station.free_at = start + leg.forward;
      if (stage + 1 == line_.stages()) {
        gradient_at_[own] = station.free_at;
      } else {
        station.down_free_at = std::max(station.free_at, station.down_free_at) + leg.down_busy;
        activation_at_[at(stage + 1, station.forward)] = station.down_free_at + leg.down;
        down = true;
      }
      ++station.forward;
    } else if (kind == OpKind::BackwardInput) {
      const size_t own = at(stage, station.backward);
      if (gradient_at_[own] == kNever) break;
      start = std::max(start, gradient_at_[own]);
      station.free_at = start + leg.backward;
      if (stage > 0) {
        station.up_free_at = std::max(station.free_at, station.up_free_at) + leg.up_busy;
        gradient_at_[at(stage - 1, station.backward)] = station.up_free_at + leg.up;
        up = true;
      }
      ++station.backward;
    } else {
      station.free_at = start + leg.weight;
    }
  }
  if (up) wake(stage - 1);
  if (down) wake(stage + 1);
}

}  // namespace tenuto
