#include "parameter_server/formation.h"

#include <algorithm>
#include <utility>

namespace tenuto::servers {

Formation formation_of(const PlacedMembers& placed, ReplicaId replica, const Formation& before) {
  const Membership& members = placed.members;
  const std::vector<PeerId>& parts = members.replicas.at(static_cast<size_t>(replica.value));
  if (parts.empty()) return {};
  if (parts == before.parts && members.decider == before.decider) return before;
  Formation next{members.epoch, members.decider, parts, {}};
  for (const PeerId part : parts) next.processes.push_back(placed.places.at(part));
  return next;
}

void Formations::set_members(const PlacedMembers& placed) {
  replicas_.resize(placed.members.replicas.size());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Forming& forming = replicas_[i];
    const ReplicaId replica{static_cast<int32_t>(i)};
    Formation next = formation_of(placed, replica, forming.formation);
    if (next == forming.formation) continue;
    const size_t stages = next.processes.size();
    forming = {std::move(next), std::vector<std::string>(stages), false};
  }
}

void Formations::set_address(WorkerId process, const FormingReport& report) {
  for (Forming& forming : replicas_) {
    if (forming.formation.epoch != report.epoch) continue;
    const std::vector<WorkerId>& processes = forming.formation.processes;
    for (size_t stage = 0; stage < processes.size(); ++stage) {
      if (processes[stage] == process) forming.addresses[stage] = report.address;
    }
  }
}

std::vector<Formations::Task> Formations::take_tasks() {
  std::vector<Task> tasks;
  for (Forming& forming : replicas_) {
    const bool is_complete =
        std::none_of(forming.addresses.begin(), forming.addresses.end(),
                     [](const std::string& address) { return address.empty(); });
    if (forming.is_told || forming.addresses.empty() || !is_complete) continue;
    forming.is_told = true;
    for (const WorkerId process : forming.formation.processes) {
      tasks.push_back({process, {forming.formation.epoch, forming.addresses}});
    }
  }
  return tasks;
}

}  // namespace tenuto::servers
