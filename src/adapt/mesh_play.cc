#include "adapt/mesh_play.h"

#include <algorithm>

namespace tenuto {

namespace {

constexpr Duration kNever = Duration::max();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// What a begun step sends reaches another holder no sooner.
Duration window_of(const Mesh& mesh) {
  Duration window = kNever;
  for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      for (int32_t j = 0; j < mesh.width(s + 1); ++j) {
        const Way& way = mesh.way(s, i, j);
        window = std::min(window, mesh.holder(s, i).forward + way.there());
        window = std::min(window, mesh.holder(s + 1, j).backward + way.back());
      }
    }
  }
  return std::clamp(window, Duration(1), kNever / 2);
}

// The lowest of those that are here, as a place; -1 = none. Otherwise the next arrival.
int32_t lowest_here(const std::vector<int32_t>& micros, const Duration* arrival, Duration now,
                    Duration& next) {
  int32_t best = -1;
  for (size_t i = 0; i < micros.size(); ++i) {
    const Duration moment = arrival[micros[i]];
    if (moment > now) {
      next = std::min(next, moment);
    } else if (best < 0 || micros[i] < micros[at(best)]) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

void drop(std::vector<int32_t>& micros, int32_t micro) {
  *std::find(micros.begin(), micros.end(), micro) = micros.back();
  micros.pop_back();
}

}  // namespace

Orders orders_of(const TaskLists& lists) {
  Orders orders;
  for (const auto& stage : lists) {
    auto& of = orders.emplace_back();
    for (const auto& list : stage) {
      Tasks& tasks = of.emplace_back();
      for (const Task& task : list) {
        auto& order = task.kind == OpKind::Forward         ? tasks.forwards
                      : task.kind == OpKind::BackwardInput ? tasks.backwards
                                                           : tasks.weights;
        order.push_back(task.micro);
      }
    }
  }
  return orders;
}

Orders global_orders(const Mesh& mesh, const Routing& routing) {
  Orders orders;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    auto& of = orders.emplace_back(at(mesh.width(s)));
    for (int32_t m = 0; m < mesh.micros; ++m) {
      of[at(routing[at(s)][at(m)])].forwards.push_back(m);
    }
    for (Tasks& tasks : of) tasks.backwards = tasks.weights = tasks.forwards;
  }
  return orders;
}

MeshPlayer::MeshPlayer(const Mesh& mesh) : mesh_(mesh), window_(window_of(mesh)) {
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    first_.push_back(static_cast<int32_t>(seats_.size()));
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      Seat& seat = seats_.emplace_back();
      seat.own = &mesh.holder(s, i);
      seat.stage = s;
      seat.index = i;
    }
  }
  const size_t cells = mesh.stages.size() * at(mesh.micros);
  activation_at_.resize(cells);
  gradient_at_.resize(cells);
  went_.resize(cells);
  for (const auto& ways : mesh.ways) {
    down_free_at_.emplace_back(ways.size());
    up_free_at_.emplace_back(ways.size());
  }
}

void MeshPlayer::set_routing(const Routing& routing) {
  routing_ = &routing;
  for (Seat& seat : seats_) seat.free_at = {};
  for (auto& links : down_free_at_) std::fill(links.begin(), links.end(), Duration{});
  for (auto& links : up_free_at_) std::fill(links.begin(), links.end(), Duration{});
}

void MeshPlayer::set_orders(const Orders& orders) {
  for (Seat& seat : seats_) seat.tasks = &orders[at(seat.stage)][at(seat.index)];
}

std::optional<Duration> MeshPlayer::time(const Routing& routing, const Orders& orders,
                                         Duration most) {
  set_routing(routing);
  set_orders(orders);
  return time_of(Mode::InOrder, most);
}

std::optional<Duration> MeshPlayer::time(const Routing& routing, const TaskLists& lists,
                                         Duration most) {
  set_routing(routing);
  for (Seat& seat : seats_) seat.list = &lists[at(seat.stage)][at(seat.index)];
  return time_of(Mode::Listed, most);
}

