#include "analysis/step_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/text.h"

namespace tenuto::analysis {

namespace {

int32_t small(size_t number) { return static_cast<int32_t>(number); }
size_t at(int32_t number) { return static_cast<size_t>(number); }

bool computes(OpRole role) {
  return role == OpRole::Forward || role == OpRole::Backward || role == OpRole::WeightGradient;
}

}  // namespace

// Collects nodes and what they need, then sorts them.
class GraphBuilder {
 public:
  GraphBuilder(const Recording& recording, size_t first, size_t end)
      : recording_(recording), first_(first), end_(end), node_of_(end - first, -1) {}

  Result<StepGraph> build() {
    for (size_t i = first_; i < end_; ++i) add_op(small(i));
    for (size_t i = first_, next = first_; i < end_; i = next) {
      while (next < end_ && recording_.ops[next].worker == recording_.ops[i].worker) ++next;
      join_lanes(i, next);
    }
    for (size_t i = first_; i < end_; ++i) {
      if (const Status made = join_value(small(i)); !made.ok()) return made.error();
    }
    join_groups();
    return sorted();
  }

 private:
  using Value = std::tuple<bool, int32_t, int32_t, int32_t>;  // gradient, set, stage, micro-batch
  struct Message {
    int32_t send = -1, receive = -1, node = -1;
  };
  struct Draft {
    int32_t op = -1, other = -1;
    std::vector<int32_t> needs;
  };

  const RecordedOp& op_at(int32_t op) const { return recording_.ops[at(op)]; }
  const OpKindSeen& kind_at(int32_t op) const { return recording_.kinds[at(op_at(op).kind)]; }
  int32_t node_of(int32_t op) const { return node_of_[at(op) - first_]; }
  static Value value_of(bool gradient, const RecordedOp& op) {
    return {gradient, op.set, op.stage, op.micro};
  }

  int32_t add_node(int32_t op) {
    drafts_.push_back({op, -1, {}});
    return small(drafts_.size()) - 1;
  }
  void need(int32_t node, int32_t needed) {
    if (needed >= 0) drafts_[at(node)].needs.push_back(needed);
  }

  void add_op(int32_t op) {
    const OpKindSeen& kind = kind_at(op);
    const RecordedOp& it = op_at(op);
    const bool sends = kind.role == OpRole::Send;
    if (!sends && kind.role != OpRole::Receive) {
      node_of_[at(op) - first_] = add_node(op);
      if (kind.role == OpRole::Forward) made_.emplace(value_of(false, it), op);
      if (kind.role == OpRole::Backward) made_.emplace(value_of(true, it), op);
      return;
    }
    Message& message = messages_[value_of(kind.gradient, it)];
    int32_t& end = sends ? message.send : message.receive;
    if (end >= 0) return;  // one message twice: the first counts
    end = op;
    if (message.node < 0) {
      message.node = add_node(op);
    } else {
      drafts_[at(message.node)].other = op;
    }
    node_of_[at(op) - first_] = message.node;
  }

  // The ops [first, end) are of one worker, by start.
  void join_lanes(size_t first, size_t end) {
    int32_t last_compute = -1;  // op
    for (size_t i = first; i < end; ++i) {
      if (computes(kind_at(small(i)).role)) last_compute = small(i);
    }
    int32_t lane = -1, collectives = -1, summed = -1;  // nodes: the last one of each
    for (size_t i = first; i < end; ++i) {
      const auto op = small(i);
      const OpKindSeen& kind = kind_at(op);
      const int32_t node = node_of(op);
      if (computes(kind.role) || kind.role == OpRole::Local) {
        need(node, lane);
        if (kind.role == OpRole::Local) need(node, summed);
        lane = node;
      } else if (kind.role == OpRole::Collective) {
        need(node, collectives);
        collectives = node;
        if (kind.first) {
          gather_before(op, first, end);
        } else {
          summed = node;
          sum_after(op, last_compute, first, end);
        }
      }
    }
  }

  // The first compute op of the stage, or of all, needs the gathered parameters.
  void gather_before(int32_t gather, size_t first, size_t end) {
    for (const bool any : {false, true}) {
      for (size_t i = first; i < end; ++i) {
        const auto op = small(i);
        if (!computes(kind_at(op).role)) continue;
        if (!any && op_at(op).stage != op_at(gather).stage) continue;
        need(node_of(op), node_of(gather));
        return;
      }
    }
  }

