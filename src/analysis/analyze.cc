#include "analysis/analyze.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"

namespace tenuto::analysis {

namespace {

constexpr double kBalanced = 1.05;    // a run that is no slower has no suspects
constexpr double kLargePart = 0.3;    // of the lost time: what makes a part a suspect
constexpr double kSameWorker = 1.02;  // a worker whose link explains all of it is no suspect

int32_t small(size_t number) { return static_cast<int32_t>(number); }
size_t at(int32_t number) { return static_cast<size_t>(number); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The middle value; of an even number, the mean of the middle two.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool moves_data(OpRole role) {
  return role == OpRole::Send || role == OpRole::Receive || role == OpRole::Collective;
}

// Replays steps, and says how a part changes them.
class Replay {
 public:
  Replay(const std::vector<StepGraph>& graphs, const Durations& durations)
      : graphs_(graphs), durations_(durations) {
    recorded_ = length(durations.recorded);
    balanced_ = length(durations.balanced);
  }
  double recorded() const { return recorded_; }
  double balanced() const { return balanced_; }
  // recorded / balanced; 1 for a run that takes no time.
  double slowdown() const { return ratio(recorded_); }

  // The part of the ops for which `belongs` is true.
  PartShare share(std::string name, const std::function<bool(size_t)>& belongs) const {
    std::vector<double> only = durations_.balanced, without = durations_.recorded;
    for (size_t i = 0; i < only.size(); ++i) {
      if (!belongs(i)) continue;
      only[i] = durations_.recorded[i];
      without[i] = durations_.balanced[i];
    }
    return {std::move(name), ratio(length(only)), recovered(length(without))};
  }

 private:
  double ratio(double time) const { return balanced_ > 0 ? time / balanced_ : 1; }
  double recovered(double time) const {
    const double lost = recorded_ - balanced_;
    // Below this, what is lost is the noise of the durations.
    return std::abs(lost) > 1e-6 * balanced_ ? (recorded_ - time) / lost : 0;
  }
  double length(const std::vector<double>& durations) const {
    double sum = 0;
    for (const StepGraph& graph : graphs_) sum += graph.length(durations);
    return sum / static_cast<double>(graphs_.size());
  }

  const std::vector<StepGraph>& graphs_;
  const Durations& durations_;
  double recorded_ = 0, balanced_ = 0;
};

double recorded_ms(const Recording& recording) {
  std::vector<double> first(recording.steps.size(), INFINITY), last(first.size(), -INFINITY);
  std::vector<bool> seen(first.size());
  for (const RecordedOp& op : recording.ops) {
    const size_t step = at(op.step);
    first[step] = std::min(first[step], op.start);
    last[step] = std::max(last[step], op.finish);
    seen[step] = true;
  }
  std::vector<double> lengths;
  for (size_t s = 0; s < first.size(); ++s) {
    if (seen[s]) lengths.push_back(last[s] - first[s]);
  }
  return mean(lengths);
}

// Adds the parts by worker, stage, pipeline, operation and link.
void add_parts(const Recording& recording, const Durations& durations, const Replay& replay,
               Analysis& found) {
  const auto& ops = recording.ops;
  const auto seat = [&](size_t i) -> const RecordedWorker& {
    return recording.workers[at(ops[i].worker)];
  };
  for (int32_t w = 0; w < small(recording.workers.size()); ++w) {
    found.by_worker.push_back(
        replay.share(worker_name(recording, w), [&](size_t i) { return ops[i].worker == w; }));
  }
  for (int32_t s = 0; s < recording.width; ++s) {
    found.by_stage.push_back(
        replay.share(cat("stage ", s), [&](size_t i) { return seat(i).stage == s; }));
  }
  for (int32_t p = 0; p < recording.pipelines; ++p) {
    found.by_pipeline.push_back(
        replay.share(cat("pipeline ", p), [&](size_t i) { return seat(i).pipeline == p; }));
  }
  std::set<int32_t> kinds;
  for (const RecordedOp& op : ops) kinds.insert(op.kind);
  std::set<std::string> labels;
  for (const int32_t kind : kinds) labels.insert(recording.kinds[at(kind)].label);
  for (const std::string& label : labels) {
    found.by_operation.push_back(replay.share(
        label, [&](size_t i) { return recording.kinds[at(ops[i].kind)].label == label; }));
  }
  std::stable_sort(found.by_operation.begin(), found.by_operation.end(),
                   [](const PartShare& a, const PartShare& b) { return a.slowdown > b.slowdown; });
  std::set<LinkOf> links(durations.links.begin(), durations.links.end());
  links.erase(LinkOf{-1, -1});
  for (const LinkOf& link : links) {
    found.links.push_back(link);
    found.by_link.push_back(
        replay.share(cat("link between workers ", link.first, " and ", link.second),
                     [&](size_t i) { return durations.links[i] == link; }));
  }
}

// The places of the shares that are large, the largest first.
std::vector<int32_t> large(const std::vector<PartShare>& shares, double slowdown) {
  std::vector<int32_t> places;
  for (int32_t i = 0; i < small(shares.size()); ++i) {
    if (shares[at(i)].slowdown - 1 >= kLargePart * (slowdown - 1)) places.push_back(i);
  }
  std::stable_sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    return shares[at(a)].slowdown > shares[at(b)].slowdown;
  });
  return places;
}

void find_suspects(const Recording& recording, Analysis& found) {
  if (found.slowdown < kBalanced) return;
  double of_links = 0;
  for (const int32_t link : large(found.by_link, found.slowdown)) {
    found.suspects.push_back({Suspect::Kind::Link, link});
    of_links = std::max(of_links, found.by_link[at(link)].slowdown);
  }
  std::vector<int32_t> workers = large(found.by_worker, found.slowdown);
  std::erase_if(workers, [&](int32_t worker) {
    const bool at_link =
        std::any_of(found.suspects.begin(), found.suspects.end(), [&](const Suspect& suspect) {
          const LinkOf& link = found.links[at(suspect.index)];
          return link.first == worker || link.second == worker;
        });
    return at_link && found.by_worker[at(worker)].slowdown <= kSameWorker * of_links;
  });
  // If all workers of a stage are slow, so is the stage, and not each of them.
  std::map<int32_t, int32_t> slow, all;
  for (const RecordedWorker& seat : recording.workers) ++all[seat.stage];
  for (const int32_t worker : workers) ++slow[recording.workers[at(worker)].stage];
  std::set<int32_t> stages;
  for (const int32_t worker : workers) {
    const int32_t stage = recording.workers[at(worker)].stage;
    if (all[stage] < 2 || slow[stage] < all[stage]) {
      found.suspects.push_back({Suspect::Kind::Worker, worker});
    } else if (stages.insert(stage).second) {
      found.suspects.push_back({Suspect::Kind::Stage, stage});
    }
  }
  if (found.suspects.empty() && !found.by_operation.empty()) {
    found.suspects.push_back({Suspect::Kind::Operation, 0});
  }
  std::stable_sort(found.suspects.begin(), found.suspects.end(),
                   [&found](const Suspect& a, const Suspect& b) {
                     return share_of(found, a).slowdown > share_of(found, b).slowdown;
                   });
}

bool belongs(const Recording& recording, const Durations& durations, const Analysis& found,
             const Suspect& suspect, size_t i) {
  const RecordedOp& op = recording.ops[i];
  switch (suspect.kind) {
    case Suspect::Kind::Worker:
      return op.worker == suspect.index;
    case Suspect::Kind::Stage:
      return recording.workers[at(op.worker)].stage == suspect.index;
    case Suspect::Kind::Link:
      return durations.links[i] == found.links[at(suspect.index)];
    case Suspect::Kind::Operation:
      return recording.kinds[at(op.kind)].label == found.by_operation[at(suspect.index)].name;
  }
  return false;
}

std::string verdict_of(const Analysis& found) {
  const std::string percent = fixed(100 * (found.slowdown - 1), 1);
  if (found.suspects.empty()) {
    return cat("The steps are balanced: they take ", percent,
               " % longer than if every op of a kind took the same time.");
  }
  std::string names;
  for (size_t i = 0; i < found.suspects.size() && i < 4; ++i) {
    names += cat(i == 0 ? "" : ", ", share_of(found, found.suspects[i]).name);
  }
  if (found.suspects.size() > 4) names += cat(" and ", found.suspects.size() - 4, " more");
  const bool spread = found.suspects.front().kind == Suspect::Kind::Operation;
  return cat(
      "The steps take ", percent, " % longer than if every op of a kind took the same time. ",
      spread ? "No single worker, stage or link accounts for it; the operation that varies "
               "most is "
             : "The cause is ",
      names, ", which would give back ", fixed(100 * found.recovered, 0), " % of the lost time.");
}

}  // namespace

