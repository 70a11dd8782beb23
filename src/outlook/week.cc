#include "outlook/week.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/longest_time.h"

namespace tenuto::outlook {

namespace {

// The troubles that are in effect for a run.
class Present {
 public:
  Present(const std::vector<Trouble>& troubles, bool grow, Stepping stepping)
      : troubles_(troubles), grow_(grow), stepping_(stepping), phases_(troubles.size()) {}

  // What has changed since the call before.
  struct News {
    int32_t deaths = 0, returns = 0;
    bool any = false;
  };

  // Lets everything begin and end that is due. `down`: the run is not going on, so that repaired
  // workers need not wait.
  News advance(Duration now, bool down) {
    News news;
    if (stepping_ == Stepping::EachStep) {
      for (size_t i = 0; i < troubles_.size(); ++i) {
        if (phases_[i] == Phase::Ahead && troubles_[i].begin <= now) begin(i, news);
      }
      for (size_t i = 0; i < troubles_.size(); ++i) {
        if (phases_[i] == Phase::Active && troubles_[i].end <= now) end(i, down, news);
      }
      return news;
    }
    for (; next_ < troubles_.size() && troubles_[next_].begin <= now; ++next_) {
      begin(next_, news);
      ends_.emplace(troubles_[next_].end, next_);
    }
    for (; !ends_.empty() && ends_.top().first <= now; ends_.pop()) {
      end(ends_.top().second, down, news);
    }
    return news;
  }

  // The next moment at which something begins or ends.
  Duration next_change() const {
    Duration next = kLongestTime;
    if (stepping_ == Stepping::Changes) {
      if (next_ < troubles_.size()) next = troubles_[next_].begin;
      if (!ends_.empty()) next = std::min(next, ends_.top().first);
      return next;
    }
    for (size_t i = 0; i < troubles_.size(); ++i) {
      if (phases_[i] == Phase::Ahead) next = std::min(next, troubles_[i].begin);
      if (phases_[i] == Phase::Active) next = std::min(next, troubles_[i].end);
    }
    return next;
  }

  // All repaired workers are members again. Returns whether there were any.
  bool take_up() {
    bool any = false;
    for (auto it = effective_.begin(); it != effective_.end();) {
      const bool waits = phases_[*it] == Phase::Waiting;
      if (waits) phases_[*it] = Phase::Over;
      it = waits ? effective_.erase(it) : std::next(it);
      any |= waits;
    }
    return any;
  }

  Condition condition() const {
    std::vector<Trouble> all;
    if (stepping_ == Stepping::EachStep) {
      for (size_t i = 0; i < troubles_.size(); ++i) {
        const bool counts = phases_[i] == Phase::Active || phases_[i] == Phase::Waiting;
        if (counts) all.push_back(troubles_[i]);
      }
    } else {
      for (const size_t i : effective_) all.push_back(troubles_[i]);
    }
    return condition_of(all);
  }

 private:
  // Waiting: a repaired worker that is not a member yet.
  enum class Phase : uint8_t { Ahead, Active, Waiting, Over };

  void begin(size_t i, News& news) {
    phases_[i] = Phase::Active;
    effective_.insert(i);
    news.any = true;
    if (troubles_[i].kind == TroubleKind::DeadWorker) ++news.deaths;
  }

  void end(size_t i, bool down, News& news) {
    const bool dead = troubles_[i].kind == TroubleKind::DeadWorker;
    if (dead && !grow_ && !down) {
      phases_[i] = Phase::Waiting;
      return;
    }
    phases_[i] = Phase::Over;
    effective_.erase(i);
    news.any = true;
    if (dead) ++news.returns;
  }

  const std::vector<Trouble>& troubles_;
  const bool grow_;
  const Stepping stepping_;
  std::vector<Phase> phases_;
  std::set<size_t> effective_;  // active or waiting
  size_t next_ = 0;             // of those that are ahead
  using End = std::pair<Duration, size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // of the active ones
};

class Run {
 public:
  Run(const WeekSetup& setup, const std::vector<Trouble>& troubles, StepPrices& prices,
      Stepping stepping)
      : setup_(setup),
        remedies_(prices.remedies()),
        prices_(prices),
        stepping_(stepping),
        present_(troubles, remedies_.grow, stepping) {
    result_.over_time.assign(static_cast<size_t>(setup.buckets), 0);
    look();
  }

  WeekResult finish() {
    while (now_ < setup_.length) {
      hear();
      if (now_ >= setup_.length) break;
      if (present_.next_change() <= now_) continue;  // something fell into a pause
      if (!cost_) {
        wait();
      } else if (down_) {
        down_ = false;
        pause(PauseKind::Restart);
      } else if (!step()) {
        result_.unfinished = setup_.length - now_;
        now_ = setup_.length;
      }
    }
    return std::move(result_);
  }

