#include "adapt/dispatch.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

class Simulation {
 public:
  Simulation(const Line& line, const Rule* rule, const std::vector<Sequence>* fixed,
             const Extra& extra)
      : line_(line), rule_(rule), fixed_(fixed), extra_(extra), seats_(line.legs.size()) {
    ran_.sequences.resize(seats_.size());
    seats_[0].activations = line.micros;
  }

  std::optional<Played> run() {
    for (int32_t s = 0; s < line_.stages(); ++s) take(s);
    while (!events_.empty()) {
      now_ = events_.top().moment;
      // Handle all events of this moment before any stage chooses.
      while (!events_.empty() && events_.top().moment == now_) {
        const Event event = events_.top();
        events_.pop();
        happen(event);
      }
      for (int32_t s = 0; s < line_.stages(); ++s) take(s);
    }
    for (const Sequence& sequence : ran_.sequences) {
      if (sequence.size() != 3 * at(line_.micros)) return std::nullopt;
    }
    ran_.makespan = now_;
    return std::move(ran_);
  }

 private:
  enum What { OpEnds, ActivationComes, GradientComes };
  struct Event {
    Duration moment{};
    What what = OpEnds;
    int32_t stage = 0, micro = 0;
    bool operator<(const Event& other) const {  // the queue's top is the largest
      return std::tie(moment, what, stage, micro) >
             std::tie(other.moment, other.what, other.stage, other.micro);
    }
  };
  struct Seat {
    bool busy = false;
    OpKind kind{};  // of the op that runs, or ran last
    int32_t begun[3] = {0, 0, 0}, ended[3] = {0, 0, 0};
    // Count of micro-batches whose messages are here, in order; messages that came early wait in
    // the vectors.
    int32_t activations = 0, gradients = 0;
    std::vector<int32_t> early_activations, early_gradients;
    Duration down_free_at{}, up_free_at{};
  };

  static int32_t of(const int32_t (&counts)[3], OpKind kind) {
    return counts[static_cast<size_t>(kind)];
  }

  void happen(const Event& event) {
    Seat& seat = seats_[at(event.stage)];
    switch (event.what) {
      case OpEnds:
        return end(event.stage);
      case ActivationComes:
        return come(seat.activations, seat.early_activations, event.micro);
      case GradientComes:
        return come(seat.gradients, seat.early_gradients, event.micro);
    }
  }

  // Ops take their micro-batches in order, so a message that overtook another waits for it.
  static void come(int32_t& here, std::vector<int32_t>& early, int32_t micro) {
    early.push_back(micro);
    for (auto next = early.begin(); next != early.end();) {
      next = std::find(early.begin(), early.end(), here);
      if (next == early.end()) return;
      early.erase(next);
      ++here;
      next = early.begin();
    }
  }

  void end(int32_t stage) {
    Seat& seat = seats_[at(stage)];
    const Leg& leg = line_.legs[at(stage)];
    seat.busy = false;
    const int32_t micro = seat.ended[static_cast<size_t>(seat.kind)]++;
    const auto later = [&](const std::vector<Duration>& extra) {
      return extra.empty() ? Duration{} : extra[at(stage) * at(line_.micros) + at(micro)];
    };
    if (seat.kind == OpKind::Forward) {
      if (stage + 1 == line_.stages()) {
        come(seat.gradients, seat.early_gradients, micro);
        return;
      }
      seat.down_free_at = std::max(now_, seat.down_free_at) + leg.down_busy;
      send({seat.down_free_at + leg.down + later(extra_.down), ActivationComes, stage + 1, micro});
    } else if (seat.kind == OpKind::BackwardInput && stage > 0) {
      seat.up_free_at = std::max(now_, seat.up_free_at) + leg.up_busy;
      send({seat.up_free_at + leg.up + later(extra_.up), GradientComes, stage - 1, micro});
    }
  }

  // A message that takes no time arrives before any stage chooses.
  void send(const Event& event) {
    if (event.moment > now_) {
      events_.push(event);
    } else {
      happen(event);
    }
  }

