#include "adapt/spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "adapt/mesh_bound.h"
#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "plan/routed.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr int32_t kTooMany = INT32_MAX / 2;

// The divisions of the missing holders in which no stage costs more than a limit.
class Divisions {
 public:
  Divisions(const MissingCosts& costs, const std::vector<int32_t>& missing, Duration limit)
      : costs_(costs),
        missing_(missing),
        limit_(limit),
        all_(std::accumulate(missing.begin(), missing.end(), 0)) {
    fewest_.emplace_back(at(all_) + 1, kTooMany);
    fewest_[0][0] = 0;
    for (size_t s = 0; s < costs.size(); ++s) {
      auto& next = fewest_.emplace_back(at(all_) + 1, kTooMany);
      for (int32_t before = 0; before <= all_; ++before) {
        if (fewest_[s][at(before)] == kTooMany) continue;
        for (int32_t here = 0; before + here <= all_ && at(here) < costs[s].size(); ++here) {
          if (costs[s][at(here)] > limit_) continue;
          const int32_t moves = fewest_[s][at(before)] + arrivals(s, here);
          next[at(before + here)] = std::min(next[at(before + here)], moves);
        }
      }
    }
  }

  // The number of moves in the division that needs the fewest; none when there is no division.
  std::optional<int32_t> moves() const {
    const int32_t fewest = fewest_.back()[at(all_)];
    return fewest == kTooMany ? std::nullopt : std::optional(fewest);
  }

  // That division. Requires: there is one.
  std::vector<int32_t> division() const {
    std::vector<int32_t> missing(costs_.size());
    int32_t left = all_;
    for (size_t s = costs_.size(); s-- > 0;) {
      int32_t here = 0;
      while (costs_[s][at(here)] > limit_ ||
             fewest_[s][at(left - here)] + arrivals(s, here) != fewest_[s + 1][at(left)]) {
        ++here;
      }
      missing[s] = here;
      left -= here;
    }
    return missing;
  }

 private:
  int32_t arrivals(size_t stage, int32_t missing) const {
    return std::max(0, missing_[stage] - missing);
  }

  const MissingCosts& costs_;
  const std::vector<int32_t>& missing_;
  const Duration limit_;
  const int32_t all_;
  std::vector<std::vector<int32_t>> fewest_;  // by stages so far and what they miss together
};

// A stage's holders: first the live ones, slow before fast, then the missing ones, as if they had
// come back at full speed. If holders have to leave, the last ones in this order leave first.
struct Staff {
  std::vector<WorkerId> stay;
  int32_t missing = 0;
};

std::vector<Staff> staffs_of(const Plan& plan, const Cluster& now) {
  const size_t workers = plan.schedule.lists.size(), depth = plan.stages.size();
  std::vector<bool> holds(workers, false);
  std::vector<Staff> staffs;
  for (const Stage& stage : plan.stages) {
    Staff& staff = staffs.emplace_back();
    for (const WorkerId holder : stage.holders) {
      if (!now.workers[at(holder.value)].alive) continue;
      staff.stay.push_back(holder);
      holds[at(holder.value)] = true;
    }
    std::stable_sort(staff.stay.begin(), staff.stay.end(), [&](WorkerId a, WorkerId b) {
      return now.workers[at(a.value)].speed < now.workers[at(b.value)].speed;
    });
    staff.missing = std::max(0, static_cast<int32_t>(workers / depth - staff.stay.size()));
  }
  // A worker that holds nothing counts as a missing holder, of its own stage if possible.
  std::vector<int32_t> gaps;
  for (const Staff& staff : staffs) gaps.push_back(staff.missing);
  for (const bool at_home : {true, false}) {
    for (size_t w = 0; w < workers; ++w) {
      if (holds[w]) continue;
      size_t s = w % depth;
      if (!at_home) {
        s = static_cast<size_t>(
            std::find_if(gaps.begin(), gaps.end(), [](int32_t gap) { return gap > 0; }) -
            gaps.begin());
      }
      if (s >= depth || gaps[s] == 0) continue;
      --gaps[s];
      holds[w] = true;
      staffs[s].stay.push_back({static_cast<int32_t>(w)});
    }
  }
  return staffs;
}