std::optional<Duration> MeshPlayer::time_of(Mode mode, Duration most) {
  if (mesh_.pace != Pace::Barrier) return period(mode);
  if (!run(mode, most)) return std::nullopt;
  Duration end{};
  for (const Seat& seat : seats_) end = std::max(end, seat.free_at + seat.own->update);
  return end;
}

TaskLists MeshPlayer::as_they_come(const Routing& routing, const Patience& patience) {
  const Orders global = global_orders(mesh_, routing);
  set_routing(routing);
  set_orders(global);
  patience_ = patience;
  auto lists = record(Mode::AsTheyCome);
  CHECK(lists.has_value(), "the last place is kept for the first micro-batch, and still it stands");
  return std::move(*lists);
}

std::optional<TaskLists> MeshPlayer::lists(const Routing& routing, const Orders& orders) {
  set_routing(routing);
  set_orders(orders);
  return record(Mode::InOrder);
}

std::optional<TaskLists> MeshPlayer::record(Mode mode) {
  std::vector<std::vector<Task>> begun(seats_.size());
  begun_ = &begun;
  const bool ended = run(mode, kNever);
  begun_ = nullptr;
  if (!ended) return std::nullopt;
  TaskLists lists;
  for (const auto& stage : mesh_.stages) lists.emplace_back(stage.size());
  for (size_t i = 0; i < seats_.size(); ++i) {
    lists[at(seats_[i].stage)][at(seats_[i].index)] = std::move(begun[i]);
  }
  return lists;
}

// Steps one behind the other. When each holder ends a step later than the one before by the same
// time, all further steps repeat it.
std::optional<Duration> MeshPlayer::period(Mode mode) {
  std::vector<Duration> ends, before(seats_.size());
  for (int32_t step = 0; step < kStaggeredSteps; ++step) {
    if (!run(mode, kNever)) return std::nullopt;
    for (int32_t s = 0; s < mesh_.depth(); ++s) {
      Duration all{};
      for (int32_t i = 0; i < mesh_.width(s); ++i) all = std::max(all, seat_of(s, i).free_at);
      for (int32_t i = 0; i < mesh_.width(s); ++i) {
        Seat& seat = seat_of(s, i);
        if (mesh_.pace == Pace::Joint) seat.free_at = all;
        seat.free_at += seat.own->update;
      }
    }
    Duration end{};
    bool repeats = step > 0;
    Duration gain{-1};
    for (size_t i = 0; i < seats_.size(); ++i) {
      const Duration later = seats_[i].free_at - before[i];
      before[i] = seats_[i].free_at;
      end = std::max(end, seats_[i].free_at);
      if (seats_[i].free_at == Duration{} && mesh_.pace == Pace::Apart) continue;  // without work
      repeats = repeats && (gain.count() < 0 || later == gain);
      gain = later;
    }
    if (repeats) return gain;
    ends.push_back(end);
  }
  constexpr int32_t from = (kStaggeredSteps - 1) / 2;
  return (ends.back() - ends[from]) / (kStaggeredSteps - 1 - from);
}

