#include "analysis/clocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/clock_offsets.h"
#include "base/text.h"

namespace tenuto::analysis {

namespace {

// Smaller differences are the grain of the clocks that profilers use.
constexpr double kGrain = 0.05;  // ms

size_t at(int32_t number) { return static_cast<size_t>(number); }

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What was seen between two workers, the lower first.
struct Between {
  // How long messages took by the two clocks, the shortest, in each direction.
  double there = std::numeric_limits<double>::infinity(), back = there;
  std::vector<double> ends;  // by how much the higher worker ended a common op later
};

using Pairs = std::map<std::pair<int32_t, int32_t>, Between>;
using Message = std::tuple<int32_t, bool, int32_t, int32_t, int32_t>;

// Fills `pairs`; returns whether some message ends before it was sent.
bool read_messages(const Recording& recording, Pairs& pairs) {
  std::map<Message, const RecordedOp*> sends;
  for (const RecordedOp& op : recording.ops) {
    const OpKindSeen& kind = recording.kinds[at(op.kind)];
    if (kind.role != OpRole::Send) continue;
    sends.emplace(Message{op.step, kind.gradient, op.set, op.stage, op.micro}, &op);
  }
  bool impossible = false;
  for (const RecordedOp& op : recording.ops) {
    const OpKindSeen& kind = recording.kinds[at(op.kind)];
    if (kind.role != OpRole::Receive) continue;
    const auto found = sends.find({op.step, kind.gradient, op.set, op.stage, op.micro});
    if (found == sends.end() || found->second->worker == op.worker) continue;
    const RecordedOp& send = *found->second;
    const double took = op.finish - send.start;
    impossible = impossible || took < -kGrain;
    const bool upwards = send.worker < op.worker;
    Between& between = pairs[std::minmax(send.worker, op.worker)];
    double& shortest = upwards ? between.there : between.back;
    shortest = std::min(shortest, took);
    if (!recording.ends_together) continue;
    between.ends.push_back(upwards ? op.finish - send.finish : send.finish - op.finish);
  }
  return impossible;
}

// All members of a collective of a stage end about together.
void read_collectives(const Recording& recording, Pairs& pairs) {
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> times;
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, const RecordedOp*> first;
  for (const RecordedOp& op : recording.ops) {
    const OpKindSeen& kind = recording.kinds[at(op.kind)];
    if (kind.role != OpRole::Collective || kind.scope != Scope::Stage) continue;
    const int32_t turn = times[{op.step, op.worker, op.kind, 0}]++;
    const int32_t stage = recording.workers[at(op.worker)].stage;
    const auto [place, fresh] = first.try_emplace({op.step, stage, op.kind, turn}, &op);
    if (fresh || place->second->worker >= op.worker) continue;
    pairs[{place->second->worker, op.worker}].ends.push_back(op.finish - place->second->finish);
  }
}

// By how much the higher worker's clock is ahead of the lower one's.
double ahead(Between& between) {
  if (!between.ends.empty()) return median(between.ends);
  return (between.there - between.back) / 2;  // as long in one direction as in the other
}

}  // namespace

void align_clocks(Recording& recording) {
  Pairs pairs;
  if (!read_messages(recording, pairs)) return;
  read_collectives(recording, pairs);
  std::vector<ClockPair> compared;
  for (auto& [workers, between] : pairs) {
    const double offset = ahead(between);
    if (!std::isfinite(offset)) continue;  // messages in one direction only
    compared.push_back({workers.first, workers.second, offset});
  }
  const ClockOffsets clocks = join_clocks(static_cast<int32_t>(recording.workers.size()), compared);
  const std::vector<double>& offsets = clocks.ahead;
  double most = 0;
  for (const double offset : offsets) most = std::max(most, std::abs(offset));
  for (RecordedOp& op : recording.ops) {
    op.start -= offsets[at(op.worker)];
    op.finish -= offsets[at(op.worker)];
  }
  recording.notes.push_back(
      cat("some messages end before they were sent, so the workers' clocks "
          "were brought together: they were up to ",
          fixed(most, 3), " ms apart"));
  const auto apart = std::count(clocks.joined.begin(), clocks.joined.end(), false);
  if (apart == 0) return;
  recording.notes.push_back(
      cat(apart,
          " workers could not be compared with worker 0 and keep their clocks: times of "
          "their messages may be wrong"));
}

}  // namespace tenuto::analysis