// The cluster in which the dead workers have come back.
Cluster as_if_whole(Cluster cluster) {
  for (Worker& worker : cluster.workers) {
    if (!worker.alive) worker = {1.0, worker.memory, true};
  }
  return cluster;
}

Result<MissingCosts> costs_of(const Plan& plan, const std::vector<Staff>& staffs,
                              const Model& model, const Cluster& now, const PriceOptions& options) {
  Plan whole = plan;
  for (size_t s = 0; s < staffs.size(); ++s) whole.stages[s].holders = staffs[s].stay;
  const Cluster cluster = as_if_whole(now);
  const auto mesh = mesh_of(whole, model, cluster, options);
  if (!mesh.ok()) return mesh.error();
  const MeshBound bound(mesh.value());
  MissingCosts costs;
  for (int32_t s = 0; s < mesh.value().depth(); ++s) {
    auto& of = costs.emplace_back();
    for (int32_t left = mesh.value().width(s); left > 0; --left) {
      of.push_back(bound.least_of(s, left));
    }
  }
  return costs;
}

// A live worker that leaves its stage.
struct Leaver {
  WorkerId worker;
  int32_t from = 0;
  double speed = 1;
};

// The moves of a division.
std::vector<StageMove> moves_of(const Plan& plan, const Model& model, const Cluster& now,
                                const std::vector<Staff>& staffs, const Spread& spread) {
  const auto depth = static_cast<int32_t>(staffs.size());
  // True when the pipeline's own worker is missing at the stage.
  const auto has_gap = [&](int32_t stage, int32_t pipeline) {
    const WorkerId home{pipeline * depth + stage};
    return !contains(staffs[at(stage)].stay, home) || !now.workers[at(home.value)].alive;
  };
  std::vector<int32_t> to_leave(at(depth), 0);
  for (int32_t s = 0; s < depth; ++s) {
    to_leave[at(s)] = std::max(0, spread.missing[at(s)] - staffs[at(s)].missing);
  }
  std::vector<StageMove> moves;
  std::vector<WorkerId> gone;
  const auto next_leaver = [&](int32_t to) {
    std::optional<Leaver> best;
    bool best_fits = false;
    for (int32_t s = 0; s < depth; ++s) {
      if (to_leave[at(s)] == 0) continue;
      for (const WorkerId worker : staffs[at(s)].stay) {
        const Worker& state = now.workers[at(worker.value)];
        const bool left = contains(gone, worker);
        if (left || !state.alive) continue;
        const bool fits = has_gap(to, worker.value / depth);
        if (best && std::pair(state.speed, fits) <= std::pair(best->speed, best_fits)) continue;
        best = Leaver{worker, s, state.speed};
        best_fits = fits;
      }
    }
    CHECK(best, "somebody leaves for everybody who comes");
    return *best;
  };
  for (int32_t s = 0; s < depth; ++s) {
    for (int32_t i = spread.missing[at(s)]; i < staffs[at(s)].missing; ++i) {
      const Leaver leaver = next_leaver(s);
      --to_leave[at(leaver.from)];
      gone.push_back(leaver.worker);
      moves.push_back({leaver.worker, {leaver.from}, {s}, {}, {}});
      moves.back().parameters = stage_cost(model, plan.stages[at(s)]).parameters;
    }
  }
  for (StageMove& move : moves) {
    for (const WorkerId holder : staffs[at(move.to.value)].stay) {
      const bool left = contains(gone, holder);
      if (left || !now.workers[at(holder.value)].alive) continue;
      move.source = holder;
      break;
    }
  }
  return moves;
}

}  // namespace

