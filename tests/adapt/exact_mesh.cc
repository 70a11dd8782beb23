#include "adapt/exact_mesh.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One micro-batch on its way: `forwards` and `backwards` ops have begun, the last ends at `end`.
struct Traveller {
  int32_t forwards = 0, backwards = 0;
  Duration end{};
  std::vector<int32_t> own;  // its holders so far
  bool operator<(const Traveller& other) const {
    return std::tie(forwards, backwards, end, own) <
           std::tie(other.forwards, other.backwards, other.end, other.own);
  }
};

// One holder.
struct Place {
  Duration free_at{};
  int32_t whole = 0, late = 0;
};

struct State {
  std::vector<Traveller> micros;
  std::vector<std::vector<Place>> places;  // by stage and holder
  Duration now{};                          // the latest start
};

class Exact {
 public:
  Exact(const Mesh& mesh, Duration known, int64_t most_nodes)
      : mesh_(mesh), best_(known), nodes_left_(most_nodes) {
    set_least();
  }

  ExactStep run() {
    State state;
    state.micros.resize(at(mesh_.micros));
    for (const auto& stage : mesh_.stages) state.places.emplace_back(stage.size());
    visit(state);
    return {best_, nodes_left_ >= 0};
  }

 private:
  // The least time that a micro-batch still needs, whatever its holders, after its forward at a
  // stage has ended, and after its input gradient has ended.
  void set_least() {
    const int32_t depth = mesh_.depth();
    const auto least = [&](int32_t s, Duration Holder::*time) {
      Duration of = Duration::max();
      for (const Holder& it : mesh_.stages[at(s)]) of = std::min(of, it.*time);
      return of;
    };
    after_backward_.resize(at(depth));
    after_forward_.resize(at(depth));
    turn_.resize(at(depth));
    for (int32_t s = 0; s < depth; ++s) {
      least_.push_back(
          {least(s, &Holder::forward), least(s, &Holder::backward), least(s, &Holder::weight)});
      after_backward_[at(s)] = least_[at(s)].weight;
      if (s == 0) continue;
      Duration back = Duration::max();
      for (const Way& way : mesh_.ways[at(s) - 1]) back = std::min(back, way.up);
      after_backward_[at(s)] = std::max(
          after_backward_[at(s)], back + least_[at(s) - 1].backward + after_backward_[at(s) - 1]);
    }
    for (int32_t s = depth; s-- > 0;) {
      after_forward_[at(s)] = least_[at(s)].backward + after_backward_[at(s)];
      if (s + 1 == depth) continue;
      Duration there = Duration::max(), back = Duration::max();
      for (const Way& way : mesh_.ways[at(s)]) {
        there = std::min(there, way.down);
        back = std::min(back, way.up);
      }
      // From the end of a forward to the start of the backward, by way of all later stages.
      turn_[at(s)] =
          there + least_[at(s) + 1].forward + turn_[at(s) + 1] + least_[at(s) + 1].backward + back;
      after_forward_[at(s)] += turn_[at(s)];
    }
  }

  // True when the step cannot end before the best known one.
  bool hopeless(const State& state) const {
    const int32_t depth = mesh_.depth();
    std::vector<Duration> work(at(depth));
    for (const Traveller& it : state.micros) {
      if (it.forwards == 0) {
        const Duration head = state.now + least_[0].forward;
        if (head + after_forward_[0] >= best_) return true;
      } else if (it.forwards < depth || it.backwards == 0) {
        if (it.end + after_forward_[at(it.forwards) - 1] >= best_) return true;
      } else if (it.end + after_backward_[at(depth - it.backwards)] >= best_) {
        return true;
      }
      for (int32_t s = it.forwards; s < depth; ++s) work[at(s)] += least_[at(s)].forward;
      for (int32_t s = 0; s < depth - it.backwards; ++s) {
        work[at(s)] += least_[at(s)].backward + least_[at(s)].weight;
      }
    }
    for (int32_t s = 0; s < depth; ++s) {
      Duration memory{};
      for (const Place& place : state.places[at(s)]) {
        work[at(s)] += place.late * least_[at(s)].weight;
        memory += std::max(Duration{}, best_ - Duration(1) - std::max(place.free_at, state.now));
      }
      if (work[at(s)] > memory) return true;
    }
    return false;
  }

