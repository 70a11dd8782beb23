#include "world/chaos.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "world/job.h"

namespace tenuto {

namespace {

constexpr int64_t kNever = INT64_MAX;

class Chaos {
 public:
  Chaos(const Fault& chaos, const Job& job)
      : every_(chaos.every),
        stages_(job.parallel.stages),
        seats_(job.seats()),
        widths_(seats_.widths(job.parallel.pipelines)),
        pipelines_(*std::max_element(widths_.begin(), widths_.end())),
        ops_(3 * std::max(1, job.micro_count() / pipelines_)),
        end_(chaos.until_step < 0 ? job.steps : std::min(job.steps, chaos.until_step)),
        longest_ms_(1 + static_cast<int64_t>(1000 * job.resilience.silence_seconds / 3)),
        random_(mix(static_cast<uint64_t>(chaos.seed), 97)),
        free_from_(static_cast<size_t>(stages_) * static_cast<size_t>(pipelines_), 0) {
    CHECK(every_ >= 1, "chaos has at least one step from one fault to the next");
    const bool survives = pipelines_ > 1 && job.resilience.dead_workers == "continue";
    for (int32_t s = 0; s < stages_; ++s) {
      const int32_t spared = below(pipelines_) % width(s);
      for (int32_t p = 0; p < pipelines_; ++p) {
        if (!survives || p == spared) free_from_[at(p, s)] = kNever;
      }
    }
    // Replicas that do not make steps together rehearse no faults of steps (world/sync_fit.h).
    const bool steps = !job.is_served();
    add(steps && survives, 3, &Chaos::end_worker);
    add(steps, 1, &Chaos::pause_worker);
    add(steps, 1, &Chaos::cut_off_worker);
    add(steps, 1, &Chaos::skew_clock);
    add(steps, 2, &Chaos::slow_worker);
    add(steps && stages_ > 1, 2, &Chaos::slow_link);
    add(steps && stages_ > 1, 1, &Chaos::break_connection);
    add(steps && job.coordinator.store != "memory", 1, &Chaos::kill_coordinator);
    // The last ones, so that a seed without hogs draws what it has always drawn.
    const bool hogs = chaos.hogs && job.device.kind != "paced";
    add(hogs, 1, &Chaos::take_processors);
    add(hogs, 1, &Chaos::take_bandwidth);
  }

  std::vector<Fault> draw(int64_t first) {
    if (kinds_.empty()) return {};
    for (int64_t step = first; step < end_; step += 1 + random_.below(2 * every_ - 1)) {
      (this->*kinds_[static_cast<size_t>(below(static_cast<int32_t>(kinds_.size())))])(step);
    }
    std::stable_sort(faults_.begin(), faults_.end(), [](const Fault& left, const Fault& right) {
      return left.at_step < right.at_step;
    });
    return std::move(faults_);
  }

 private:
  using Kind = void (Chaos::*)(int64_t step);

  void add(bool possible, int weight, Kind kind) {
    if (possible) kinds_.insert(kinds_.end(), static_cast<size_t>(weight), kind);
  }
  int32_t below(int32_t bound) { return static_cast<int32_t>(random_.below(bound)); }
  size_t at(int32_t pipeline, int32_t stage) const {
    return static_cast<size_t>(pipeline * stages_ + stage);
  }
  Fault& fault(const char* kind, int64_t step) {
    Fault& it = faults_.emplace_back();
    it.kind = kind;
    it.at_step = step;
    return it;
  }
  int32_t width(int32_t stage) const { return widths_[static_cast<size_t>(stage)]; }
  // A random place as pipeline and stage.
  std::pair<int32_t, int32_t> place() {
    const int32_t pipeline = below(pipelines_), stage = below(stages_);
    return {pipeline % width(stage), stage};
  }
  std::string worker() {
    const auto [pipeline, stage] = place();
    return cat(pipeline, ".", stage);
  }
  // A random until_step, later than `step` by at most four times the average gap between faults.
  int64_t some_steps_after(int64_t step) { return step + 1 + random_.below(4 * every_); }

