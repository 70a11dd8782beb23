#include "sim/causes.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "ir/compute_lane.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

// Finds the causes of the ops of one program, by op number.
class Causes {
 public:
  Causes(const Program& program, const Outcome& outcome)
      : program_(program), outcome_(outcome), cause_(at(program.size()), -1) {
    note_values();
    note_lanes();
    note_messages();
    note_queues();
  }

  int32_t of(int32_t op) const { return cause_[at(op)]; }

 private:
  bool meets(int32_t before, int32_t op) const {
    return outcome_.finish[at(before)] == outcome_.start[at(op)];
  }
  LaneKind lane_kind(int32_t op) const { return program_.lanes()[at(program_.lane(op))].kind; }
  bool is_send(int32_t op) const {
    const LaneKind kind = lane_kind(op);
    return kind == LaneKind::SendForward || kind == LaneKind::SendBackward;
  }

  // An input that arrived exactly when the op started.
  void note_values() {
    for (int32_t op = 0; op < program_.size(); ++op) {
      for (int32_t e = program_.edge_of(op); e >= 0; e = program_.edge(e).next) {
        if (meets(op, program_.edge(e).to)) cause_[at(program_.edge(e).to)] = op;
      }
    }
  }

  // The op that held the lane until then. This overrides an input, which arrived while the lane was
  // busy.
  void note_lanes() {
    for (size_t w = 0; w + 1 < program_.first().size(); ++w) {
      std::vector<int32_t> ops;
      for (int32_t op = program_.first()[w]; op < program_.first()[w + 1]; ++op) {
        if (program_.lane(op) >= 0 && lane_kind(op) == LaneKind::Compute) ops.push_back(op);
      }
      std::stable_sort(ops.begin(), ops.end(), [&](int32_t left, int32_t right) {
        return std::tie(outcome_.start[at(left)], outcome_.finish[at(left)]) <
               std::tie(outcome_.start[at(right)], outcome_.finish[at(right)]);
      });
      for (size_t i = 1; i < ops.size(); ++i) {
        if (meets(ops[i - 1], ops[i])) cause_[at(ops[i])] = ops[i - 1];
      }
    }
  }

  // For a message: the one that held its link, or the op that gave back a buffer to its receiver.
  void note_messages() {
    std::map<std::tuple<int32_t, int32_t, Duration>, int32_t> leaves;  // from, to, when it is out
    std::map<std::pair<int32_t, Duration>, int32_t> releases;          // receive lane, when
    for (int32_t op = 0; op < program_.size(); ++op) {
      if (program_.lane(op) < 0) continue;
      const Program::Lane& lane = program_.lanes()[at(program_.lane(op))];
      const Duration finish = outcome_.finish[at(op)];
      if (is_send(op) && finish > outcome_.start[at(op)]) {
        leaves[{lane.worker, lane.peer, finish}] = op;
      }
      if (program_.release(op) >= 0) releases[{program_.release(op), finish}] = op;
    }
    for (int32_t op = 0; op < program_.size(); ++op) {
      if (program_.lane(op) < 0 || !is_send(op)) continue;
      const int32_t recv = program_.partner(op);
      cause_[at(recv)] = op;
      if (cause_[at(op)] >= 0) continue;
      const Program::Lane& lane = program_.lanes()[at(program_.lane(op))];
      const Duration start = outcome_.start[at(op)];
      if (const auto it = leaves.find({lane.worker, lane.peer, start}); it != leaves.end()) {
        cause_[at(op)] = it->second;
      } else if (const auto given = releases.find({program_.lane(recv), start});
                 given != releases.end()) {
        cause_[at(op)] = given->second;
      }
    }
  }

