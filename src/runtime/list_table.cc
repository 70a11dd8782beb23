#include "runtime/list_table.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "runtime/reduction.h"
#include "runtime/tag.h"

namespace tenuto {

namespace {

// Why `op` cannot be run, or "".
std::string fault_of(const Op& op, const Schedule& schedule, WorkerId self) {
  const auto workers = static_cast<int32_t>(schedule.lists.size());
  if (op.stage.value < 0 || op.stage.value >= schedule.stage_count ||
      op.stage.value >= kTagStages - 1) {
    return cat("stage ", op.stage, " is not one of the ", schedule.stage_count, " stages");
  }
  if (op.part < -1 || op.part >= kTagParts - 1) return cat("part ", op.part, " is out of range");
  if (op.micro.value < -1 || op.micro.value >= kTagMicros - 1) {
    return cat("micro-batch ", op.micro, " is out of range");
  }
  if (op.kind == OpKind::Send || op.kind == OpKind::Recv) {
    if (op.peer.value < 0 || op.peer.value >= workers || op.peer == self) {
      return cat("peer ", op.peer, " is not another of the ", workers, " workers");
    }
    return "";
  }
  if (op.kind != OpKind::Reduce) return "";
  if (op.group.value < 0 || op.group.value >= static_cast<int32_t>(schedule.groups.size()) ||
      op.group.value >= kTagGroups) {
    return cat("group ", op.group, " is not one of the ", schedule.groups.size(), " groups");
  }
  const CollectiveId id = schedule.groups[static_cast<size_t>(op.group.value)].collective;
  if (id.value < 0 || id.value >= static_cast<int32_t>(schedule.collectives.size())) {
    return cat("collective ", id, " is not one of the ", schedule.collectives.size());
  }
  const Collective& collective = schedule.collectives[static_cast<size_t>(id.value)];
  if (collective.chunk_count < 0 || collective.chunk_count > kTagChunks ||
      collective.rounds.size() > static_cast<size_t>(kTagRounds)) {
    return cat("collective ", id, " has more rounds or chunks than a message can name");
  }
  for (const Round& round : collective.rounds) {
    for (const Move& move : round.moves) {
      if (move.chunk.value < 0 || move.chunk.value >= collective.chunk_count ||
          move.from.value < 0 || move.to.value < 0 || move.from.value >= workers ||
          move.to.value >= workers || move.from == move.to) {
        return cat("collective ", id, " moves chunk ", move.chunk, " from worker ", move.from,
                   " to worker ", move.to, ", of ", collective.chunk_count, " chunks and ", workers,
                   " workers");
      }
    }
  }
  return "";
}

// The elements of a sum that are in no part of its growth.
std::vector<ElementRange> rest_of(const SumGrowth& growth) {
  std::vector<ElementRange> parts = growth.parts, rest;
  std::sort(parts.begin(), parts.end());
  int64_t next = 0;
  for (const auto& [first, end] : parts) {
    if (next < first) rest.push_back({next, first});
    next = std::max(next, end);
  }
  if (next < growth.elements) rest.push_back({next, growth.elements});
  return rest;
}

}  // namespace

Result<ListTable> ListTable::make(const Plan& plan, const Schedule& schedule, WorkerId self,
                                  const GradientGrowth* growth) {
  ListTable table;
  if (self.value < 0 || static_cast<size_t>(self.value) >= schedule.lists.size()) {
    return Error{Code::Invalid, Reach::Job,
                 cat("worker ", self, " has no list in a plan of ", schedule.lists.size(),
                     " workers: the plan is of another cluster")};
  }
  table.list_ = schedule.lists[static_cast<size_t>(self.value)];
  table.self_ = self;
  table.stage_count_ = schedule.stage_count;
  table.split_ = plan.split_backward;
  table.groups_ = schedule.groups;
  table.collectives_ = schedule.collectives;
  if (Status status = table.check_references(plan, schedule, self); !status.ok()) {
    return status.error();
  }
  table.find_producers(schedule.stage_count);
  table.find_growing(schedule, growth);
  table.find_adders();
  table.number_calls(schedule, self);
  return table;
}

bool ListTable::fits(const Plan& plan, const Schedule& schedule, WorkerId self,
                     const GradientGrowth* growth) const {
  return self == self_ && stage_count_ == schedule.stage_count && split_ == plan.split_backward &&
         static_cast<size_t>(self.value) < schedule.lists.size() &&
         list_ == schedule.lists[static_cast<size_t>(self.value)] && groups_ == schedule.groups &&
         collectives_ == schedule.collectives && growth_ == growth_of_list(growth);
}

Status ListTable::check_references(const Plan& plan, const Schedule& schedule,
                                   WorkerId self) const {
  for (const Op& op : list_) {
    std::string fault = fault_of(op, schedule, self);
    if (fault.empty() && static_cast<size_t>(op.stage.value) >= plan.stages.size()) {
      fault = cat("stage ", op.stage, " is not one of the plan's ", plan.stages.size(), " stages");
    }
    if (fault.empty()) continue;
    return Error{Code::Invalid, Reach::Job,
                 cat("worker ", self, ": its list has ", to_text(op), ", but ", fault,
                     ": the plan is malformed, check it with 'tenuto schedule check'")};
  }
  return ok();
}

void ListTable::find_producers(int32_t stage_count) {
  std::map<Value, int32_t> writer;  // sorted, so that all values of a kind are neighbours
  for (size_t i = 0; i < list_.size(); ++i) {
    for (const Value& value : effect_of(list_[i], stage_count).write) {
      writer.emplace(value, static_cast<int32_t>(i));
    }
  }
  for (const Op& op : list_) {
    producer_begin_.push_back(static_cast<int32_t>(producers_.size()));
    for (const Value& value : effect_of(op, stage_count).read) {
      if (!means_every(value)) {
        const auto found = writer.find(value);
        if (found != writer.end()) producers_.push_back(found->second);
        continue;
      }
      for (auto it = writer.lower_bound(Value{value.kind, -1, {}, {}}); it != writer.end(); ++it) {
        if (it->first.kind != value.kind) break;
        if (it->first.stage == value.stage) producers_.push_back(it->second);
      }
    }
  }
  producer_begin_.push_back(static_cast<int32_t>(producers_.size()));
}

void ListTable::number_calls(const Schedule& schedule, WorkerId self) {
  call_count_ = static_cast<int32_t>(list_.size());
  for (size_t i = 0; i < list_.size(); ++i) {
    first_call_.push_back(call_count_);
    if (list_[i].kind != OpKind::Reduce) continue;
    const auto index = static_cast<int32_t>(i);
    reduces_.push_back(index);
    call_count_ += Reduction::call_count(collective(schedule, index), self);
  }
}

// The growth of the sums of all Reduces. A tied weight, whose sum is in a bucket of its own, does
// not grow.
std::vector<SumGrowth> ListTable::growth_of_list(const GradientGrowth* growth) const {
  std::vector<SumGrowth> all;
  if (growth == nullptr) return all;
  for (const Op& op : list_) {
    if (op.kind != OpKind::Reduce) continue;
    all.push_back(op.part < 0 ? growth->growth_of(op.stage) : SumGrowth{});
  }
  return all;
}

void ListTable::find_growing(const Schedule& schedule, const GradientGrowth* growth) {
  growth_ = growth_of_list(growth);
  if (growth_.empty()) return;
  size_t reduce = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].kind != OpKind::Reduce) continue;
    const SumGrowth& how = growth_[reduce++];
    const auto index = static_cast<int32_t>(i);
    auto cut = collective_of_growth(collective(schedule, index), how);
    if (cut && cut->chunk_count <= kTagChunks && std::ssize(cut->rounds) <= kTagRounds)
      growing_.push_back({index, how, rest_of(how), std::move(*cut)});
  }
}

