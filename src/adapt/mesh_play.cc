#include "adapt/mesh_play.h"

#include <algorithm>

#include "adapt/mesh_bound.h"

namespace tenuto {

namespace {

constexpr Duration kNever = Duration::max();
constexpr int32_t kFirstSteps = 2;  // steps after these change little from one to the next

size_t at(int32_t index) { return static_cast<size_t>(index); }

// An op that a holder begins affects another holder no sooner than one window later, so within a
// window each holder chooses alone.
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

}  // namespace

Orders orders_of(const TaskLists& lists) {
  Orders orders;
  for (const auto& stage : lists) {
    auto& of = orders.emplace_back();
    for (const auto& list : stage) {
      Tasks& tasks = of.emplace_back();
      for (auto* order : {&tasks.forwards, &tasks.backwards, &tasks.weights}) {
        order->reserve(list.size() / 3);
      }
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
  std::vector<size_t> counts;
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    const std::vector<int32_t>& own = routing[at(s)];
    auto& of = orders.emplace_back(at(mesh.width(s)));
    counts.assign(of.size(), 0);
    for (const int32_t holder : own) ++counts[at(holder)];
    for (size_t i = 0; i < of.size(); ++i) of[i].forwards.reserve(counts[i]);
    for (int32_t m = 0; m < mesh.micros; ++m) of[at(own[at(m)])].forwards.push_back(m);
    for (Tasks& tasks : of) tasks.backwards = tasks.weights = tasks.forwards;
  }
  return orders;
}

MeshPlayer::MeshPlayer(const Mesh& mesh) : mesh_(mesh), window_(window_of(mesh)) {
  for (int32_t s = 0; s < mesh.depth(); ++s) {
    first_.push_back(static_cast<int32_t>(seats_.size()));
    const int64_t width = s + 1 < mesh.depth() ? mesh.width(s + 1) : 0;
    const auto before = static_cast<int64_t>(down_.size()) -
                        (s > 0 ? static_cast<int64_t>(mesh.ways[at(s) - 1].size()) : 0);
    for (int32_t i = 0; i < mesh.width(s); ++i) {
      Seat& seat = seats_.emplace_back();
      seat.own = &mesh.holder(s, i);
      seat.place = first_[at(s)] + i;
      seat.stage = s;
      seat.row = at(s) * at(mesh.micros);
      seat.limit.memory = seat.own->memory;
      seat.lasts[0] = seat.own->forward;
      seat.lasts[1] = seat.own->backward;
      seat.lasts[2] = seat.own->weight;
      seat.down = static_cast<int64_t>(down_.size()) + i * width - (first_[at(s)] + mesh.width(s));
      seat.up_stride = mesh.width(s);
      seat.up = before + i - (s > 0 ? int64_t{first_[at(s) - 1]} * mesh.width(s) : 0);
    }
    for (size_t i = 0; s + 1 < mesh.depth() && i < mesh.ways[at(s)].size(); ++i) {
      const Way& way = mesh.ways[at(s)][i];
      down_.push_back({way.down, way.down_busy, {}});
      up_.push_back({way.up, way.up_busy, {}});
    }
  }
  if (mesh.pace == Pace::Barrier) {
    const MeshBound bound(mesh);
    for (Seat& seat : seats_)
      seat.turn = bound.turn(seat.stage, seat.place - first_[at(seat.stage)]);
  }
  const size_t cells = mesh.stages.size() * at(mesh.micros);
  look_at_.resize(seats_.size());
  activation_at_.resize(cells);
  gradient_at_.resize(cells);
  seat_of_.resize(cells);
  rank_.resize(cells);
  by_rank_.resize(cells);
  went_.resize(cells);
}

void MeshPlayer::set_most(const std::vector<int32_t>& most) {
  for (Seat& seat : seats_) seat.limit.micros = most.empty() ? INT32_MAX : most[at(seat.stage)];
}

void MeshPlayer::set_routing(const Routing& routing) {
  for (Seat& seat : seats_) {
    seat.free_at = {};
    seat.micros = 0;
  }
  for (Lane& lane : down_) lane.free_at = {};
  for (Lane& lane : up_) lane.free_at = {};
  for (int32_t s = 0; s < mesh_.depth(); ++s) {
    for (int32_t m = 0; m < mesh_.micros; ++m) {
      const size_t cell = at(s) * at(mesh_.micros) + at(m);
      seat_of_[cell] = first_[at(s)] + routing[at(s)][at(m)];
      ++seats_[at(seat_of_[cell])].micros;
    }
  }
}

void MeshPlayer::set_orders(const Orders& orders) {
  for (Seat& seat : seats_) {
    const Tasks& tasks = orders[at(seat.stage)][at(seat.place - first_[at(seat.stage)])];
    seat.order[0] = tasks.forwards.data();
    seat.order[1] = tasks.backwards.data();
    seat.order[2] = tasks.weights.data();
  }
}

void MeshPlayer::set_ranks() {
  int32_t* next = by_rank_.data();
  for (Seat& seat : seats_) {
    const auto key = [&](int32_t micro) {
      const bool guest = micro % mesh_.pipelines != seat.own->pipeline;
      return micro + (guest ? patience_.guests : 0);
    };
    std::copy(seat.order[0], seat.order[0] + seat.micros, next);
    if (patience_.guests != 0) {
      std::stable_sort(next, next + seat.micros,
                       [&](int32_t a, int32_t b) { return key(a) < key(b); });
    }
    for (int32_t rank = 0; rank < seat.micros; ++rank) rank_[seat.row + at(next[rank])] = rank;
    seat.by_rank = next;
    next += seat.micros;
  }
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
  for (Seat& seat : seats_) {
    seat.list = lists[at(seat.stage)][at(seat.place - first_[at(seat.stage)])].data();
  }
  return time_of(Mode::Listed, most);
}

std::optional<Duration> MeshPlayer::time_of(Mode mode, Duration most) {
  if (mesh_.pace != Pace::Barrier) return period(mode, most);
  if (!run(mode, most)) return std::nullopt;
  return end();
}

Duration MeshPlayer::end() const {
  Duration end{};
  for (const Seat& seat : seats_) end = std::max(end, seat.free_at + seat.own->update);
  return end;
}

std::optional<PlayedStep> MeshPlayer::as_they_come(const Routing& routing, const Patience& patience,
                                                   Duration most) {
  const Orders global = global_orders(mesh_, routing);
  set_routing(routing);
  set_orders(global);
  patience_ = patience;
  set_ranks();
  auto lists = record(Mode::AsTheyCome, mesh_.pace == Pace::Barrier ? most : kNever);
  CHECK(lists || most < kNever,
        "the last place is kept for the first micro-batch, and still it stands");
  if (!lists) return std::nullopt;
  return PlayedStep{std::move(*lists), end()};
}

std::optional<TaskLists> MeshPlayer::lists(const Routing& routing, const Orders& orders) {
  set_routing(routing);
  set_orders(orders);
  return record(Mode::InOrder, kNever);
}

std::optional<TaskLists> MeshPlayer::record(Mode mode, Duration most) {
  std::vector<std::vector<Task>> begun(seats_.size());
  for (size_t i = 0; i < seats_.size(); ++i) begun[i].reserve(3 * at(seats_[i].micros));
  begun_ = &begun;
  const bool ended = run(mode, most);
  begun_ = nullptr;
  if (!ended) return std::nullopt;
  TaskLists lists;
  for (const auto& stage : mesh_.stages) lists.emplace_back(stage.size());
  for (size_t i = 0; i < seats_.size(); ++i) {
    const size_t stage = at(seats_[i].stage);
    lists[stage][i - at(first_[stage])] = std::move(begun[i]);
  }
  return lists;
}

// Plays steps one behind the other. If every holder ends a step later than the previous one by the
// same time, all further steps repeat it.
std::optional<Duration> MeshPlayer::period(Mode mode, Duration most) {
  std::vector<Duration> ends, before(seats_.size());
  for (int32_t step = 0; step < kStaggeredSteps; ++step) {
    if (!run(mode, kNever)) return std::nullopt;
    for (int32_t s = 0; s < mesh_.depth(); ++s) {
      Seat* const seats = seats_.data() + first_[at(s)];
      Duration all{};
      for (int32_t i = 0; i < mesh_.width(s); ++i) all = std::max(all, seats[i].free_at);
      for (int32_t i = 0; i < mesh_.width(s); ++i) {
        if (mesh_.pace == Pace::Joint) seats[i].free_at = all;
        seats[i].free_at += seats[i].own->update;
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
    if (step > kFirstSteps && end - ends[at(step - 2)] > std::min(most, kNever / 2) * 2)
      return std::nullopt;
  }
  constexpr int32_t from = (kStaggeredSteps - 1) / 2;
  return (ends.back() - ends[from]) / (kStaggeredSteps - 1 - from);
}

bool MeshPlayer::run(Mode mode, Duration most) {
  switch (mode) {
    case Mode::InOrder:
      return run_as<Mode::InOrder>(most);
    case Mode::AsTheyCome:
      return run_as<Mode::AsTheyCome>(most);
    case Mode::Listed:
      return run_as<Mode::Listed>(most);
  }
  return false;
}

int64_t MeshPlayer::clear(Mode mode) {
  const auto behind_first = activation_at_.begin() + mesh_.micros;
  std::fill(activation_at_.begin(), behind_first, Duration{});
  std::fill(behind_first, activation_at_.end(), kNever);
  std::fill(gradient_at_.begin(), gradient_at_.end(), kNever);
  std::fill(went_.begin(), went_.end(), uint8_t{0});
  int64_t ops = 0;
  look_next_ = kNever;
  for (Seat& seat : seats_) {
    seat.forwards = seat.backwards = seat.weights = seat.first_open = 0;
    look_at_[at(seat.place)] = seat.stage == 0 ? seat.free_at : kNever;
    look_next_ = std::min(look_next_, look_at_[at(seat.place)]);
    const int32_t late = std::min(seat.limit.micros, seat.limit.memory.most_late(seat.micros));
    seat.left = seat.micros * (seat.lasts[0] + seat.lasts[1] + seat.lasts[2]) +
                std::max(Duration{}, seat.turn - late * seat.lasts[2]);
    ops += int64_t{3} * seat.micros;
    for (Inbox* inbox : {&seat.activations, &seat.gradients}) {
      if (mode != Mode::AsTheyCome) break;
      inbox->clear(seat.micros);
    }
    for (int32_t rank = 0; seat.stage == 0 && rank < seat.micros; ++rank) {
      if (mode == Mode::AsTheyCome) seat.activations.put(rank);
    }
  }
  return ops;
}

// The task as a Choice.
MeshPlayer::Choice MeshPlayer::choice_of(const Task& task) {
  if (task.kind == OpKind::Forward) return forward_of(task.micro);
  return task.kind == OpKind::BackwardInput ? backward_of(task.micro) : weight_of(task.micro);
}

Task MeshPlayer::task_of(Choice choice) {
  constexpr OpKind kKinds[] = {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight};
  return {kKinds[choice % 3], choice / 3};
}

template <MeshPlayer::Mode kMode>
bool MeshPlayer::run_as(Duration most) {
  for (int64_t left = clear(kMode); left > 0;) {
    if (look_next_ == kNever) return false;
    const Duration until = look_next_ + window_;
    look_next_ = kNever;
    for (Seat& seat : seats_) {
      Duration& look_at = look_at_[at(seat.place)];
      while (look_at < until) {
        const Choice choice = choose<kMode>(seat, look_at);
        if (choice < 0) continue;
        if (look_at + seat.left > most) return false;
        begin<kMode>(seat, look_at, choice);
        ++played_ops_;
        --left;
      }
      look_next_ = std::min(look_next_, look_at);
    }
  }
  return true;
}

void MeshPlayer::Inbox::clear(int32_t micros) {
  coming.clear();
  next = kNever;
  here.assign((at(micros) + 63) / 64, 0);
}

void MeshPlayer::Inbox::receive(Duration now) {
  next = kNever;
  size_t left = 0;
  for (const auto& [arrival, rank] : coming) {
    if (arrival <= now) {
      put(rank);
    } else {
      next = std::min(next, arrival);
      coming[left++] = {arrival, rank};
    }
  }
  coming.resize(left);
}

int32_t MeshPlayer::Inbox::first() const {
  for (size_t word = 0; word < here.size(); ++word) {
    if (here[word] != 0) return static_cast<int32_t>(64 * word) + __builtin_ctzll(here[word]);
  }
  return -1;
}

template <MeshPlayer::Mode kMode>
MeshPlayer::Choice MeshPlayer::choose(Seat& seat, Duration& look_at) {
  if constexpr (kMode == Mode::InOrder) return choose_in_order(seat, look_at);
  if constexpr (kMode == Mode::AsTheyCome) return choose_as_they_come(seat, look_at);
  return choose_listed(seat, look_at);
}

MeshPlayer::Choice MeshPlayer::choose_listed(const Seat& seat, Duration& look_at) const {
  const int32_t place = seat.forwards + seat.backwards + seat.weights;
  Duration here = kNever;
  if (place < 3 * seat.micros) {
    const Task& task = seat.list[place];
    if (task.kind == OpKind::BackwardWeight) return choice_of(task);
    const auto& arrivals = task.kind == OpKind::Forward ? activation_at_ : gradient_at_;
    here = arrivals[seat.row + at(task.micro)];
    if (here <= look_at) return choice_of(task);
  }
  look_at = here;
  return kNoOp;
}

MeshPlayer::Choice MeshPlayer::choose_in_order(const Seat& seat, Duration& look_at) const {
  const Duration now = look_at;
  Duration next = kNever;
  const auto backward = [&] {
    if (seat.backwards >= seat.forwards) return kNoOp;
    const int32_t micro = seat.order[1][seat.backwards];
    next = gradient_at_[seat.row + at(micro)];
    return next <= now ? backward_of(micro) : kNoOp;
  };
  const auto forward = [&] {
    if (seat.forwards >= seat.micros) return kNoOp;
    const int32_t micro = seat.order[0][seat.forwards];
    const Duration arrival = activation_at_[seat.row + at(micro)];
    if (arrival <= now) return forward_of(micro);
    next = std::min(next, arrival);
    return kNoOp;
  };
  const auto weight = [&] {
    if (seat.weights < seat.backwards) {
      const int32_t micro = seat.order[2][seat.weights];
      if (went_[seat.row + at(micro)] == 2) return weight_of(micro);
    }
    look_at = next;
    return kNoOp;
  };
  return first_ready(false, seat, backward, forward, weight);
}

MeshPlayer::Choice MeshPlayer::choose_as_they_come(Seat& seat, Duration& look_at) {
  const Duration now = look_at;
  Duration gradient_next = kNever, next = kNever;
  const auto backward = [&] {
    if (mesh_.split_backward) {
      seat.gradients.receive_until(now);
      const int32_t rank = seat.gradients.first();
      if (rank >= 0) return backward_of(seat.by_rank[rank]);
      gradient_next = seat.gradients.next;
    } else if (seat.backwards < seat.micros) {
      const int32_t micro = seat.order[1][seat.backwards];
      gradient_next = gradient_at_[seat.row + at(micro)];
      if (gradient_next <= now) return backward_of(micro);
    }
    return kNoOp;
  };
  const int32_t late = seat.backwards - seat.weights;
  // The weight gradient that can begin.
  const auto next_weight = [&] {
    if (late == 0) return kNoOp;
    const int32_t micro = seat.order[2][seat.weights];
    return went_[seat.row + at(micro)] == 2 ? weight_of(micro) : kNoOp;
  };
  const auto wait_until = [&](Duration moment) {
    look_at = moment;
    return kWait;
  };
  // True when a gradient will come so soon that the holder waits for it.
  const auto soon = [&](Duration lasts) {
    return gradient_next != kNever && gradient_next - now <= lasts * patience_.look_ahead / 2;
  };
  const auto forward = [&] {
    if (patience_.weights > 0 && late >= patience_.weights && next_weight() != kNoOp) return kNoOp;
    seat.activations.receive_until(now);
    int32_t rank = seat.activations.first();
    if (rank >= 0 && !seat.limit.fits(seat.held(), 2)) {
      const int32_t first = rank_[seat.row + at(seat.order[0][seat.first_open])];
      rank = seat.activations.has(first) ? first : -1;
    }
    if (rank >= 0) {
      return soon(seat.lasts[0]) ? wait_until(gradient_next) : forward_of(seat.by_rank[rank]);
    }
    next = seat.activations.next;
    return kNoOp;
  };
  const auto weight = [&] {
    const Choice op = next_weight();
    if (op == kNoOp) return wait_until(std::min(next, gradient_next));
    return soon(seat.lasts[2]) ? wait_until(gradient_next) : op;
  };
  return first_ready(false, seat, backward, forward, weight);
}

template <MeshPlayer::Mode kMode>
void MeshPlayer::begin(Seat& seat, Duration& look_at, Choice choice) {
  const auto kind = at(choice % 3);
  const size_t cell = seat.row + at(choice / 3), micros = at(mesh_.micros);
  if (begun_ != nullptr) (*begun_)[at(seat.place)].push_back(task_of(choice));
  const Duration end = look_at + seat.lasts[kind];
  seat.left -= seat.lasts[kind];
  seat.free_at = look_at = end;
  const auto leave = [&](Lane& lane) {
    lane.free_at = std::max(lane.free_at, end) + lane.busy;
    return lane.free_at + lane.latency;
  };
  if (kind == 0) {
    ++seat.forwards;
    went_[cell] = 1;
    if constexpr (kMode == Mode::AsTheyCome) {
      seat.activations.take(rank_[cell]);
      while (seat.first_open < seat.micros &&
             went_[seat.row + at(seat.order[0][seat.first_open])] != 0) {
        ++seat.first_open;
      }
    }
    if (seat.stage + 1 == mesh_.depth()) return arrive<kMode>(cell, true, end);
    Lane& lane = down_[static_cast<size_t>(seat.down + seat_of_[cell + micros])];
    return arrive<kMode>(cell + micros, false, leave(lane));
  }
  if (kind == 1) {
    ++seat.backwards;
    went_[cell] = 2;
    if constexpr (kMode == Mode::AsTheyCome) seat.gradients.take(rank_[cell]);
    if (seat.stage == 0) return;
    Lane& lane = up_[static_cast<size_t>(seat.up + seat.up_stride * seat_of_[cell - micros])];
    return arrive<kMode>(cell - micros, true, leave(lane));
  }
  ++seat.weights;
}

template <MeshPlayer::Mode kMode>
void MeshPlayer::arrive(size_t cell, bool gradient, Duration moment) {
  (gradient ? gradient_at_ : activation_at_)[cell] = moment;
  const size_t place = at(seat_of_[cell]);
  Seat& seat = seats_[place];
  if constexpr (kMode == Mode::AsTheyCome) {
    Inbox& inbox = gradient ? seat.gradients : seat.activations;
    inbox.coming.emplace_back(moment, rank_[cell]);
    inbox.next = std::min(inbox.next, moment);
  }
  look_at_[place] = std::min(look_at_[place], std::max(moment, seat.free_at));
  look_next_ = std::min(look_next_, look_at_[place]);
}

}  // namespace tenuto
