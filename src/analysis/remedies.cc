#include "analysis/remedies.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>

#include "base/text.h"

namespace tenuto::analysis {

namespace {

constexpr double kWorthNaming = 1.005;  // remedies that earn less are left out

int32_t small(size_t number) { return static_cast<int32_t>(number); }
size_t at(int32_t number) { return static_cast<size_t>(number); }

// One step like those of a recording, with other numbers of micro-batches and other durations.
class ModelStep {
 public:
  // Takes what the first step of the recording looks like.
  ModelStep(const Recording& recording, const Durations& durations) : recording_(recording) {
    const size_t workers = recording.workers.size();
    sums_.assign(recording.kinds.size() * workers, {});
    for (size_t i = 0; i < recording.ops.size(); ++i) {
      auto& [sum, count] = sums_[cell(recording.ops[i].kind, recording.ops[i].worker)];
      sum += durations.recorded[i];
      count += 1;
    }
    lists_.resize(workers);
    for (const RecordedOp& op : recording.ops) {
      if (op.step != recording.ops.front().step) break;
      const OpRole role = recording.kinds[at(op.kind)].role;
      if (role == OpRole::Forward || role == OpRole::Backward) lists_[at(op.worker)].push_back(op);
      if (role == OpRole::Collective || role == OpRole::Local) rest_.push_back(op);
    }
    warm_up_.resize(workers);
    for (size_t w = 0; w < workers; ++w) warm_up_[w] = forwards_first(lists_[w]);
  }

  // A sentence that says why other lists cannot be made, or none.
  std::optional<std::string> refusal() const {
    for (const RecordedOp& op : recording_.ops) {
      if (recording_.kinds[at(op.kind)].role == OpRole::WeightGradient) {
        return "its backwards are split";
      }
    }
    if (recording_.stages != recording_.width) return "its workers have several stages";
    if (recording_.pipelines * recording_.width != small(recording_.workers.size())) {
      return "some of its workers are absent";
    }
    const int32_t micros = micros_of(0);
    for (size_t w = 0; w < lists_.size(); ++w) {
      if (micros_of(small(w)) != micros || !is_regular(w, micros)) {
        return "its ops are in another order than a warm-up of forwards, then a backward and a "
               "forward in turn";
      }
    }
    return {};
  }

  // The micro-batches of a pipeline in the recorded step.
  int32_t micros_of(int32_t worker) const {
    int32_t count = 0;
    for (const RecordedOp& op : lists_[at(worker)]) count += is_forward(op) ? 1 : 0;
    return count;
  }

  // The mean time of a forward and a backward of a worker.
  double time_of(int32_t worker) const {
    double time = 0;
    for (size_t k = 0; k < recording_.kinds.size(); ++k) {
      const OpRole role = recording_.kinds[k].role;
      if (role == OpRole::Forward || role == OpRole::Backward) time += mean(small(k), worker);
    }
    return time;
  }

  // Changes of the step.
  struct Change {
    std::vector<int32_t> micros;    // by pipeline
    std::vector<int32_t> warm_ups;  // by worker: forwards more than recorded before the first
                                    // backward
  };

  // No change.
  Change none() const {
    Change change;
    for (int32_t p = 0; p < recording_.pipelines; ++p) {
      change.micros.push_back(micros_of(p * recording_.width));
    }
    change.warm_ups.assign(recording_.workers.size(), 0);
    return change;
  }

  // The time of a step with the change, in milliseconds.
  Result<double> length(const Change& change) const {
    Recording step;
    step.kinds = recording_.kinds;
    step.workers = recording_.workers;
    step.steps = {0};
    step.pipelines = recording_.pipelines;
    step.stages = recording_.stages;
    step.width = recording_.width;
    for (int32_t w = 0; w < small(lists_.size()); ++w) {
      const int32_t micros = change.micros[at(recording_.workers[at(w)].pipeline)];
      if (micros > 0) add_worker(step, w, micros, change.warm_ups[at(w)]);
    }
    const auto graph = StepGraph::make(step, 0, step.ops.size());
    if (!graph.ok()) return graph.error();
    std::vector<double> durations;
    for (const RecordedOp& op : step.ops) durations.push_back(mean(op.kind, op.worker));
    return graph.value().length(durations);
  }

