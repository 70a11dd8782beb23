#include "rehearsal/link_clock.h"

#include <algorithm>

#include "transport/jitter.h"
#include "world/job_model.h"

namespace tenuto {

const LinkState& LinkClock::link(WorkerId peer) const {
  if (const auto own = own_.find(peer); own != own_.end()) return own->second;
  const auto healthy = healthy_.find(peer);
  return healthy == healthy_.end() ? every_ : healthy->second;
}

void LinkClock::set_links(const LinkStates& states, WorkerId self, uint64_t seed) {
  self_ = self;
  seed_ = seed;
  own_.clear();
  for (const auto& [ends, state] : states) {
    if (ends.first == self) own_[ends.second] = state;
  }
}

Passage LinkClock::send(WorkerId peer, Bytes size, Duration ready, const Tag& tag) {
  const LinkState& state = link(peer);
  const Duration transfer = transfer_time(counted(size, tag), state.link.bytes_per_second);
  const Duration latency = state.link.latency + jitter_of(seed_, self_, peer, tag, state.jitter);
  // A message that takes no time on the link delays no other, in whichever order the calls come.
  if (transfer.count() == 0) return {ready, ready, ready + latency};
  Duration& free = free_[peer];
  Passage passage;
  passage.start = std::max(free, ready);
  passage.finish = passage.start + transfer;
  passage.arrival = passage.finish + latency;
  free = passage.finish;
  return passage;
}

Duration LinkClock::way(WorkerId peer, Bytes size, const Tag& tag) const {
  const LinkState& state = link(peer);
  return state.link.latency + transfer_time(counted(size, tag), state.link.bytes_per_second) +
         jitter_of(seed_, self_, peer, tag, state.jitter);
}

LinkClock make_link_clock(const Job& job, const Plan& plan, WorkerId self) {
  Link link;
  link.latency = from_milliseconds(job.network.latency_ms);
  link.bytes_per_second = job.network.megabytes_per_second * 1e6;
  // The patience is shorter than every op. So an op that starts late, because its choice waited for
  // messages, can still end at its virtual moment.
  Duration shortest = Duration::max();
  const Model model = job_model(job, plan);
  for (const Stage& stage : plan.stages) {
    const StageCost cost = stage_cost(model, stage);
    for (const Duration length : {cost.forward, cost.backward_input, cost.backward_weight}) {
      if (length.count() > 0) shortest = std::min(shortest, length);
    }
  }
  double fastest = 1;
  const Cluster cluster = cluster_of(job);
  for (const Worker& worker : cluster.workers) fastest = std::max(fastest, worker.speed);
  const Duration patience =
      shortest == Duration::max() ? std::chrono::milliseconds(1) : at_speed(shortest, fastest) / 2;
  LinkClock clock(link, patience, job.network.send == "blocking");
  if (job.network.devices == nullptr) return clock;
  for (int32_t w = 0; w < job.worker_count(); ++w) {
    if (w != self.value) clock.set_healthy({w}, cluster.link(self, {w}));
  }
  return clock;
}

}  // namespace tenuto