  void take(int32_t stage) {
    Seat& seat = seats_[at(stage)];
    if (seat.busy) return;
    const std::optional<OpKind> kind = fixed_ != nullptr ? listed(stage) : ruled(stage);
    if (!kind) return;
    const Leg& leg = line_.legs[at(stage)];
    seat.busy = true;
    seat.kind = *kind;
    ++seat.begun[static_cast<size_t>(*kind)];
    ran_.sequences[at(stage)].push_back(*kind);
    const Duration time = *kind == OpKind::Forward         ? leg.forward
                          : *kind == OpKind::BackwardInput ? leg.backward
                                                           : leg.weight;
    events_.push({now_ + time, OpEnds, stage, 0});
  }

  // Whether the inputs of the stage's next op of a kind are here.
  bool is_here(const Seat& seat, OpKind kind) const {
    const int32_t next = of(seat.begun, kind);
    if (next == line_.micros) return false;
    if (kind == OpKind::Forward) return next < seat.activations;
    if (kind == OpKind::BackwardInput) return next < seat.gradients;
    return next < of(seat.ended, OpKind::BackwardInput);
  }

  std::optional<OpKind> listed(int32_t stage) const {
    const Sequence& sequence = (*fixed_)[at(stage)];
    const size_t place = ran_.sequences[at(stage)].size();
    if (place == sequence.size() || !is_here(seats_[at(stage)], sequence[place])) return {};
    return sequence[place];
  }

  std::optional<OpKind> ruled(int32_t stage) const {
    const Seat& seat = seats_[at(stage)];
    const int32_t forwards = of(seat.begun, OpKind::Forward);
    const int32_t whole = forwards - of(seat.ended, OpKind::BackwardInput);
    const int32_t late =
        of(seat.ended, OpKind::BackwardInput) - of(seat.ended, OpKind::BackwardWeight);
    const MemoryLimit& memory = line_.legs[at(stage)].memory;
    bool fits = memory.most == 0 || memory.whole * (whole + 1) + memory.late * late <= memory.most;
    if (!rule_->most.empty() && whole + late >= rule_->most[at(stage)]) fits = false;
    const bool forward = fits && is_here(seat, OpKind::Forward);
    const bool warm_up = of(seat.begun, OpKind::BackwardInput) == 0;
    if (warm_up && fits && forwards < std::min(line_.micros, rule_->quotas[at(stage)])) {
      return forward ? std::optional(OpKind::Forward) : std::nullopt;
    }
    if (is_here(seat, OpKind::BackwardInput)) return OpKind::BackwardInput;
    if (forward) return OpKind::Forward;
    if (is_here(seat, OpKind::BackwardWeight)) return OpKind::BackwardWeight;
    return {};
  }

  const Line& line_;
  const Rule* rule_;
  const std::vector<Sequence>* fixed_;
  const Extra& extra_;
  std::vector<Seat> seats_;
  std::priority_queue<Event> events_;
  Duration now_{};
  Played ran_;
};

// Nearly normal, and the same on every machine: the sum of twelve uniform draws has variance 1.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

}  // namespace

Extra normal_delays(const Line& line, Random& random, Duration mean, Duration deviation) {
  Extra extra;
  for (auto* side : {&extra.down, &extra.up}) {
    for (size_t i = line.legs.size() * at(line.micros); i > 0; --i) {
      const double delay = static_cast<double>(mean.count()) +
                           static_cast<double>(deviation.count()) * normal(random);
      side->push_back(std::max(Duration{}, Duration(static_cast<int64_t>(delay))));
    }
  }
  return extra;
}

std::optional<Played> dispatch(const Line& line, const Rule& rule, const Extra& extra) {
  return Simulation(line, &rule, nullptr, extra).run();
}

std::optional<Duration> follow(const Line& line, const std::vector<Sequence>& sequences,
                               const Extra& extra) {
  const std::optional<Played> ran = Simulation(line, nullptr, &sequences, extra).run();
  return ran ? std::optional(ran->makespan) : std::nullopt;
}

}  // namespace tenuto