 private:
  size_t cell(int32_t kind, int32_t worker) const {
    return at(kind) * recording_.workers.size() + at(worker);
  }
  double mean(int32_t kind, int32_t worker) const {
    const auto& [sum, count] = sums_[cell(kind, worker)];
    return count > 0 ? sum / count : 0;
  }
  bool is_forward(const RecordedOp& op) const {
    return recording_.kinds[at(op.kind)].role == OpRole::Forward;
  }
  int32_t forwards_first(const std::vector<RecordedOp>& list) const {
    int32_t count = 0;
    for (const RecordedOp& op : list) {
      if (!is_forward(op)) break;
      ++count;
    }
    return count;
  }

  // Forwards (true) and backwards of a list with so many micro-batches.
  static std::vector<bool> order(int32_t micros, int32_t warm_up) {
    std::vector<bool> list;
    int32_t forwards = 0;
    for (; forwards < std::min(micros, warm_up); ++forwards) list.push_back(true);
    for (int32_t backwards = 0; backwards < micros; ++backwards) {
      list.push_back(false);
      if (forwards < micros) {
        list.push_back(true);
        ++forwards;
      }
    }
    return list;
  }

  bool is_regular(size_t worker, int32_t micros) const {
    const std::vector<bool> expected = order(micros, warm_up_[worker]);
    if (expected.size() != lists_[worker].size()) return false;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (is_forward(lists_[worker][i]) != expected[i]) return false;
    }
    return true;
  }

  int32_t kind_with(OpRole role, bool gradient) const {
    for (size_t k = 0; k < recording_.kinds.size(); ++k) {
      const OpKindSeen& kind = recording_.kinds[k];
      const bool fits = kind.role == role && kind.gradient == gradient;
      if (fits && has_ops(small(k))) return small(k);
    }
    return -1;
  }
  bool has_ops(int32_t kind) const {
    for (int32_t w = 0; w < small(recording_.workers.size()); ++w) {
      if (sums_[cell(kind, w)].second > 0) return true;
    }
    return false;
  }

  // The starts of the ops only say their order.
  void add_worker(Recording& step, int32_t worker, int32_t micros, int32_t more) const {
    const RecordedWorker& seat = recording_.workers[at(worker)];
    // GPipe runs all forwards first, however many there are.
    const bool all_first = warm_up_[at(worker)] == micros_of(worker);
    const int32_t warm_up = all_first ? micros : std::max(1, warm_up_[at(worker)] + more);
    std::array<int32_t, 2> next = {0, 0};
    double time = 0;
    const auto add = [&](int32_t kind, int32_t stage, int32_t micro) {
      if (kind < 0) return;
      step.ops.push_back({kind, worker, 0, stage, micro, seat.pipeline, time, time});
    };
    for (const RecordedOp& op : rest_) {
      if (op.worker == worker && recording_.kinds[at(op.kind)].first) add(op.kind, op.stage, -1);
    }
    for (const bool forward : order(micros, warm_up)) {
      ++time;
      const int32_t micro = next[forward ? 0 : 1]++;
      const int32_t from = forward ? seat.stage - 1 : seat.stage + 1;
      const int32_t to = forward ? seat.stage + 1 : seat.stage - 1;
      const OpRole role = forward ? OpRole::Forward : OpRole::Backward;
      if (from >= 0 && from < step.width) add(kind_with(OpRole::Receive, !forward), from, micro);
      add(kind_with(role, false), seat.stage, micro);
      if (to >= 0 && to < step.width) add(kind_with(OpRole::Send, !forward), seat.stage, micro);
    }
    for (const RecordedOp& op : rest_) {
      if (op.worker != worker || recording_.kinds[at(op.kind)].first) continue;
      ++time;
      add(op.kind, op.stage, -1);
    }
  }

