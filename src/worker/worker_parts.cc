#include "worker/worker_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/contains.h"
#include "base/host.h"
#include "base/text.h"

namespace tenuto {

std::set<WorkerId> peers_of(const Plan& plan, WorkerId self) {
  std::set<WorkerId> peers;
  for (const Schedule* schedule : {&plan.schedule, &plan.evaluation}) {
    if (static_cast<size_t>(self.value) < schedule->lists.size()) {
      for (const Op& op : schedule->lists[static_cast<size_t>(self.value)]) {
        if (op.peer.value >= 0) peers.insert(op.peer);
      }
    }
    for (const Collective& collective : schedule->collectives) {
      for (const Round& round : collective.rounds) {
        for (const Move& move : round.moves) {
          if (move.from == self) peers.insert(move.to);
          if (move.to == self) peers.insert(move.from);
        }
      }
    }
  }
  return peers;
}

std::optional<int32_t> workers_beside(const std::vector<std::string>& addresses,
                                      const std::string& own) {
  int32_t count = 0;
  for (const std::string& address : addresses) {
    if (address.empty()) return std::nullopt;
    if (host_of(address) == host_of(own)) ++count;
  }
  return count;
}

std::set<WorkerId> transfer_peers(const Instruction& told, WorkerId self) {
  std::set<WorkerId> peers;
  for (const Joiner& joiner : told.joiners) {
    if (joiner.worker == self) peers.insert(joiner.donors.begin(), joiner.donors.end());
    if (contains(joiner.donors, self)) peers.insert(joiner.worker);
  }
  peers.erase(WorkerId{});  // no donor is chosen yet
  return peers;
}

std::string names_of(const std::vector<StageId>& stages) {
  std::string names = stages.size() == 1 ? "stage" : "stages";
  for (const StageId stage : stages) names += cat(stage == stages.front() ? " " : ", ", stage);
  return names;
}

bool is_finite(const StepSummary& summary) {
  return summary.finite && std::all_of(summary.losses.begin(), summary.losses.end(),
                                       [](const MicroLoss& of) { return std::isfinite(of.loss); });
}

void note_device_time(const std::vector<Event>& events, StepSummary& summary) {
  Duration first = Duration::max(), last{};
  for (const Event& event : events) {
    const OpKind kind = event.op.kind;
    const bool computes =
        kind == OpKind::Forward || kind == OpKind::BackwardInput || kind == OpKind::BackwardWeight;
    if (!computes) continue;
    first = std::min(first, event.start);
    last = std::max(last, event.finish);
  }
  summary.device_start_ns = std::min(first, last).count();
  summary.device_finish_ns = last.count();
}

const Joiner* joiner_in(const Instruction& told, WorkerId self, int32_t incarnation) {
  for (const Joiner& joiner : told.joiners) {
    if (joiner.worker == self && joiner.incarnation == incarnation) return &joiner;
  }
  return nullptr;
}

bool is_awaited(const Instruction& told, WorkerId self, int32_t incarnation) {
  if (joiner_in(told, self, incarnation) != nullptr) return true;
  for (size_t i = 0; i < told.directive.members.size() && i < told.incarnations.size(); ++i) {
    if (told.directive.members[i] == self) return told.incarnations[i] == incarnation;
  }
  return false;
}

bool is_replaced(const Instruction& told, WorkerId self, int32_t incarnation) {
  if (is_awaited(told, self, incarnation)) return false;
  for (size_t i = 0; i < told.directive.members.size() && i < told.incarnations.size(); ++i) {
    if (told.directive.members[i] == self) return told.incarnations[i] >= 0;
  }
  return true;
}

void say(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::fflush(stderr);
}

}  // namespace tenuto
