#include "runtime/path.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/compute.h"

namespace tenuto {

namespace {

// A list's messages, by ring, in list order.
std::map<Ring, std::vector<MicroId>> messages_of(const std::vector<Op>& list) {
  std::map<Ring, std::vector<MicroId>> messages;
  for (const Op& op : list) {
    if (!is_message(op) || !feeds_compute(op.moved)) continue;
    messages[{op.peer, op.kind == OpKind::Send, op.moved, op.stage}].push_back(op.micro);
  }
  return messages;
}

// The most micro-batches that are between their forward and their backward at `stage`.
int32_t in_flight(const std::vector<Op>& list, StageId stage) {
  int32_t now = 0, most = 0;
  for (const Op& op : list) {
    if (op.stage != stage) continue;
    now += (op.kind == OpKind::Forward) - (op.kind == OpKind::BackwardInput);
    most = std::max(most, now);
  }
  return most;
}

const std::vector<Op>& list_of(const Schedule& schedule, WorkerId worker) {
  static const std::vector<Op> none;
  const auto index = static_cast<size_t>(worker.value);
  return index < schedule.lists.size() ? schedule.lists[index] : none;
}

int32_t slots_of(const Schedule& schedule, WorkerId self, const Ring& ring,
                 const std::vector<MicroId>& mine) {
  const std::vector<Op>& here = list_of(schedule, self);
  const std::vector<Op>& there = list_of(schedule, ring.peer);
  const auto count = static_cast<int32_t>(mine.size());
  const auto theirs = messages_of(there);
  const auto same = theirs.find({self, !ring.send, ring.kind, ring.stage});
  if (same == theirs.end() || same->second != mine) return count;
  const bool activation = ring.kind == ValueKind::Activation;
  const StageId before{activation ? ring.stage.value : ring.stage.value - 1};
  const StageId behind{before.value + 1};
  // An activation is sent by the stage before the link, a gradient by the one behind it.
  const bool here_is_before = ring.send == activation;
  const int32_t x = in_flight(here_is_before ? here : there, before);
  const int32_t y = in_flight(here_is_before ? there : here, behind);
  return std::min(count, std::max(x - y, 0) + 3);
}

}  // namespace

PathState first_path(const PathRule& rule) {
  CHECK(rule.wish != PathWish::Direct || rule.direct_possible, "a path that is possible");
  const bool direct = rule.wish != PathWish::Staged && rule.direct_possible;
  return {direct ? Path::Direct : Path::Staged, 0};
}

PathState next_path(const PathRule& rule, PathState now, const LinkNews& news) {
  if (rule.wish != PathWish::Automatic || !rule.direct_possible) return first_path(rule);
  const bool held_up = rule.direct_waits && news.round_trip > news.of_micro / 4;
  if (news.errors > 0 || held_up) return {Path::Staged, 0};
  if (now.path == Path::Direct) return {Path::Direct, 0};
  const int32_t clean = now.clean + 1;
  if (clean >= rule.clean_steps) return {Path::Direct, 0};
  return {Path::Staged, clean};
}

std::map<Ring, int32_t> ring_slots(const Plan& plan, WorkerId self) {
  std::map<Ring, int32_t> slots;
  for (const Schedule* schedule : {&plan.schedule, &plan.evaluation}) {
    for (const auto& [ring, micros] : messages_of(list_of(*schedule, self))) {
      int32_t& most = slots[ring];
      most = std::max(most, slots_of(*schedule, self, ring, micros));
    }
  }
  return slots;
}

}  // namespace tenuto
