#include "adapt/layout/exact_blocks.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tenuto {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Bounds are sums in another order than times, so they may exceed them by rounding errors.
constexpr double kRounding = 1e-11;

// What is done and known of one resource: a stage, or a link with half duplex.
struct Lane {
  double free = 0;
  int sent = 0, returned = 0;              // forwards and backwards begun
  std::vector<double> arrived, came_back;  // when the inputs of each are there; known ones only
  double out = 0, in = 0;  // when full-duplex transfers behind this resource end, each direction
};
using State = std::vector<Lane>;

struct Resource {
  double forward = 0, backward = 0, reduction = 0;
  LinkLoad behind;  // a full-duplex link to the next resource
  double trip = 0;  // of a micro-batch, from the start of its forward to the end of its backward
  double rest = 0;  // from the end of the last backward to the end of the step, at least
};

class Search {
 public:
  explicit Search(const LayoutLoads& loads) : micros_(loads.micros) {
    for (size_t n = 0; n < loads.stages.size(); ++n) {
      const StageLoad& stage = loads.stages[n];
      resources_.push_back({stage.forward, stage.backward, stage.reduction, {}, 0, 0});
      if (n == loads.links.size()) break;
      const LinkLoad& link = loads.links[n];
      if (loads.half_duplex) {
        resources_.push_back({link.forward, link.backward, 0, {}, 0, 0});
      } else {
        resources_.back().behind = link;
      }
    }
    double rest = 0, trip = 0;
    for (size_t r = 0; r < resources_.size(); ++r) {
      resources_[r].rest = std::max(rest, resources_[r].reduction);
      rest = resources_[r].rest + resources_[r].backward;
      rest += resources_[r].behind.backward;
    }
    for (size_t r = resources_.size(); r-- > 0;) {
      Resource& own = resources_[r];
      trip += own.forward + own.backward + own.behind.both();
      own.trip = trip;
    }
  }

  double run() {
    State start(resources_.size());
    start[0].arrived.assign(static_cast<size_t>(micros_), 0.0);
    extend(start);
    return best_;
  }

 private:
  double forward_start(const Lane& lane) const {
    const auto next = static_cast<size_t>(lane.sent);
    return next < lane.arrived.size() ? std::max(lane.free, lane.arrived[next]) : kNever;
  }
  double backward_start(const Lane& lane) const {
    const auto next = static_cast<size_t>(lane.returned);
    return next < lane.came_back.size() ? std::max(lane.free, lane.came_back[next]) : kNever;
  }

  // No completion of the state is faster.
  double bound(const State& state) const {
    double least = 0;
    double forward = 0;  // the next forward's start on each resource, at least
    std::vector<double> starts(state.size());
    for (size_t r = 0; r < state.size(); ++r) {
      const double known = forward_start(state[r]);
      forward = known < kNever ? known : std::max(state[r].free, forward);
      starts[r] = forward;
      const int left = micros_ - state[r].sent;
      const Resource& own = resources_[r];
      if (left > 0) {
        least = std::max(least, forward + (left - 1) * own.forward + own.trip + own.rest);
      }
      forward += own.forward + own.behind.forward;
    }
    double backward = starts.back() + resources_.back().forward;
    for (size_t r = state.size(); r-- > 0;) {
      const Resource& own = resources_[r];
      const double known = backward_start(state[r]);
      backward = known < kNever ? known : std::max(state[r].free, backward);
      const int forwards = micros_ - state[r].sent, backwards = micros_ - state[r].returned;
      const double first = forwards > 0 ? std::min(starts[r], backward) : backward;
      if (backwards > 0) {
        least = std::max({least, backward + backwards * own.backward + own.rest,
                          first + forwards * own.forward + backwards * own.backward + own.rest});
      } else {
        least = std::max(least, state[r].free + own.rest);
      }
      backward += own.backward + (r > 0 ? resources_[r - 1].behind.backward : 0);
    }
    return least;
  }

  State after(const State& before, size_t r, bool backward) const {
    State state = before;
    Lane& lane = state[r];
    const Resource& own = resources_[r];
    if (backward) {
      lane.free = backward_start(lane) + own.backward;
      ++lane.returned;
      if (r == 0) return state;
      Lane& target = state[r - 1];
      target.in = std::max(target.in, lane.free) + resources_[r - 1].behind.backward;
      target.came_back.push_back(target.in);
      return state;
    }
    lane.free = forward_start(lane) + own.forward;
    ++lane.sent;
    if (r + 1 == state.size()) {
      lane.came_back.push_back(lane.free);
      return state;
    }
    lane.out = std::max(lane.out, lane.free) + own.behind.forward;
    state[r + 1].arrived.push_back(lane.out);
    return state;
  }

  void extend(const State& state) {
    if (bound(state) >= best_ * (1 - kRounding)) return;
    size_t place = state.size();
    double first_end = kNever;
    for (size_t r = 0; r < state.size(); ++r) {
      const double end = std::min(forward_start(state[r]) + resources_[r].forward,
                                  backward_start(state[r]) + resources_[r].backward);
      if (end < first_end) {
        first_end = end;
        place = r;
      }
    }
    if (place == state.size()) {
      double latest = 0;
      for (size_t r = 0; r < state.size(); ++r) {
        latest = std::max(latest, state[r].free + resources_[r].reduction);
      }
      best_ = std::min(best_, latest);
      return;
    }
    const double forward = forward_start(state[place]), backward = backward_start(state[place]);
    // An op that takes no time ends when it starts; it is tried as well.
    const auto is_tried = [&](double start, double time) {
      return start < first_end || start + time <= first_end;
    };
    const bool tries_forward = is_tried(forward, resources_[place].forward);
    const bool tries_backward = is_tried(backward, resources_[place].backward);
    if (tries_backward && backward <= forward) extend(after(state, place, true));
    if (tries_forward) extend(after(state, place, false));
    if (tries_backward && backward > forward) extend(after(state, place, true));
  }

  const int micros_;
  std::vector<Resource> resources_;
  double best_ = kNever;
};

}  // namespace

double exact_makespan(const LayoutLoads& loads) { return Search(loads).run(); }

}  // namespace tenuto