bool MeshPlayer::run(Mode mode, Duration most) {
  mode_ = mode;
  std::fill(activation_at_.begin(), activation_at_.begin() + mesh_.micros, Duration{});
  std::fill(activation_at_.begin() + mesh_.micros, activation_at_.end(), kNever);
  std::fill(gradient_at_.begin(), gradient_at_.end(), kNever);
  std::fill(went_.begin(), went_.end(), uint8_t{0});
  int64_t left = 0;  // ops
  for (Seat& seat : seats_) {
    const auto micros = static_cast<int32_t>(mode == Mode::Listed ? seat.list->size() / 3
                                                                  : seat.tasks->forwards.size());
    seat.forwards = seat.backwards = seat.weights = seat.first_open = 0;
    seat.look_at = seat.stage == 0 ? seat.free_at : kNever;
    seat.left = micros * (seat.own->forward + seat.own->backward + seat.own->weight);
    seat.activations.clear();
    if (mode == Mode::AsTheyCome && seat.stage == 0) seat.activations = seat.tasks->forwards;
    seat.gradients.clear();
    left += int64_t{3} * micros;
  }
  // What a holder begins reaches another no sooner than a window later: within one each chooses for
  // itself.
  while (left > 0) {
    Duration from = kNever;
    for (const Seat& seat : seats_) from = std::min(from, seat.look_at);
    if (from == kNever) return false;
    for (Seat& seat : seats_) {
      while (seat.look_at < from + window_) {
        const std::optional<Task> task = choose(seat);
        if (!task) continue;
        if (seat.look_at + seat.left > most) return false;
        begin(seat, *task);
        --left;
      }
    }
  }
  return true;
}

std::optional<Task> MeshPlayer::choose(Seat& seat) const {
  if (mode_ == Mode::Listed) return choose_listed(seat);
  return mode_ == Mode::InOrder ? choose_in_order(seat) : choose_as_they_come(seat);
}

std::optional<Task> MeshPlayer::choose_listed(Seat& seat) const {
  const auto place = at(seat.forwards + seat.backwards + seat.weights);
  Duration here = kNever;
  if (place < seat.list->size()) {
    const Task& task = (*seat.list)[place];
    if (task.kind == OpKind::BackwardWeight) return task;
    const auto& arrivals = task.kind == OpKind::Forward ? activation_at_ : gradient_at_;
    here = arrivals[cell(seat.stage, task.micro)];
    if (here <= seat.look_at) return task;
  }
  seat.look_at = here;
  return std::nullopt;
}

bool MeshPlayer::has_room(const Seat& seat, int32_t more) const {
  const int32_t whole = seat.forwards - seat.backwards, late = seat.backwards - seat.weights;
  if (!most_.empty() && whole + late + more > most_[at(seat.stage)]) return false;
  return seat.own->room.fits(whole + more, late);
}

std::optional<Task> MeshPlayer::choose_in_order(Seat& seat) const {
  const Tasks& tasks = *seat.tasks;
  const Duration now = seat.look_at;
  const auto micros = static_cast<int32_t>(tasks.forwards.size());
  Duration next = kNever;
  if (seat.backwards < seat.forwards) {
    const int32_t micro = tasks.backwards[at(seat.backwards)];
    next = gradient_at_[cell(seat.stage, micro)];
    if (next <= now) return Task{OpKind::BackwardInput, micro};
  }
  if (seat.forwards < micros && has_room(seat, 1)) {
    const int32_t micro = tasks.forwards[at(seat.forwards)];
    const Duration arrival = activation_at_[cell(seat.stage, micro)];
    if (arrival <= now) return Task{OpKind::Forward, micro};
    next = std::min(next, arrival);
  }
  if (seat.weights < seat.backwards) {
    const int32_t micro = tasks.weights[at(seat.weights)];
    if (went_[cell(seat.stage, micro)] == 2) return Task{OpKind::BackwardWeight, micro};
  }
  seat.look_at = next;
  return std::nullopt;
}