std::optional<Spread> spread_missing(const MissingCosts& costs, const std::vector<int32_t>& missing,
                                     double gain) {
  std::vector<Duration> limits;
  for (const auto& of : costs) limits.insert(limits.end(), of.begin(), of.end());
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  // The least limit that at most `moves` moves can keep.
  const auto least_limit = [&](int32_t moves) {
    return std::partition_point(limits.begin(), limits.end(), [&](Duration limit) {
      return Divisions(costs, missing, limit).moves().value_or(kTooMany) > moves;
    });
  };
  const auto best = least_limit(kTooMany - 1);
  if (best == limits.end()) return std::nullopt;
  const Duration allowed(
      std::llround(static_cast<double>(best->count()) * (1 + std::max(0.0, gain))));
  const int32_t moves = *Divisions(costs, missing, std::max(allowed, *best)).moves();
  const Duration time = *least_limit(moves);
  return Spread{Divisions(costs, missing, time).division(), moves, time};
}

Result<std::vector<StageMove>> find_moves(const Plan& plan, const Model& model, const Cluster& now,
                                          const PriceOptions& options, double least_gain) {
  const std::vector<Staff> staffs = staffs_of(plan, now);
  std::vector<int32_t> missing;
  for (const Staff& staff : staffs) missing.push_back(staff.missing);
  if (std::all_of(missing.begin(), missing.end(), [](int32_t count) { return count == 0; })) {
    return std::vector<StageMove>();
  }
  auto costs = costs_of(plan, staffs, model, now, options);
  if (!costs.ok()) return costs.error();
  // No other stage may end up missing as many holders as the worst one did.
  const int32_t worst = *std::max_element(missing.begin(), missing.end());
  for (size_t s = 0; s < missing.size(); ++s) {
    const auto most = at(std::max(missing[s] + 1, worst));
    if (most < costs.value()[s].size()) costs.value()[s].resize(most);
  }
  const auto spread = spread_missing(costs.value(), missing, least_gain);
  if (!spread) {
    const auto alive = std::count_if(now.workers.begin(), now.workers.end(),
                                     [](const Worker& worker) { return worker.alive; });
    return Error{Code::Infeasible, Reach::Job,
                 cat("only ", alive, " workers are alive for ", staffs.size(),
                     " stages, and each stage needs one: start more workers")};
  }
  return moves_of(plan, model, now, staffs, *spread);
}

Plan with_moves(const Plan& plan, const Cluster& now, const std::vector<StageMove>& moves) {
  std::vector<std::vector<WorkerId>> holders;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    auto& of = holders.emplace_back();
    for (const WorkerId holder : plan.stages[s].holders) {
      const bool leaves = std::any_of(moves.begin(), moves.end(),
                                      [&](const StageMove& move) { return move.worker == holder; });
      if (now.workers[at(holder.value)].alive && !leaves) of.push_back(holder);
    }
    for (const StageMove& move : moves) {
      if (move.to.value == static_cast<int32_t>(s)) of.push_back(move.worker);
    }
    std::sort(of.begin(), of.end());
  }
  return with_holders(plan, std::move(holders));
}

std::vector<StageMove> moves_in(const Plan& plan, const Seats& seats) {
  const auto depth = static_cast<int32_t>(plan.stages.size());
  std::vector<StageMove> moves;
  for (int32_t s = 0; s < depth; ++s) {
    for (const WorkerId holder : plan.stages[at(s)].holders) {
      const int32_t place = seats.place_of(holder);
      if (place != s) moves.push_back({holder, {place}, {s}, {}, {}});
    }
  }
  return moves;
}

std::string describe(const std::vector<StageMove>& moves) {
  std::string text;
  for (const StageMove& move : moves) {
    text += cat(text.empty() ? "" : ", ", "worker ", move.worker, " holds stage ", move.to,
                " instead of ", move.from);
  }
  return text;
}

}  // namespace tenuto
