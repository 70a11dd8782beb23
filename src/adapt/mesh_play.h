// Plays a routed step: who runs what when, by the dispatch rule of the workers.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "adapt/mesh.h"

namespace tenuto {

// The micro-batches of one holder in the orders in which it takes each kind of op.
struct Tasks {
  std::vector<int32_t> forwards, backwards, weights;
  bool operator==(const Tasks&) const = default;
};

// The tasks of every holder, by stage and index.
using Orders = std::vector<std::vector<Tasks>>;

// All three kinds in the order of the micro-batch numbers.
Orders global_orders(const Mesh& mesh, const Routing& routing);

// One compute op of a holder.
struct Task {
  OpKind kind = OpKind::Forward;
  int32_t micro = 0;
};

// The ops of every holder in the sequence in which it begins them, by stage and index.
using TaskLists = std::vector<std::vector<std::vector<Task>>>;

// The order of each kind in the lists.
Orders orders_of(const TaskLists& lists);

// What holders do that ready dispatch does not.
struct Patience {
  int32_t look_ahead = 0;  // a holder stays idle when a gradient on its way arrives within so many
                           // halves of the op that it would begin
  int32_t weights = 0;     // so many waiting weight gradients go before a forward; 0 = none do

  // True when ready dispatch does the same.
  bool is_ready() const { return look_ahead == 0 && weights == 0; }
};

// Plays steps of a mesh, which must outlive it; its arrays serve one play after the other.
//
// A holder that is free runs the first of input gradient, forward, weight gradient whose inputs are
// here, a forward if there is room. It is what ready dispatch does, to the nanosecond, as long as
// 32 receives ahead are enough.
class MeshPlayer {
 public:
  explicit MeshPlayer(const Mesh& mesh);

  // From now on a holder of stage s holds at most most[s] micro-batches, each to the end of its
  // weight gradient; empty = as the rooms allow.
  void set_most(std::vector<int32_t> most) { most_ = std::move(most); }
  // The time of a step, each kind of op in the order given. At the pace of a period: of steps one
  // after the other until they repeat, or 12, of which the later half counts.
  //
  // Returns: nothing when nothing can move, or, at the pace of a barrier, as soon as the step is
  //          seen to last longer than `most`
  // Cost:    some 20 ns an op and step
  std::optional<Duration> time(const Routing& routing, const Orders& orders,
                               Duration most = Duration::max());
  // The same when holders run fixed lists.
  std::optional<Duration> time(const Routing& routing, const TaskLists& lists,
                               Duration most = Duration::max());
  // The lists that come about in the first step when a holder takes of forwards and of input
  // gradients the one with the lowest number that is here; what is summed, weight gradients or with
  // a whole backward input gradients, in the order of the numbers, so that sums repeat. The last
  // place in a holder's memory goes only to the first of its micro-batches that has none yet:
  // without that it could wait for a weight gradient that has to wait for one behind.
  //
  // Cost: some 60 ns an op
  TaskLists as_they_come(const Routing& routing, const Patience& patience = {});
  // The lists of the first step, each kind of op in the order given; nothing when nothing can move.
  std::optional<TaskLists> lists(const Routing& routing, const Orders& orders);

 private:
  enum class Mode : uint8_t { InOrder, AsTheyCome, Listed };
  // A holder while a step is played.
  struct Seat {
    const Holder* own = nullptr;
    const Tasks* tasks = nullptr;
    const std::vector<Task>* list = nullptr;
    int32_t stage = 0, index = 0;
    int32_t forwards = 0, backwards = 0, weights = 0;  // begun; a free holder has ended them
    Duration free_at{}, look_at{};
    Duration left{};                              // work that it has not begun
    std::vector<int32_t> activations, gradients;  // as they come: on their way or here
    int32_t first_open = 0;                       // place of its first whose forward is to come
  };

  // True when so many more forwards have room.
  bool has_room(const Seat& seat, int32_t more) const;
  void set_routing(const Routing& routing);
  void set_orders(const Orders& orders);
  std::optional<Duration> time_of(Mode mode, Duration most);
  // Plays one step whose holders are free at their `free_at`; false when nothing can move or it
  // lasts longer than `most`.
  bool run(Mode mode, Duration most);
  std::optional<TaskLists> record(Mode mode);
  std::optional<Duration> period(Mode mode);
  // What a holder begins now; otherwise its look_at says when to look again.
  std::optional<Task> choose(Seat& seat) const;
  std::optional<Task> choose_in_order(Seat& seat) const;
  std::optional<Task> choose_as_they_come(Seat& seat) const;
  std::optional<Task> choose_listed(Seat& seat) const;
  void begin(Seat& seat, const Task& task);
  void arrive(int32_t stage, int32_t micro, bool gradient, Duration moment);
  size_t cell(int32_t stage, int32_t micro) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(mesh_.micros) +
           static_cast<size_t>(micro);
  }
  Seat& seat_of(int32_t stage, int32_t index) {
    return seats_[static_cast<size_t>(first_[static_cast<size_t>(stage)] + index)];
  }

  const Mesh& mesh_;
  const Routing* routing_ = nullptr;
  Duration window_{};           // from the start of an op to the arrival of what it sends, at least
  std::vector<int32_t> first_;  // seat of each stage's first holder
  std::vector<Seat> seats_;
  std::vector<Duration> activation_at_, gradient_at_;  // by stage and micro-batch
  std::vector<uint8_t> went_;  // 1: the forward has begun, 2: the input gradient too
  std::vector<std::vector<Duration>> down_free_at_, up_free_at_;  // links, as mesh.ways
  Mode mode_ = Mode::InOrder;
  Patience patience_;
  std::vector<int32_t> most_;                        // by stage; empty = as the rooms allow
  std::vector<std::vector<Task>>* begun_ = nullptr;  // by seat, when asked for
};

}  // namespace tenuto