 private:
  // Takes in what has begun and ended.
  void hear() {
    const Present::News news = present_.advance(now_, down_);
    if (news.any || stepping_ == Stepping::EachStep) look();
    if (news.deaths > 0 && (!remedies_.reroute || !cost_)) {
      lose();
      down_ = true;
      if (present_.take_up()) look();
    } else if (!down_ && news.deaths > 0) {
      pause(PauseKind::Death);
    }
    if (!down_ && news.returns > 0) pause(PauseKind::Join);
  }

  // Prices a step under the present troubles, and the same with layers moved between the stages.
  void look() {
    const Condition condition = present_.condition();
    cost_ = prices_.of(condition, layers_);
    gain_ = {};
    if (!remedies_.layers || !cost_) return;
    better_ = prices_.best_layers(condition);
    const auto moved = prices_.of(condition, better_);
    if (moved) gain_ = std::max(Duration{}, cost_->time - moved->time);
  }

  void wait() {
    const Duration until = std::min(present_.next_change(), setup_.length);
    result_.waiting += until - now_;
    now_ = until;
  }

  void pause(PauseKind kind) {
    const Duration lasts = std::min(setup_.pause(kind), setup_.length - now_);
    result_.pauses[static_cast<size_t>(kind)] += lasts;
    now_ += lasts;
  }

  // Does one step, or all steps until something changes. Returns false when the step would end
  // after the run.
  bool step() {
    const Duration time = cost_->time;
    CHECK(time > Duration{}, "a step takes time");
    int64_t count = 1;
    if (stepping_ == Stepping::Changes) {
      const Duration until = std::min(present_.next_change(), setup_.length);
      count = std::max<int64_t>(1, (until - now_ + time - Duration(1)) / time);
    }
    if (gain_ > Duration{}) count = std::min(count, steps_before_move());
    count = std::min<int64_t>(count, (setup_.length - now_) / time);
    if (count == 0) return false;
    record(count, time);
    result_.above_bound += count * (time - cost_->bound);
    result_.training += count * time;
    result_.steps += count;
    now_ += count * time;
    if (gain_ > Duration{}) {
      owed_ += count * gain_;
      if (owed_ >= setup_.pause(PauseKind::Layers)) move();
    }
    return true;
  }

  int64_t steps_before_move() const {
    const Duration left = setup_.pause(PauseKind::Layers) - owed_;
    return std::max<int64_t>(1, (left + gain_ - Duration(1)) / gain_);
  }

  void move() {
    owed_ = {};
    layers_ = better_;
    look();
    pause(PauseKind::Layers);
  }

  // Notes when the steps end.
  void record(int64_t count, Duration time) {
    if (!done_.empty() && done_.back().second == time) {
      done_.back().first += count;
    } else {
      done_.emplace_back(count, time);
    }
    const Duration width = setup_.bucket();
    for (int64_t noted = 0; noted < count;) {
      const int64_t bucket = (now_ + (noted + 1) * time - Duration(1)) / width;
      const int64_t upto = std::min<int64_t>(count, ((bucket + 1) * width - now_) / time);
      result_.over_time[static_cast<size_t>(bucket)] += upto - noted;
      noted = upto;
    }
  }

  // Takes back the steps since the newest checkpoint.
  void lose() {
    int64_t left = result_.steps % setup_.checkpoint_steps;
    result_.steps -= left;
    result_.lost_steps += left;
    for (int64_t noted = left, bucket = setup_.buckets - 1; noted > 0; --bucket) {
      int64_t& there = result_.over_time[static_cast<size_t>(bucket)];
      const int64_t taken = std::min(there, noted);
      there -= taken;
      noted -= taken;
    }
    while (left > 0) {
      auto& [count, time] = done_.back();
      const int64_t taken = std::min(count, left);
      result_.training -= taken * time;
      result_.lost += taken * time;
      left -= taken;
      count -= taken;
      if (count == 0) done_.pop_back();
    }
  }

  const WeekSetup& setup_;
  const Remedies remedies_;
  StepPrices& prices_;
  const Stepping stepping_;
  Present present_;
  Duration now_{};
  bool down_ = false;  // the run has stopped, and restarts as soon as it can
  LayerCounts layers_, better_;
  std::optional<StepCost> cost_;
  Duration gain_{};                                 // of a step, if the layers moved
  Duration owed_{};                                 // lost by not moving them
  std::vector<std::pair<int64_t, Duration>> done_;  // steps that count, and the time of each
  WeekResult result_;
};

}  // namespace

Duration WeekResult::total() const {
  Duration all = training + lost + waiting + unfinished;
  for (const Duration pause : pauses) all += pause;
  return all;
}

WeekResult run_week(const WeekSetup& setup, const std::vector<Trouble>& troubles,
                    StepPrices& prices, Stepping stepping) {
  return Run(setup, troubles, prices, stepping).finish();
}

}  // namespace tenuto::outlook