Durations durations_of(const Recording& recording, const std::vector<StepGraph>& graphs) {
  Durations all;
  all.recorded.resize(recording.ops.size());
  all.links.resize(recording.ops.size(), LinkOf{-1, -1});
  for (const StepGraph& graph : graphs) graph.measure(recording, all.recorded, all.links);
  std::vector<std::vector<double>> of_kind(recording.kinds.size());
  for (size_t i = 0; i < recording.ops.size(); ++i) {
    of_kind[at(recording.ops[i].kind)].push_back(all.recorded[i]);
  }
  std::vector<double> balanced(of_kind.size());
  for (size_t k = 0; k < of_kind.size(); ++k) {
    if (of_kind[k].empty()) continue;
    balanced[k] = moves_data(recording.kinds[k].role) ? median(of_kind[k]) : mean(of_kind[k]);
  }
  all.balanced.reserve(recording.ops.size());
  for (const RecordedOp& op : recording.ops) all.balanced.push_back(balanced[at(op.kind)]);
  return all;
}

Analysis analyze(const Recording& recording, const std::vector<StepGraph>& graphs,
                 const Durations& durations) {
  const Replay replay(graphs, durations);
  Analysis found;
  found.slowdown = replay.slowdown();
  found.recorded_ms = recorded_ms(recording);
  found.replayed_ms = replay.recorded();
  found.balanced_ms = replay.balanced();
  add_parts(recording, durations, replay, found);
  find_suspects(recording, found);
  found.recovered =
      replay
          .share("",
                 [&](size_t i) {
                   return std::any_of(found.suspects.begin(), found.suspects.end(),
                                      [&](const Suspect& suspect) {
                                        return belongs(recording, durations, found, suspect, i);
                                      });
                 })
          .recovered;
  found.verdict = verdict_of(found);
  return found;
}

const PartShare& share_of(const Analysis& analysis, const Suspect& suspect) {
  switch (suspect.kind) {
    case Suspect::Kind::Worker:
      return analysis.by_worker[at(suspect.index)];
    case Suspect::Kind::Stage:
      return analysis.by_stage[at(suspect.index)];
    case Suspect::Kind::Link:
      return analysis.by_link[at(suspect.index)];
    case Suspect::Kind::Operation:
      break;
  }
  return analysis.by_operation[at(suspect.index)];
}

const char* kind_name(Suspect::Kind kind) {
  constexpr const char* kNames[] = {"worker", "stage", "link", "operation"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace tenuto::analysis