  const Recording& recording_;
  std::vector<std::pair<double, double>> sums_;  // by kind and worker: sum of times, their number
  std::vector<std::vector<RecordedOp>> lists_;   // by worker: forwards and backwards, in order
  std::vector<RecordedOp> rest_;                 // collectives and local work
  std::vector<int32_t> warm_up_;
};

// So many micro-batches for each pipeline that the one which takes longest takes as short as
// possible. `times`: of one micro-batch, by pipeline; 0 = takes none.
std::vector<int32_t> shared_out(int32_t micros, const std::vector<double>& times) {
  std::vector<int32_t> shares(times.size(), 0);
  for (int32_t m = 0; m < micros; ++m) {
    size_t best = times.size();
    double least = 0;
    for (size_t p = 0; p < times.size(); ++p) {
      const double after = (shares[p] + 1) * times[p];
      if (times[p] > 0 && (best == times.size() || after < least)) {
        best = p;
        least = after;
      }
    }
    if (best == times.size()) break;
    ++shares[best];
  }
  return shares;
}

// Finds and prices the remedies of one run.
class Pricing {
 public:
  Pricing(const Recording& recording, const std::vector<StepGraph>& graphs,
          const Durations& durations, const Analysis& found)
      : recording_(recording),
        graphs_(graphs),
        durations_(durations),
        found_(found),
        step_(recording, durations) {}

  Remedies price() {
    if (found_.suspects.empty()) return {};
    replace();
    layers();
    if (const auto refusal = step_.refusal()) {
      remedies_.notes.push_back(cat("other shares and orders are not priced: ", *refusal));
    } else if (const auto now = step_.length(step_.none()); now.ok() && now.value() > 0) {
      now_ms_ = now.value();
      shares();
      drop();
      warm_up();
    }
    std::stable_sort(remedies_.priced.begin(), remedies_.priced.end(),
                     [](const Remedy& a, const Remedy& b) { return a.speedup > b.speedup; });
    return std::move(remedies_);
  }

 private:
  void add(const char* name, std::string what, double time, double now) {
    if (time <= 0 || now / time < kWorthNaming) return;
    // Steps of means differ a little from the recorded ones, so their ratio is what is told.
    const double step_ms = found_.replayed_ms * time / now;
    remedies_.priced.push_back({name, std::move(what), step_ms, now / time});
  }

  void replace() {
    const double lost = found_.replayed_ms - found_.balanced_ms;
    std::string names;
    for (const Suspect& suspect : found_.suspects) {
      if (suspect.kind == Suspect::Kind::Operation) return;
      names += cat(names.empty() ? "" : ", ", share_of(found_, suspect).name);
    }
    add("replace", cat("the balanced durations for ", names),
        found_.replayed_ms - found_.recovered * lost, found_.replayed_ms);
  }

  // Times of a stage's compute ops: of its slowest worker, over all steps.
  void layers() {
    if (recording_.width < 2 || recording_.stages != recording_.width) return;
    std::vector<double> times(at(recording_.width), 0);
    for (int32_t w = 0; w < small(recording_.workers.size()); ++w) {
      double& time = times[at(recording_.workers[at(w)].stage)];
      time = std::max(time, step_.time_of(w));
    }
    double speeds = 0;
    for (const double time : times) {
      if (time <= 0) return;
      speeds += 1 / time;
    }
    std::vector<double> changed = durations_.recorded;
    for (size_t i = 0; i < changed.size(); ++i) {
      const RecordedOp& op = recording_.ops[i];
      const OpRole role = recording_.kinds[at(op.kind)].role;
      if (role != OpRole::Forward && role != OpRole::Backward) continue;
      const double time = times[at(recording_.workers[at(op.worker)].stage)];
      changed[i] *= static_cast<double>(recording_.width) / time / speeds;
    }
    double sum = 0;
    for (const StepGraph& graph : graphs_) sum += graph.length(changed);
    std::string parts;
    for (const double time : times) {
      const double part = static_cast<double>(recording_.width) / time / speeds;
      parts += cat(parts.empty() ? "" : ", ", fixed(100 * part, 0), " %");
    }
    add("layers",
        cat("layers moved between the stages, to ", parts,
            " of what they have (if all have as many, and layers can be cut anywhere)"),
        sum / static_cast<double>(graphs_.size()), found_.replayed_ms);
  }