  // Which compute op a collective needs: the last one; if it began before that, the last one of its
  // stage; if it began before that, too, the last one that had ended.
  void sum_after(int32_t sum, int32_t last_compute, size_t first, size_t end) {
    if (last_compute < 0) return;
    const double begin = op_at(sum).start;
    int32_t needed = -1;
    if (op_at(last_compute).start <= begin) {
      needed = last_compute;
    } else {
      int32_t of_stage = -1, ended = -1;
      for (size_t i = first; i < end; ++i) {
        const auto op = small(i);
        if (!computes(kind_at(op).role)) continue;
        if (op_at(op).stage == op_at(sum).stage) of_stage = op;
        if (op_at(op).finish <= begin) ended = op;
      }
      needed = of_stage >= 0 && op_at(of_stage).start <= begin ? of_stage : ended;
    }
    if (needed >= 0) need(node_of(sum), node_of(needed));
  }

  Status join_value(int32_t op) {
    const OpRole role = kind_at(op).role;
    const bool gradient = role == OpRole::Backward;
    if (role != OpRole::Forward && !gradient) return ok();
    const RecordedOp& it = op_at(op);
    if (gradient ? it.stage + 1 >= recording_.stages : it.stage == 0) return ok();
    const Value wanted{gradient, it.set, it.stage + (gradient ? 1 : -1), it.micro};
    const auto maker = made_.find(wanted);
    if (maker == made_.end()) {
      return invalid(cat("step ", recording_.steps[at(it.step)], ", ",
                         worker_name(recording_, it.worker), ": expected the ",
                         gradient ? "backward" : "forward", " of micro-batch ", it.micro,
                         " at stage ", std::get<2>(wanted), ", which its op at stage ", it.stage,
                         " needs, found none: add the trace of the worker that ran it"));
    }
    const auto message = messages_.find(wanted);
    const bool moved = message != messages_.end() && op_at(maker->second).worker != it.worker;
    if (!moved) {
      need(node_of(op), node_of(maker->second));
      return ok();
    }
    need(message->second.node, node_of(maker->second));
    need(node_of(op), message->second.node);
    return ok();
  }

  // A collective begins when all members have come: they all need one node, which needs what any
  // of them needs.
  void join_groups() {
    std::map<std::array<int32_t, 4>, int32_t> turns;
    std::map<std::array<int32_t, 4>, std::vector<int32_t>> groups;
    for (size_t i = first_; i < end_; ++i) {
      const auto op = small(i);
      const OpKindSeen& kind = kind_at(op);
      if (kind.role != OpRole::Collective || kind.scope == Scope::Alone) continue;
      const RecordedOp& it = op_at(op);
      const RecordedWorker& seat = recording_.workers[at(it.worker)];
      // A worker with several stages has one for each of them.
      const int32_t stage = kind.scope == Scope::Stage ? it.stage : -1;
      const int32_t turn = turns[{it.worker, it.kind, stage, 0}]++;
      const int32_t where = kind.scope == Scope::Stage      ? seat.stage
                            : kind.scope == Scope::Pipeline ? seat.pipeline
                                                            : 0;
      groups[{it.kind, turn, where, stage}].push_back(op);
    }
    for (auto& [name, members] : groups) {
      if (members.size() < 2) continue;
      const int32_t gate = add_node(-1);
      for (const int32_t member : members) {
        std::vector<int32_t> needs = std::move(drafts_[at(node_of(member))].needs);
        drafts_[at(node_of(member))].needs = {gate};
        for (const int32_t needed : needs) need(gate, needed);
      }
      graph_.groups_.push_back(std::move(members));
    }
  }