  // With a device queue: a message waits for the end of the previous message with the same peer,
  // any other item for the start of the message in front of it.
  void note_queues() {
    std::map<std::tuple<int32_t, int32_t, Duration>, int32_t> ends;  // worker, peer, when
    std::map<std::pair<int32_t, Duration>, int32_t> starts;          // worker, when
    const auto each_waiting = [&](const auto& look) {
      for (int32_t op = 0; op < program_.size(); ++op) {
        if (program_.lane(op) < 0 || cause_[at(op)] >= 0) continue;
        if (outcome_.start[at(op)] > Duration{}) cause_[at(op)] = look(op);
      }
    };
    for (int32_t op = 0; op < program_.size(); ++op) {
      if (program_.lane(op) < 0 || lane_kind(op) < LaneKind::SendForward) continue;
      ends[{program_.worker(op), peer_of(op), outcome_.finish[at(op)]}] = op;
    }
    each_waiting([&](int32_t op) {
      const auto found = ends.find({program_.worker(op), peer_of(op), outcome_.start[at(op)]});
      return found == ends.end() || found->second == op ? -1 : found->second;
    });
    for (const auto& [key, op] : ends) {
      if (cause_[at(op)] >= 0) starts[{program_.worker(op), outcome_.start[at(op)]}] = op;
    }
    each_waiting([&](int32_t op) {
      const auto found = starts.find({program_.worker(op), outcome_.start[at(op)]});
      return found == starts.end() || found->second == op ? -1 : found->second;
    });
  }

  int32_t peer_of(int32_t op) const { return program_.lanes()[at(program_.lane(op))].peer; }

  const Program& program_;
  const Outcome& outcome_;
  std::vector<int32_t> cause_;
};

}  // namespace

std::vector<Span> spans_with_causes(const Program& program, const Schedule& schedule,
                                    const Outcome& outcome) {
  const Causes causes(program, outcome);
  std::vector<int32_t> order;
  for (int32_t op = 0; op < program.size(); ++op) {
    if (program.lane(op) >= 0) order.push_back(op);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t left, int32_t right) {
    return std::tuple(program.worker(left), outcome.start[at(left)]) <
           std::tuple(program.worker(right), outcome.start[at(right)]);
  });
  std::vector<int32_t> place(at(program.size()), -1);
  for (size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<int32_t>(i);
  std::vector<Span> spans;
  spans.reserve(order.size());
  for (const int32_t op : order) {
    const int32_t worker = program.worker(op);
    const int32_t cause = causes.of(op);
    spans.push_back({{worker},
                     schedule.lists[at(worker)][at(op - program.first()[at(worker)])],
                     outcome.start[at(op)],
                     outcome.finish[at(op)],
                     cause < 0 ? -1 : place[at(cause)]});
  }
  return spans;
}

CriticalPath critical_path(const std::vector<Span>& spans) {
  CriticalPath path;
  if (spans.empty()) return path;
  int32_t here = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].finish > spans[at(here)].finish) here = static_cast<int32_t>(i);
  }
  std::map<std::string, Duration> shares;
  Duration covered_from = spans[at(here)].finish;
  // Every cause starts no later than what it causes; the count guards against a circle of ops that
  // take no time.
  for (size_t steps = 0; here >= 0 && steps <= spans.size(); ++steps) {
    const Span& span = spans[at(here)];
    path.spans.push_back(here);
    const Duration from = std::min(span.start, covered_from);
    const Duration until = std::min(span.finish, covered_from);
    const std::string what =
        span.op.kind == OpKind::Recv   ? cat("link ", span.op.peer, "->", span.worker)
        : span.op.kind == OpKind::Send ? cat("link ", span.worker, "->", span.op.peer)
                                       : cat("worker ", span.worker);
    if (covered_from > until) shares["waiting"] += covered_from - until;
    if (until > from) shares[what] += until - from;
    covered_from = from;
    here = span.after;
  }
  if (covered_from.count() > 0) shares["waiting"] += covered_from;
  std::reverse(path.spans.begin(), path.spans.end());
  for (const auto& [what, time] : shares) path.shares.push_back({what, time});
  std::stable_sort(path.shares.begin(), path.shares.end(),
                   [](const Share& left, const Share& right) { return left.time > right.time; });
  return path;
}

}  // namespace tenuto
