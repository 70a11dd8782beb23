// Makes fixed orders of a line faster by moving one op at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "adapt/line.h"
#include "base/random.h"
#include "base/watch.h"

namespace tenuto {

// The step can only become shorter when a critical path is broken: a chain of ops and messages
// that lasts the whole step, each starting when the one before it ends. On a stage the path runs
// through a block of ops that follow one another. Reordering the inside of a block gains nothing;
// only another op at its beginning or its end may gain. So a move puts an op of a block first or
// last in the block, or puts the first or last op in its place. The longest path through the ops
// whose places change is estimated from when each can start and what must follow it; the move
// with the least estimate is made, even if the step gets longer. The next few moves after a move
// may not put its ops back into their old order (tabu); so the search can get out of a local
// optimum.
//
// Source: Nowicki and Smutnicki, "A fast taboo search algorithm for the job shop problem",
//         Management Science 1996; Balas and Vazacopoulos, "Guided local search with shifting
//         bottleneck for job shop scheduling", Management Science 1998 (which ops are moved, the
//         estimate)
class Reorder {
 public:
  explicit Reorder(const Line& line);

  // Improves the order by at most `most` moves; ends when the step is no longer than `bound`, or
  // nothing can be moved. Puts the best order into `sequences` and returns how long its step is; if
  // the sequences deadlock, returns nothing and leaves them unchanged.
  //
  // Requires: the sequences keep the memory limits
  // Cost:     some 10 ns an op for each move
  std::optional<Duration> improve(std::vector<Sequence>& sequences, Duration bound, int64_t most,
                                  Watch* watch = nullptr);

 private:
  // One op at its place in the sequence of its stage.
  struct Place {
    OpKind kind{};
    int32_t micro = 0;
    Duration time{}, start{};
    Duration arrival{};  // of what it reads from another stage
    Duration message{};  // from its end to the end of the step, by the path through what it sends
    Duration tail{};     // the same by the longest path
    int64_t held = 0;    // memory in use on its stage before it

    Duration end() const { return start + time; }
  };
  // Consecutive places of a critical path on one stage.
  struct Block {
    int32_t stage = 0, first = 0, last = 0;
  };
  struct Move {
    int32_t stage = 0, from = 0, to = 0;
  };
  // The two links that leave a stage. While start times are set: the end of the last message on
  // each; while tails are set: the time from the next message to the end of the step.
  struct Ends {
    Duration down{}, up{};
  };
  // A piece of a stage's sequence that was timed in one go, and the stage's Ends before that.
  struct Piece {
    int32_t stage = 0, from = 0, to = 0;
    Ends before;
  };

  void set(const std::vector<Sequence>& sequences);
  std::vector<Sequence> sequences() const;
  void put(int32_t stage, int32_t from, int32_t to);
  // Gives starts and arrivals to the ops that have none; false when the sequences deadlock.
  bool time_all();
  // Places `low` to `high` of a stage have changed: forgets their times and all times that were set
  // later. Keeps earlier times, and the tails of ops that were timed after the last of these
  // places.
  void forget_times(int32_t stage, int32_t low, int32_t high);
  void forget_all_times();
  void run_stage(int32_t stage);
  bool has_arrived(int32_t stage, const Place& place) const;
  bool send(int32_t stage, const Place& place);
  void set_tails();
  Ends first_messages(int32_t stage, int32_t from) const;
  void find_blocks();
  std::pair<int32_t, int32_t> sender(int32_t stage, const Place& place) const;
  std::optional<Move> choose(int64_t now, Duration best);
  void consider(const Move& move, int64_t now, Duration best);
  bool may(const Move& move);
  Duration estimate(const Move& move);
  void make(const Move& move);
  void forbid(const Move& move, int64_t until);
  bool forbidden(const Move& move, int64_t now) const;
  uint64_t pair_of(int32_t stage, const Place& before, const Place& after) const;
  template <class See>
  bool any_pair(const Move& move, See see) const;

  size_t index(int32_t stage, int32_t place) const {
    return static_cast<size_t>(stage) * length_ + static_cast<size_t>(place);
  }
  size_t cell(int32_t stage, int32_t micro) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(line_.micros) +
           static_cast<size_t>(micro);
  }

  const Line& line_;
  const size_t length_;                                  // of a stage's sequence
  std::vector<Place> places_;                            // stage after stage
  std::vector<int32_t> forward_place_, backward_place_;  // by stage and micro-batch
  std::vector<Duration> activation_at_, gradient_at_;    // the same
  std::vector<int32_t> next_;                            // of each stage: place to be timed
  std::vector<Ends> ends_, behind_;                      // of the links that leave each stage
  std::vector<int32_t> queue_;                           // stages to be timed further
  std::vector<Piece> pieces_;                            // in the order of time
  std::vector<int32_t> tails_from_, true_from_;          // by stage: from here on tails are right;
                                                         // true_from_ is scratch
  std::vector<Block> blocks_;                            // of the critical path, the last first
  std::vector<Place> window_;                            // what a move changes, in its new order
  std::vector<int64_t> tabu_;                            // by pair: until which move
  Duration makespan_{};
  // The best move so far while one is chosen: of those that are not tabu, and of all.
  struct Best {
    std::optional<Move> move;
    Duration estimate = Duration::max();
    int64_t equal = 0;
  };
  Best free_, any_;
  int64_t made_ = 0;
  Random random_{11};
};

}  // namespace tenuto
