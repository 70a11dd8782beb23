// Plays a routed step: which holder runs which op when, by the dispatch rule of the workers.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "adapt/mesh.h"
#include "ir/dispatch.h"

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

// One step as it was played.
struct PlayedStep {
  TaskLists lists;
  Duration time{};  // from the first start to the end of the last update
};

// How holders may deviate from ready dispatch.
struct Patience {
  int32_t look_ahead = 0;  // a holder stays idle when a gradient will arrive within look_ahead / 2
                           // durations of the op that it would begin
  int32_t weights = 0;     // if so many weight gradients wait, one goes before a forward; 0 = never
  int32_t guests = 0;      // micro-batches of other pipelines are taken as if their numbers were so
                           // much larger

  // True when ready dispatch does the same, given the orders that result from the play.
  bool is_ready() const { return look_ahead == 0 && weights == 0; }
};

// Plays steps of a mesh, which must outlive it; its arrays serve one play after the other.
//
// A free holder runs the first of input gradient, forward (if it fits into memory), weight gradient
// whose inputs are here. Ready dispatch does exactly the same, to the nanosecond, as long as 32
// receives ahead are enough.
class MeshPlayer {
 public:
  explicit MeshPlayer(const Mesh& mesh);

  // From now on a holder of stage s holds at most most[s] micro-batches, each to the end of its
  // weight gradient; empty = as memory allows.
  void set_most(const std::vector<int32_t>& most);
  // The time of a step, with each kind of op in the given order. At the pace of a period: plays
  // steps one after the other until they repeat, at most 12, and counts the later half.
  //
  // Returns: nothing when the holders deadlock, or, at the pace of a barrier, as soon as the step
  //          certainly lasts longer than `most`; in periods, when two successive steps after the
  //          first few together last longer than twice that
  // Cost:    some 20 ns an op and step
  std::optional<Duration> time(const Routing& routing, const Orders& orders,
                               Duration most = Duration::max());
  // The same when holders run fixed lists.
  std::optional<Duration> time(const Routing& routing, const TaskLists& lists,
                               Duration most = Duration::max());
  // Plays the first step. A holder takes the forward, or the input gradient, with the lowest number
  // whose input is here; `patience` says how guests are numbered. Ops that add to sums (weight
  // gradients; with a whole backward, input gradients) run in the order of the numbers, so that
  // sums repeat. The last place in a holder's memory is kept for the lowest micro-batch whose
  // forward has not begun. Otherwise later ones could fill the memory, and their weight gradients
  // would wait for that of this micro-batch: a deadlock.
  //
  // Returns: nothing as soon as, at the pace of a barrier, the step certainly lasts longer than
  //          `most`
  // Cost:    some 40 ns an op
  std::optional<PlayedStep> as_they_come(const Routing& routing, const Patience& patience = {},
                                         Duration most = Duration::max());
  // The lists of the first step, each kind of op in the order given; nothing when the holders
  // deadlock.
  std::optional<TaskLists> lists(const Routing& routing, const Orders& orders);
  // How many ops it has played by now.
  int64_t played_ops() const { return played_ops_; }

 private:
  enum class Mode : uint8_t { InOrder, AsTheyCome, Listed };
  // Inputs of a holder, in transit or here, by rank: the order in which it takes its micro-batches.
  struct Inbox {
    std::vector<std::pair<Duration, int32_t>> coming;  // arrival, rank
    Duration next{};                                   // the first arrival of these
    std::vector<uint64_t> here;                        // a bit each

    void clear(int32_t micros);
    // Moves what has arrived by `now` from `coming` to `here`.
    void receive_until(Duration now) {
      if (next <= now) receive(now);
    }
    // The least rank that is here; -1 = none is.
    int32_t first() const;
    bool has(int32_t rank) const {
      return (here[static_cast<size_t>(rank) / 64] >> (rank % 64) & 1) != 0;
    }
    void put(int32_t rank) { here[static_cast<size_t>(rank) / 64] |= uint64_t{1} << (rank % 64); }
    void take(int32_t rank) {
      here[static_cast<size_t>(rank) / 64] &= ~(uint64_t{1} << (rank % 64));
    }