  void end_worker(int64_t step) {
    const auto [pipeline, stage] = place();
    int64_t& free_from = free_from_[at(pipeline, stage)];
    const bool stops = below(4) == 0;
    const int32_t op = below(ops_);
    const int64_t back = step + every_ + random_.below(2 * every_);
    if (free_from > step) return;  // it is gone already, or it is spared
    Fault& gone = fault(stops ? "stop" : "kill", step);
    gone.worker = cat(pipeline, ".", stage);
    gone.at_op = op;
    free_from = back < end_ ? back + 1 : kNever;
    if (back < end_) fault("start", back).worker = cat(pipeline, ".", stage);
  }

  // So short that a worker is not declared dead, even if two such times follow each other.
  double some_time() { return 1 + static_cast<double>(random_.below(longest_ms_)); }

  void pause_worker(int64_t step) {
    Fault& stands = fault("stop", step);
    stands.worker = worker();
    stands.at_op = below(ops_);
    stands.for_ms = some_time();
  }

  void cut_off_worker(int64_t step) {
    Fault& partition = fault("partition", step);
    partition.worker = worker();
    partition.for_ms = some_time();
  }

  void skew_clock(int64_t step) {
    Fault& skew = fault("clock-skew", step);
    skew.worker = worker();
    skew.skew_ms = below(2) == 0 ? 1 + below(500) : -1 - below(500);
    skew.until_step = some_steps_after(step);
  }

  void slow_worker(int64_t step) {
    Fault& slow = fault("slow-worker", step);
    slow.worker = worker();
    slow.speed = (3 + below(6)) / 10.0;
    slow.until_step = some_steps_after(step);
  }

  void slow_link(int64_t step) {
    Fault& slow = fault("slow-link", step);
    slow.link = below(stages_ - 1);
    slow.latency_ms = 5 + below(30);
    slow.jitter_ms = below(5);
    slow.until_step = some_steps_after(step);
  }

  void break_connection(int64_t step) {
    Fault& broken = fault("broken-connection", step);
    const int32_t pipeline = below(pipelines_), stage = below(stages_ - 1);
    if (below(2) == 0) {
      broken.link = stage;
    } else {
      broken.from = seats_.worker(pipeline % width(stage), stage).value;
      broken.to = seats_.worker(pipeline % width(stage + 1), stage + 1).value;
    }
  }

  // A hog beside a worker, half of the time for some steps, and otherwise for some time.
  Fault& hog(const char* kind, int64_t step) {
    Fault& takes = fault(kind, step);
    takes.worker = worker();
    if (below(2) == 0) {
      takes.until_step = some_steps_after(step);
    } else {
      takes.for_ms = some_time();
    }
    return takes;
  }

  void take_processors(int64_t step) { hog("cpu-hog", step).threads = 1 + below(4); }

  void take_bandwidth(int64_t step) {
    hog("bandwidth-hog", step).megabytes_per_second = 1 + below(100);
  }

  void kill_coordinator(int64_t step) { fault("kill-coordinator", step); }

  const int64_t every_;
  const int32_t stages_;
  const Seats seats_;
  const std::vector<int32_t> widths_;  // workers of each stage
  const int32_t pipelines_;            // the largest of them
  const int32_t ops_;  // every worker runs at least so many ops in a step, whatever its stage
  const int64_t end_;
  const int64_t longest_ms_;
  Random random_;
  std::vector<int64_t> free_from_;  // by worker: the first step in which it may be killed, or
                                    // stopped for good
  std::vector<Kind> kinds_;         // each one repeated by its weight
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> draw_chaos(const Fault& chaos, const Job& job) {
  return Chaos(chaos, job).draw(chaos.at_step);
}

}  // namespace tenuto