void ListTable::find_adders() {
  adder_.assign(list_.size(), -1);
  std::map<std::pair<StageId, MicroId>, int32_t> inputs;  // BackwardInputs
  for (size_t i = 0; i < list_.size() && !growing_.empty(); ++i) {
    const Op& op = list_[i];
    const auto index = static_cast<int32_t>(i);
    if (op.kind == OpKind::BackwardInput) inputs[{op.stage, op.micro}] = index;
    if (op.kind != OpKind::BackwardWeight) continue;
    const auto input = inputs.find({op.stage, op.micro});
    if (split_) {
      adder_[i] = index;
    } else if (input != inputs.end()) {
      adder_[static_cast<size_t>(input->second)] = index;
    }
  }
}

const Collective& ListTable::collective(const Schedule& schedule, int32_t index) const {
  for (const GrowingReduce& reduce : growing_) {
    if (reduce.index == index) return reduce.collective;
  }
  const Op& op = list_[static_cast<size_t>(index)];
  CHECK(op.kind == OpKind::Reduce, "only a Reduce has a collective");
  const Group& group = schedule.groups[static_cast<size_t>(op.group.value)];
  return schedule.collectives[static_cast<size_t>(group.collective.value)];
}

int32_t ListTable::reduce_of(int32_t call) const {
  const auto after = std::upper_bound(
      reduces_.begin(), reduces_.end(), call,
      [this](int32_t wanted_call, int32_t reduce) { return wanted_call < first_call(reduce); });
  CHECK(after != reduces_.begin(), "a call below the first reduction's");
  return *(after - 1);
}

}  // namespace tenuto