   private:
    void receive(Duration now);
  };
  // A holder while a step is played.
  struct Seat {
    const int32_t* order[3] = {};  // of forwards, input gradients, weight gradients
    const int32_t* by_rank = nullptr;
    const Task* list = nullptr;
    size_t row = 0;  // its stage's first place in arrays by stage and micro-batch
    int32_t micros = 0;
    int32_t forwards = 0, backwards = 0, weights = 0;  // begun; a free holder has ended them
    HeldLimit limit;
    Duration lasts[3] = {};  // forward, input gradient, weight gradient
    Duration free_at{};
    Duration turn{};  // least time from its last input gradient to the end of a step with a barrier
    Duration left{};  // least time of the work that it has not begun, and of the idle time after it
    int64_t down = 0, up = 0, up_stride = 0;  // to seat r: down_[down + r], up_[up + up_stride * r]
    int32_t place = 0, stage = 0;
    int32_t first_open = 0;  // place of its first micro-batch whose forward has not begun
    Inbox activations, gradients;
    const Holder* own = nullptr;

    HeldMicros held() const { return {forwards - backwards, backwards - weights}; }
  };
  // One direction of a way.
  struct Lane {
    Duration latency{}, busy{}, free_at{};
  };

  void set_routing(const Routing& routing);
  void set_orders(const Orders& orders);
  void set_ranks();
  std::optional<Duration> time_of(Mode mode, Duration most);
  // The end of the step that was played last.
  Duration end() const;
  // Plays one step whose holders are free at their `free_at`; false when they deadlock or it lasts
  // longer than `most`.
  bool run(Mode mode, Duration most);
  template <Mode kMode>
  bool run_as(Duration most);
  // Resets the state of a step; returns how many ops it has.
  int64_t clear(Mode mode);
  std::optional<TaskLists> record(Mode mode, Duration most);
  std::optional<Duration> period(Mode mode, Duration most);
  // An op of a holder: three times the micro-batch, plus the kind. A number fits into one register;
  // a Choice is passed for every op that is played.
  using Choice = int32_t;
  static Choice forward_of(int32_t micro) { return 3 * micro; }
  static Choice backward_of(int32_t micro) { return 3 * micro + 1; }
  static Choice weight_of(int32_t micro) { return 3 * micro + 2; }
  static Choice choice_of(const Task& task);
  static Task task_of(Choice choice);

  // The op that a holder begins now; if there is none, sets when to look at it again.
  template <Mode kMode>
  Choice choose(Seat& seat, Duration& look_at);
  Choice choose_in_order(const Seat& seat, Duration& look_at) const;
  Choice choose_as_they_come(Seat& seat, Duration& look_at);
  Choice choose_listed(const Seat& seat, Duration& look_at) const;
  template <Mode kMode>
  void begin(Seat& seat, Duration& look_at, Choice choice);
  template <Mode kMode>
  void arrive(size_t cell, bool gradient, Duration moment);

  const Mesh& mesh_;
  Duration window_{};  // least time from the start of an op to the arrival of what it sends
  std::vector<int32_t> first_;  // seat of each stage's first holder
  std::vector<Seat> seats_;
  std::vector<Duration> look_at_;  // by seat
  Duration look_next_{};           // the earliest look_at_ after the present window
  std::vector<Duration> activation_at_, gradient_at_;  // by stage and micro-batch
  std::vector<int32_t> seat_of_;                       // by stage and micro-batch, as routed
  std::vector<int32_t> rank_;     // by stage and micro-batch: its rank at its holder
  std::vector<int32_t> by_rank_;  // micro-batches, holder after holder
  std::vector<uint8_t> went_;     // 1: the forward has begun, 2: the input gradient too
  std::vector<Lane> down_, up_;   // as mesh.ways, stage by stage
  Patience patience_;
  int64_t played_ops_ = 0;
  std::vector<std::vector<Task>>* begun_ = nullptr;  // by seat, while they are recorded
};

}  // namespace tenuto