  // The time of a micro-batch at the slowest stage, by pipeline.
  std::vector<double> pipeline_times() const {
    std::vector<double> times(at(recording_.pipelines), 0);
    for (int32_t w = 0; w < small(recording_.workers.size()); ++w) {
      double& time = times[at(recording_.workers[at(w)].pipeline)];
      time = std::max(time, step_.time_of(w));
    }
    return times;
  }

  void try_shares(const char* name, const std::vector<double>& times, const std::string& what) {
    ModelStep::Change change = step_.none();
    const int32_t micros = std::accumulate(change.micros.begin(), change.micros.end(), 0);
    change.micros = shared_out(micros, times);
    if (std::accumulate(change.micros.begin(), change.micros.end(), 0) < micros) return;
    const auto time = step_.length(change);
    if (!time.ok()) return;
    std::string counts;
    for (const int32_t count : change.micros) counts += cat(counts.empty() ? "" : ", ", count);
    add(name, cat(what, ": ", counts, " micro-batches"), time.value(), now_ms_);
  }

  void shares() {
    if (recording_.pipelines < 2) return;
    try_shares("shares", pipeline_times(), "shares of the pipelines by their speed");
  }

  void drop() {
    if (recording_.pipelines < 2) return;
    const Suspect& first = found_.suspects.front();
    int32_t pipeline = -1;
    if (first.kind == Suspect::Kind::Worker) {
      pipeline = recording_.workers[at(first.index)].pipeline;
    } else if (first.kind == Suspect::Kind::Link) {
      pipeline = recording_.workers[at(found_.links[at(first.index)].first)].pipeline;
    } else {
      return;
    }
    std::vector<double> times = pipeline_times();
    times[at(pipeline)] = 0;
    try_shares("drop", times, cat("pipeline ", pipeline, " dropped"));
  }

  void warm_up() {
    std::set<int32_t> before;  // stages before a slow link
    for (const Suspect& suspect : found_.suspects) {
      if (suspect.kind != Suspect::Kind::Link) continue;
      const LinkOf& link = found_.links[at(suspect.index)];
      const int32_t last = std::min(recording_.workers[at(link.first)].stage,
                                    recording_.workers[at(link.second)].stage);
      for (int32_t s = 0; s <= last; ++s) before.insert(s);
    }
    if (before.empty()) return;
    int32_t best = 0;
    double least = now_ms_;
    for (const int32_t more : {1, 2, 4}) {
      ModelStep::Change change = step_.none();
      for (size_t w = 0; w < change.warm_ups.size(); ++w) {
        if (before.count(recording_.workers[w].stage) > 0) change.warm_ups[w] = more;
      }
      const auto time = step_.length(change);
      if (!time.ok() || time.value() >= least) continue;
      best = more;
      least = time.value();
    }
    if (best == 0) return;
    add("warm-up",
        cat(best, " more forwards ahead in stages 0 to ", *before.rbegin(),
            ", which need the memory for as many micro-batches more"),
        least, now_ms_);
  }

  const Recording& recording_;
  const std::vector<StepGraph>& graphs_;
  const Durations& durations_;
  const Analysis& found_;
  ModelStep step_;
  double now_ms_ = 0;
  Remedies remedies_;
};

}  // namespace

Remedies price_remedies(const Recording& recording, const std::vector<StepGraph>& graphs,
                        const Durations& durations, const Analysis& found) {
  return Pricing(recording, graphs, durations, found).price();
}

}  // namespace tenuto::analysis