  Result<StepGraph> sorted() {
    std::vector<int32_t> open(drafts_.size()), order, place(drafts_.size(), -1);
    std::vector<std::vector<int32_t>> needed_by(drafts_.size());
    for (size_t n = 0; n < drafts_.size(); ++n) {
      open[n] = small(drafts_[n].needs.size());
      if (open[n] == 0) order.push_back(small(n));
      for (const int32_t needed : drafts_[n].needs) needed_by[at(needed)].push_back(small(n));
    }
    for (size_t i = 0; i < order.size(); ++i) {
      for (const int32_t next : needed_by[at(order[i])]) {
        if (--open[at(next)] == 0) order.push_back(next);
      }
    }
    if (order.size() < drafts_.size()) return circle(open);
    for (size_t i = 0; i < order.size(); ++i) place[at(order[i])] = small(i);
    for (const int32_t n : order) {
      const Draft& draft = drafts_[at(n)];
      StepGraph::Node node;
      node.op = draft.op;
      node.other = draft.other;
      node.first_need = small(graph_.needs_.size());
      for (const int32_t needed : draft.needs) graph_.needs_.push_back(place[at(needed)]);
      node.end_need = small(graph_.needs_.size());
      graph_.nodes_.push_back(node);
    }
    return std::move(graph_);
  }

  Error circle(const std::vector<int32_t>& open) const {
    int32_t op = small(first_);
    for (size_t n = 0; n < open.size(); ++n) {
      if (open[n] > 0 && drafts_[n].op >= 0) op = drafts_[n].op;
    }
    const RecordedOp& it = op_at(op);
    return invalid(
        cat("step ", recording_.steps[at(it.step)],
            ": expected ops in the order in which they ran, found ops that wait for each "
            "other, one of them '",
            kind_at(op).name, "' of ", worker_name(recording_, it.worker),
            ": a clock jumped during the step, record it again"));
  }

  const Recording& recording_;
  size_t first_, end_;
  std::vector<int32_t> node_of_;  // by op, from first_ on
  std::vector<Draft> drafts_;
  std::map<Value, int32_t> made_;  // by which op
  std::map<Value, Message> messages_;
  StepGraph graph_;
};

Result<StepGraph> StepGraph::make(const Recording& recording, size_t first, size_t end) {
  return GraphBuilder(recording, first, end).build();
}

void StepGraph::measure(const Recording& recording, std::vector<double>& durations,
                        std::vector<LinkOf>& links) const {
  const auto own = [&](int32_t op, double begin) {
    durations[at(op)] = std::max(0.0, recording.ops[at(op)].finish - begin);
  };
  for (const Node& node : nodes_) {
    if (node.op < 0) continue;
    const RecordedOp& one = recording.ops[at(node.op)];
    if (node.other < 0) {
      own(node.op, one.start);
      continue;
    }
    const RecordedOp& two = recording.ops[at(node.other)];
    const bool sends = recording.kinds[at(one.kind)].role == OpRole::Send;
    const double begin = recording.starts_when_sent ? (sends ? one.start : two.start)
                                                    : std::max(one.start, two.start);
    const LinkOf link{std::min(one.worker, two.worker), std::max(one.worker, two.worker)};
    for (const int32_t op : {node.op, node.other}) {
      own(op, begin);
      links[at(op)] = link;
    }
  }
  for (const std::vector<int32_t>& group : groups_) {
    double begin = recording.ops[at(group.front())].start;
    for (const int32_t op : group) begin = std::max(begin, recording.ops[at(op)].start);
    for (const int32_t op : group) own(op, begin);
  }
}

double StepGraph::length(const std::vector<double>& durations) const {
  std::vector<double> finish(nodes_.size());
  double last = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    double begin = 0;
    for (int32_t i = node.first_need; i < node.end_need; ++i) {
      begin = std::max(begin, finish[at(needs_[at(i)])]);
    }
    double lasts = node.op < 0 ? 0 : durations[at(node.op)];
    if (node.other >= 0) lasts = std::max(lasts, durations[at(node.other)]);
    finish[n] = begin + lasts;
    last = std::max(last, finish[n]);
  }
  return last;
}

Result<std::vector<StepGraph>> graphs_of(const Recording& recording) {
  std::vector<StepGraph> graphs;
  for (size_t first = 0, end = 0; first < recording.ops.size(); first = end) {
    while (end < recording.ops.size() && recording.ops[end].step == recording.ops[first].step) {
      ++end;
    }
    auto graph = StepGraph::make(recording, first, end);
    if (!graph.ok()) return graph.error();
    graphs.push_back(std::move(graph).value());
  }
  return graphs;
}

}  // namespace tenuto::analysis
