// The checks of a step's update: norms, steps and reductions.
#include <algorithm>
#include <span>
#include <tuple>

#include "ir/checker.h"
#include "ir/effect.h"

namespace tenuto {

namespace {

// The kinds of ops of an update: after the norm of all stages is known, or ahead of it.
constexpr OpKind kBarrier[] = {OpKind::Measure, OpKind::Step};
constexpr OpKind kAhead[] = {OpKind::MeasureAhead, OpKind::StepAhead, OpKind::Validate};

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::Measure:
      return "Measure";
    case OpKind::MeasureAhead:
      return "MeasureAhead";
    case OpKind::StepAhead:
      return "StepAhead";
    case OpKind::Validate:
      return "Validate";
    default:
      return "Step";
  }
}

// One use of a group by a worker.
struct Use {
  StageId stage;
  int16_t part = -1;
  WorkerId worker;
  GroupId group;
  int32_t index = 0;
};

}  // namespace

// Either all stages step after the norm of all is known, or all step ahead of it.
PlanFault Checker::check_one_update() const {
  const bool staggered = plan_.update.staggered;
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto among = [&](const auto& kinds) {
        return std::find(std::begin(kinds), std::end(kinds), ops[i].kind) != std::end(kinds);
      };
      if (staggered ? !among(kBarrier) : !among(kAhead)) continue;
      return fault({{w}, static_cast<int32_t>(i)},
                   staggered ? "the plan steps ahead of the norm: this op waits for it"
                             : "the plan steps with the norm of all: this op is ahead of it");
    }
  }
  return {};
}

// Every holder of every stage has exactly one op of `kind`.
PlanFault Checker::check_once(OpKind kind) const {
  const std::string name = name_of(kind);
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    std::vector<int32_t> found(held_[at(w)].size(), -1);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != kind) continue;
      int32_t& first = found[at(slot_of({w}, ops[i].stage))];
      const OpPlace here{{w}, static_cast<int32_t>(i)};
      if (first >= 0) return fault(here, cat("it runs twice, also as op ", first));
      first = here.index;
    }
    for (size_t slot = 0; slot < found.size(); ++slot) {
      const StageId stage = held_[at(w)][slot];
      if (found[slot] >= 0) continue;
      // With a stored clip decision no Measure is needed. A holder that has stored the total and
      // lists no Step has taken its Step already.
      if (resumed() && (kind == OpKind::Measure || has_total(w, stage))) continue;
      return fault({{w}, static_cast<int32_t>(ops.size())},
                   cat("holds stage ", stage, " and has no ", name, " of it: add one"));
    }
  }
  return {};
}

PlanFault Checker::check_reductions() const {
  std::vector<Use> uses;
  for (int32_t w = 0; w < worker_count(); ++w) {
    const auto& ops = list({w});
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != OpKind::Reduce) continue;
      uses.push_back({ops[i].stage, ops[i].part, {w}, ops[i].group, static_cast<int32_t>(i)});
    }
  }
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::tie(a.stage, a.part, a.worker) < std::tie(b.stage, b.part, b.worker);
  });
  std::vector<std::vector<StageId>> users(schedule_.groups.size());
  std::vector<bool> reduced(plan_.stages.size(), false), whole(plan_.stages.size(), false);
  for (size_t i = 0; i < uses.size();) {
    size_t end = i;
    const Use& head = uses[i];
    const auto& holders = plan_.stages[at(head.stage.value)].holders;
    for (; end < uses.size() && uses[end].stage == head.stage && uses[end].part == head.part;
         ++end) {
      const OpPlace here{uses[end].worker, uses[end].index};
      if (end > i && uses[end].worker == uses[end - 1].worker) {
        return fault(here, cat("it runs twice, also as op ", uses[end - 1].index));
      }
      if (uses[end].group != head.group) {
        return fault(here, cat("worker ", head.worker, " sums this gradient in group ", head.group,
                               ": all holders must do it in one group"));
      }
    }
    for (const WorkerId holder : end - i < holders.size() ? holders : std::vector<WorkerId>{}) {
      const bool there = std::any_of(uses.begin() + static_cast<std::ptrdiff_t>(i),
                                     uses.begin() + static_cast<std::ptrdiff_t>(end),
                                     [&](const Use& use) { return use.worker == holder; });
      if (there) continue;
      return fault({holder, static_cast<int32_t>(list(holder).size())},
                   cat("does not take part in the reduction ",
                       to_text(list(head.worker)[at(head.index)]), " of its stage: add it"));
    }
    if (reduced[at(head.stage.value)] && whole[at(head.stage.value)]) {
      return fault({head.worker, head.index}, "the whole gradient was reduced already");
    }
    if (has_total(-1, head.stage)) {
      return fault({head.worker, head.index}, "the total is there already: copy it");
    }
    reduced[at(head.stage.value)] = true;
    whole[at(head.stage.value)] = head.part < 0;
    users[at(head.group.value)].push_back(head.stage);
    i = end;
  }
  for (size_t s = 0; s < reduced.size(); ++s) {
    if (reduced[s] || has_total(-1, {static_cast<int32_t>(s)})) continue;
    return plain(cat("nobody reduces the gradient of stage ", s, ": add Reduce"));
  }
  for (size_t g = 0; g < users.size(); ++g) {
    if (PlanFault found = check_group({static_cast<int32_t>(g)}, users[g])) return found;
  }
  return {};
}

// A group's members are the holders of its stages, and the group is used once for each stage.
PlanFault Checker::check_group(GroupId id, const std::vector<StageId>& users) const {
  const Group& group = schedule_.groups[at(id.value)];
  std::vector<StageId> stages = group.stages;
  std::sort(stages.begin(), stages.end());
  if (stages != users) {
    return plain(cat("group ", id, " is for ", stages.size(), " stages and is used for ",
                     users.size(), ": each of its stages must reduce in it once, no other"));
  }
  std::vector<WorkerId> holders, members = group.members;
  for (const StageId stage : stages) {
    const auto& more = plan_.stages[at(stage.value)].holders;
    holders.insert(holders.end(), more.begin(), more.end());
  }
  std::sort(holders.begin(), holders.end());
  std::sort(members.begin(), members.end());
  if (holders != members) {
    return plain(cat("the members of group ", id, " are not the holders of its stages, each once:",
                     " every contribution must be in the sum exactly once"));
  }
  if (group.collective.value < 0 || at(group.collective.value) >= schedule_.collectives.size()) {
    return plain(cat("group ", id, " names collective ", group.collective.value, " of ",
                     schedule_.collectives.size()));
  }
  if (schedule_.collectives[at(group.collective.value)].members != group.members) {
    return plain(
        cat("group ", id, " and its collective ", group.collective, " have different members"));
  }
  return {};
}

PlanFault Checker::check_update() const {
  if (PlanFault found = check_one_update()) return found;
  const auto kinds = plan_.update.staggered ? std::span<const OpKind>(kAhead) : std::span(kBarrier);
  for (const OpKind kind : kinds) {
    if (PlanFault found = check_once(kind)) return found;
  }
  if (PlanFault found = check_reductions()) return found;
  if (plan_.update.tied != update_style_of(schedule_).tied) {
    return plain(plan_.update.tied
                     ? "the plan says that its first and last stage share a weight, and no group "
                       "sums over both"
                     : "the plan says that no stages share a weight, and a group sums over two");
  }
  for (size_t c = 0; c < schedule_.collectives.size(); ++c) {
    const Status status = check(schedule_.collectives[c]);
    if (status.ok()) continue;
    return plain(cat("collective ", c, ": ", status.error().message));
  }
  return {};
}

}  // namespace tenuto