std::optional<Task> MeshPlayer::choose_as_they_come(Seat& seat) const {
  const Tasks& tasks = *seat.tasks;
  const Duration now = seat.look_at;
  Duration gradient_next = kNever, next = kNever;
  const size_t row = cell(seat.stage, 0);
  if (mesh_.split_backward) {
    const int32_t place =
        lowest_here(seat.gradients, gradient_at_.data() + row, now, gradient_next);
    if (place >= 0) return Task{OpKind::BackwardInput, seat.gradients[at(place)]};
  } else if (at(seat.backwards) < tasks.backwards.size()) {
    const int32_t micro = tasks.backwards[at(seat.backwards)];
    gradient_next = gradient_at_[row + at(micro)];
    if (gradient_next <= now) return Task{OpKind::BackwardInput, micro};
  }
  const auto soon = [&](Duration op) {
    return gradient_next != kNever && gradient_next - now <= op * patience_.look_ahead / 2;
  };
  const auto wait_until = [&](Duration moment) {
    seat.look_at = moment;
    return std::nullopt;
  };
  const int32_t late = seat.backwards - seat.weights;
  const int32_t weight = late > 0 ? tasks.weights[at(seat.weights)] : -1;
  const bool weighs = weight >= 0 && went_[row + at(weight)] == 2;
  const bool weighs_first = weighs && patience_.weights > 0 && late >= patience_.weights;
  if (!weighs_first && has_room(seat, 1)) {
    const bool spare = has_room(seat, 2);
    const int32_t place = lowest_here(seat.activations, activation_at_.data() + row, now, next);
    const int32_t micro = place < 0 ? -1 : seat.activations[at(place)];
    if (place >= 0 && (spare || micro == tasks.forwards[at(seat.first_open)])) {
      if (soon(seat.own->forward)) return wait_until(gradient_next);
      return Task{OpKind::Forward, micro};
    }
  }
  if (weighs) {
    if (soon(seat.own->weight)) return wait_until(gradient_next);
    return Task{OpKind::BackwardWeight, weight};
  }
  return wait_until(std::min(next, gradient_next));
}

void MeshPlayer::begin(Seat& seat, const Task& task) {
  const Duration now = seat.look_at;
  const int32_t s = seat.stage, m = task.micro;
  if (begun_ != nullptr) (*begun_)[at(first_[at(s)] + seat.index)].push_back(task);
  Duration took{};
  if (task.kind == OpKind::Forward) {
    took = seat.own->forward;
    ++seat.forwards;
    went_[cell(s, m)] = 1;
    if (s + 1 == mesh_.depth()) {
      arrive(s, m, true, now + took);
    } else {
      const int32_t to = (*routing_)[at(s) + 1][at(m)];
      const auto link = at(seat.index * mesh_.width(s + 1) + to);
      const Way& way = mesh_.ways[at(s)][link];
      Duration& free_at = down_free_at_[at(s)][link];
      free_at = std::max(free_at, now + took) + way.down_busy;
      arrive(s + 1, m, false, free_at + way.down);
    }
  } else if (task.kind == OpKind::BackwardInput) {
    took = seat.own->backward;
    ++seat.backwards;
    went_[cell(s, m)] = 2;
    if (s > 0) {
      const int32_t to = (*routing_)[at(s) - 1][at(m)];
      const auto link = at(to * mesh_.width(s) + seat.index);
      const Way& way = mesh_.ways[at(s) - 1][link];
      Duration& free_at = up_free_at_[at(s) - 1][link];
      free_at = std::max(free_at, now + took) + way.up_busy;
      arrive(s - 1, m, true, free_at + way.up);
    }
  } else {
    took = seat.own->weight;
    ++seat.weights;
  }
  seat.left -= took;
  seat.free_at = seat.look_at = now + took;
  if (mode_ != Mode::AsTheyCome || task.kind == OpKind::BackwardWeight) return;
  if (task.kind == OpKind::BackwardInput) return drop(seat.gradients, m);
  drop(seat.activations, m);
  const std::vector<int32_t>& order = seat.tasks->forwards;
  while (at(seat.first_open) < order.size() && went_[cell(s, order[at(seat.first_open)])] != 0) {
    ++seat.first_open;
  }
}

void MeshPlayer::arrive(int32_t stage, int32_t micro, bool gradient, Duration moment) {
  (gradient ? gradient_at_ : activation_at_)[cell(stage, micro)] = moment;
  Seat& seat = seat_of(stage, (*routing_)[at(stage)][at(micro)]);
  if (mode_ == Mode::AsTheyCome) (gradient ? seat.gradients : seat.activations).push_back(micro);
  seat.look_at = std::min(seat.look_at, std::max(moment, seat.free_at));
}

}  // namespace tenuto
