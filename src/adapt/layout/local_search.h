// Improves drafts by changes of one place at a time.
#pragma once

#include <vector>

#include "adapt/layout/draft.h"
#include "adapt/layout/draft_move.h"
#include "adapt/layout/draft_pricer.h"
#include "base/random.h"

namespace tenuto {

// Looks for shorter steps near known drafts. The neighbours of a draft differ from it by one
// DraftMove, after which the cuts near the changed stages are balanced. Those with a bound below
// the step of the draft are simulated, the most promising ones first.
class LocalSearch {
 public:
  LocalSearch(const DraftTable& table, DraftPricer& pricer) : table_(table), pricer_(pricer) {}

  // Descends from the best draft of each of the best shapes, and then again and again from changed
  // copies of them, until the pricer has counted `until` blocks.
  void run(double until);
  // Goes to shorter neighbours while there are any.
  PricedDraft descend(PricedDraft draft);

 private:
  struct Neighbour {
    double guess = 0;
    Draft draft;
  };
  // Makes a move that shortens the step, if there is one. Takes the moves in random order, some at
  // a time, and of these the most promising ones first.
  bool improve(std::vector<DraftMove> moves, PricedDraft& draft);
  void shuffle(std::vector<DraftMove>& moves);
  void consider(const DraftMove& move, const PricedDraft& from, std::vector<Neighbour>& all);
  PricedDraft kicked(const PricedDraft& from);
  bool is_over() const { return pricer_.is_over() || pricer_.spent() >= until_; }

  const DraftTable& table_;
  DraftPricer& pricer_;
  double until_ = 0;
  Random random_{11};
  Draft scratch_;
};

}  // namespace tenuto