  // Micro-batches in the same state are interchangeable, so the key sorts them.
  bool seen_before(const State& state) {
    std::vector<Traveller> micros = state.micros;
    std::sort(micros.begin(), micros.end());
    std::vector<int64_t> words = {state.now.count()};
    for (const Traveller& it : micros) {
      words.insert(words.end(), {it.forwards, it.backwards, it.end.count()});
      words.insert(words.end(), it.own.begin(), it.own.end());
    }
    for (const auto& stage : state.places) {
      for (const Place& it : stage) {
        words.insert(words.end(), {it.free_at.count(), it.whole, it.late});
      }
    }
    std::string key(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
    return !seen_.insert(std::move(key)).second;
  }

  void visit(const State& state) {
    if (nodes_left_ < 0 || --nodes_left_ < 0 || hopeless(state) || seen_before(state)) return;
    bool done = true, fresh = true;
    for (int32_t m = 0; m < mesh_.micros; ++m) {
      const Traveller& it = state.micros[at(m)];
      if (it.backwards == mesh_.depth()) continue;
      done = false;
      if (it.forwards == 0 && !fresh) continue;  // micro-batches not begun are interchangeable
      fresh = fresh && it.forwards > 0;
      if (it.forwards < mesh_.depth()) {
        for (int32_t j = 0; j < mesh_.width(it.forwards); ++j) go_down(state, m, j);
      } else {
        go_up(state, m);
      }
    }
    for (int32_t s = 0; s < mesh_.depth(); ++s) {
      for (int32_t i = 0; i < mesh_.width(s); ++i) {
        const Place& place = state.places[at(s)][at(i)];
        if (place.late == 0) continue;
        done = false;
        if (place.free_at >= state.now) start_weight(state, s, i);
      }
    }
    if (!done) return;
    Duration end{};
    for (const auto& stage : state.places) {
      for (const Place& place : stage) end = std::max(end, place.free_at);
    }
    best_ = std::min(best_, end);
  }

  // Called only if no op so far starts later. Otherwise the search has already tried the same
  // sequences of the holders, with this op before the later one.
  void start_weight(const State& state, int32_t s, int32_t i) {
    State next = state;
    Place& place = next.places[at(s)][at(i)];
    --place.late;
    next.now = place.free_at;
    place.free_at += mesh_.holder(s, i).weight;
    visit(next);
  }

  void go_down(const State& state, int32_t m, int32_t j) {
    const Traveller& it = state.micros[at(m)];
    const int32_t s = it.forwards;
    const Place& place = state.places[at(s)][at(j)];
    const Holder& holder = mesh_.holder(s, j);
    if (!holder.memory.fits(place.whole + 1, place.late)) return;
    Duration start = place.free_at;
    if (s > 0) start = std::max(start, it.end + mesh_.way(s - 1, it.own.back(), j).down);
    if (start < state.now) return;
    State next = state;
    next.now = start;
    Traveller& moved = next.micros[at(m)];
    ++moved.forwards;
    moved.end = start + holder.forward;
    moved.own.push_back(j);
    Place& taken = next.places[at(s)][at(j)];
    taken.free_at = moved.end;
    ++taken.whole;
    visit(next);
  }

  void go_up(const State& state, int32_t m) {
    const Traveller& it = state.micros[at(m)];
    const int32_t s = mesh_.depth() - 1 - it.backwards;
    const int32_t j = it.own[at(s)];
    const Place& place = state.places[at(s)][at(j)];
    Duration start = it.end;
    if (it.backwards > 0) start += mesh_.way(s, j, it.own[at(s) + 1]).up;
    start = std::max(start, place.free_at);
    if (start < state.now) return;
    State next = state;
    next.now = start;
    Traveller& moved = next.micros[at(m)];
    ++moved.backwards;
    moved.end = start + mesh_.holder(s, j).backward;
    Place& taken = next.places[at(s)][at(j)];
    taken.free_at = moved.end;
    --taken.whole;
    ++taken.late;
    visit(next);
  }

  struct Times {
    Duration forward{}, backward{}, weight{};
  };

  const Mesh& mesh_;
  Duration best_;
  int64_t nodes_left_;
  std::vector<Times> least_;
  std::vector<Duration> after_forward_, after_backward_, turn_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

ExactStep exact_step(const Mesh& mesh, Duration known, int64_t most_nodes) {
  return Exact(mesh, known, most_nodes).run();
}

}  // namespace tenuto
