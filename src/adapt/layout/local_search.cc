#include "adapt/layout/local_search.h"

#include <algorithm>
#include <utility>

namespace tenuto {

namespace {

constexpr size_t kMoves = 4000;       // device moves of a neighbourhood that is listed completely
constexpr size_t kSample = 300;       // else
constexpr size_t kChunk = 64;         // neighbours that are compared before some are simulated
constexpr size_t kStarts = 12;        // shapes to descend from
constexpr int32_t kPatience = 12;     // kicks without success before another start
constexpr double kWorse = 1.005;      // a kicked draft this much slower is still kicked further
constexpr double kBoundBlocks = 4;    // a bound costs as much as this and one block for each stage
constexpr double kRateBlocks = 0.3;   // a move costs this for each pair of kinds of a stage
constexpr double kBelow = 1 - 1e-12;  // a neighbour must be shorter by more than rounding
constexpr const char* kMoved = ", moved";

// The changed stages of a move, from the first to the last; cuts around them are balanced.
std::pair<int32_t, int32_t> changed_by(const DraftMove& move, int32_t stages) {
  if (stages <= 16) return {0, stages};
  int32_t first = std::min(move.one, move.other), last = std::max(move.one, move.other);
  if (first == kIdle) first = last;
  // Stages far from each other would mean all cuts between them.
  if (last - first > 8) first = last;
  return {first - 1, last + 1};
}

double capacity_of(const Draft& draft) {
  double capacity = 0;
  for (const DraftStage& stage : draft.stages) capacity += stage.replicas * stage.speed;
  return capacity;
}

}  // namespace

void LocalSearch::consider(const DraftMove& move, const PricedDraft& from,
                           std::vector<Neighbour>& all) {
  const LayoutProblem& problem = table_.problem();
  const auto stages = static_cast<double>(from.draft.stages.size());
  scratch_ = from.draft;
  make_move(table_, move, scratch_);
  const Layers whole{0, problem.layer_count()};
  const double work =
      problem.settings().micros * (problem.forward(whole) + problem.backward(whole));
  size_t widest = 0;
  for (const DraftStage& stage : scratch_.stages) widest = std::max(widest, stage.devices.size());
  double bounds = 1;
  if (work / capacity_of(scratch_) >= from.makespan * kBelow) return;
  if (move.kind != DraftMoveKind::Cut) {
    const auto [first, last] = changed_by(move, static_cast<int32_t>(scratch_.stages.size()));
    bounds += static_cast<double>(balance_cuts(table_, first, last, scratch_));
  }
  const double least = least_makespan(scratch_.loads);
  pricer_.charge((bounds + 1) * (kBoundBlocks + stages) +
                 static_cast<double>(widest * widest) * kRateBlocks);
  if (least >= from.makespan * kBelow) return;
  all.push_back({guess_of(scratch_.loads), scratch_});
}

bool LocalSearch::improve(std::vector<DraftMove> moves, PricedDraft& draft) {
  if (moves.size() > kChunk) shuffle(moves);
  std::vector<Neighbour> all;
  for (size_t begun = 0; begun < moves.size() && !is_over(); begun += kChunk) {
    all.clear();
    for (size_t i = begun; i < std::min(moves.size(), begun + kChunk); ++i) {
      consider(moves[i], draft, all);
    }
    std::stable_sort(all.begin(), all.end(), [](const Neighbour& one, const Neighbour& other) {
      return one.guess < other.guess;
    });
    for (Neighbour& neighbour : all) {
      const double limit = draft.makespan * kBelow;
      const double makespan = pricer_.price(neighbour.draft, limit, draft.how);
      if (makespan >= limit) continue;
      draft.draft = std::move(neighbour.draft);
      draft.makespan = makespan;
      return true;
    }
  }
  return false;
}

void LocalSearch::shuffle(std::vector<DraftMove>& moves) {
  for (size_t i = moves.size(); i > 1; --i) {
    std::swap(moves[i - 1], moves[static_cast<size_t>(random_.below(static_cast<int64_t>(i)))]);
  }
}

PricedDraft LocalSearch::descend(PricedDraft draft) {
  // There are fewer moves of cuts, and each is less work.
  while (!is_over()) {
    if (improve(cut_moves(draft.draft), draft)) continue;
    if (!improve(device_moves(draft.draft, kMoves, kSample, random_), draft)) break;
  }
  return draft;
}

PricedDraft LocalSearch::kicked(const PricedDraft& from) {
  PricedDraft kicked = from;
  const int64_t moves = 1 + random_.below(3);
  for (int64_t i = 0; i < moves; ++i) {
    const std::vector<DraftMove> all = device_moves(kicked.draft, 0, 16, random_);
    const std::vector<DraftMove> cuts = cut_moves(kicked.draft);
    const auto pick = [&](const std::vector<DraftMove>& list) {
      make_move(table_, list[static_cast<size_t>(random_.below(static_cast<int64_t>(list.size())))],
                kicked.draft);
    };
    if (!all.empty() && (cuts.empty() || random_.below(4) > 0)) {
      pick(all);
    } else if (!cuts.empty()) {
      pick(cuts);
    }
  }
  if (kicked.draft.stages.size() <= 32) {
    const auto last = static_cast<int32_t>(kicked.draft.stages.size());
    const auto bounds = static_cast<double>(balance_cuts(table_, 0, last, kicked.draft));
    pricer_.charge(bounds * (kBoundBlocks + last));
  }
  kicked.makespan = pricer_.price(kicked.draft, kNotPriced, from.how);
  return kicked;
}

void LocalSearch::run(double until) {
  until_ = until;
  std::vector<PricedDraft> starts = pricer_.best_of_shapes();
  if (starts.size() > kStarts) starts.resize(kStarts);
  for (PricedDraft& start : starts) {
    if (is_over()) return;
    if (!start.how.ends_with(kMoved)) start.how += kMoved;
    descend(start);
  }
  while (!is_over()) {
    std::vector<PricedDraft> shapes = pricer_.best_of_shapes();
    // The better a shape, the more often it is kicked.
    const auto most = static_cast<int64_t>(std::min(shapes.size(), kStarts));
    const int64_t pick = random_.below(1 + random_.below(most));
    PricedDraft current = shapes[static_cast<size_t>(pick)];
    double least = current.makespan;
    for (int32_t fails = 0; fails < kPatience && !is_over(); ++fails) {
      const PricedDraft next = descend(kicked(current));
      pricer_.charge(kBoundBlocks);
      if (next.makespan <= current.makespan * kWorse) current = next;
      if (next.makespan < least * kBelow) {
        least = next.makespan;
        fails = -1;
      }
    }
  }
}

}  // namespace tenuto
