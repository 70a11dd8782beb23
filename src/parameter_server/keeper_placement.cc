#include "parameter_server/keeper_placement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/text.h"
#include "sync/placement.h"

namespace tenuto::servers {

namespace {

constexpr size_t kMostKeepers = 2;  // of a range
constexpr size_t kMostNamed = 8;    // ranges in a sentence

// The hosts by name, with what the parts of replicas take of them.
class Hosts {
 public:
  size_t index_of(const std::string& name) {
    const auto [found, is_new] = indices_.try_emplace(name, all_.size());
    if (is_new) all_.push_back({name, {}, {}});
    return found->second;
  }
  void use(const std::string& name, const HostAmounts& more) {
    HostAmounts& used = all_[index_of(name)].used;
    for (size_t r = 0; r < kHostResources; ++r) {
      used[r] = std::min(used[r] + more[r], kMostHostAmount);
    }
  }
  void set_ports(const std::map<std::string, int64_t>& ports) {
    for (PlacementHost& host : all_) {
      const auto port = ports.find(host.name);
      if (port == ports.end()) continue;
      host.capacity[static_cast<size_t>(HostResource::Transmit)] = port->second;
      host.capacity[static_cast<size_t>(HostResource::Receive)] = port->second;
    }
  }
  const std::vector<PlacementHost>& all() const { return all_; }

 private:
  std::map<std::string, size_t> indices_;
  std::vector<PlacementHost> all_;
};

std::string reason_of(const std::vector<PlacementHost>& hosts, const Placement& placement,
                      const std::vector<std::vector<std::string>>& placed, size_t servers) {
  if (servers == 1) return "there is one server, so no range has a standby";
  const auto together =
      std::count_if(placed.begin(), placed.end(), [](const std::vector<std::string>& of) {
        return of.size() == kMostKeepers && of.front() == of.back();
      });
  const std::string copies =
      together == 0 ? std::string("no host has both copies of a range")
                    : cat("both copies of ", together, " of ", placed.size(),
                          " ranges are on one host, because no other one had a server");
  // The largest part that any host has of what all hosts send, or of what they receive.
  double most = 0;
  size_t busiest = 0;
  for (size_t r = 0; r < kHostResources; ++r) {
    double sum = 0;
    for (const HostAmounts& load : placement.loads) sum += static_cast<double>(load[r]);
    for (size_t i = 0; i < hosts.size() && sum > 0; ++i) {
      const double part = static_cast<double>(placement.loads[i][r]) / sum;
      if (part > most) most = part, busiest = i;
    }
  }
  return cat(copies, ", and host ", hosts[busiest].name,
             " carries the most: ", fixed(100 * most, 0), " % of what all hosts send or receive");
}

}  // namespace

KeeperPlacement place_keepers(const std::vector<RangeHosts>& ranges,
                              const std::vector<std::string>& servers,
                              const std::vector<PartHost>& parts, int32_t replicas,
                              const std::map<std::string, int64_t>& ports) {
  Hosts hosts;
  std::vector<size_t> able;
  for (const std::string& name : servers) able.push_back(hosts.index_of(name));
  std::map<StageId, Bytes> sizes;
  for (const RangeHosts& of : ranges) {
    Bytes& size = sizes[of.range.stage];
    size = size + size_of(of.range);
  }
  for (const PartHost& part : parts) {
    hosts.use(part.host, demand_of_replica(sizes[part.stage], 1, 0));
  }
  // One iteration of each replica, as if it took a second; updates are made by cores, which are not
  // compared.
  const UpdateRates rates{static_cast<double>(replicas), 1};
  const size_t keepers = std::min(kMostKeepers, servers.size());
  std::vector<PlacementItem> items;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t k = 0; k < keepers; ++k) {
      PlacementItem item;
      item.name = cat(k == 0 ? "the shard of range " : "the standby of range ", i);
      item.demand = demand_of_keeper(size_of(ranges[i].range), rates, {}, k == 0);
      item.hosts = able;
      if (k < ranges[i].hosts.size()) item.hosts = {hosts.index_of(ranges[i].hosts[k])};
      if (k > 0) item.twin = items.size() - 1;
      items.push_back(std::move(item));
    }
  }
  hosts.set_ports(ports);
  const Placement placement = place(hosts.all(), items, false).value();
  KeeperPlacement made;
  for (size_t i = 0; i < ranges.size(); ++i) {
    std::vector<std::string> of;
    for (size_t k = 0; k < keepers; ++k) {
      of.push_back(hosts.all()[placement.hosts[i * keepers + k]].name);
    }
    made.hosts.push_back(std::move(of));
  }
  made.reason = reason_of(hosts.all(), placement, made.hosts, servers.size());
  return made;
}

std::string keepers_text(const Membership& members,
                         const std::function<std::string(PeerId)>& where) {
  std::string text;
  const size_t named = std::min(kMostNamed, members.ranges.size());
  for (size_t i = 0; i < named; ++i) {
    const std::vector<PeerId>& keepers = members.ranges[i].keepers;
    text += cat(i == 0 ? "" : "; ", "range ", i, ": ");
    for (size_t k = 0; k < keepers.size(); ++k) {
      text += cat(k == 0 ? "" : ", standby ", where(keepers[k]));
    }
  }
  const size_t more = members.ranges.size() - named;
  return more == 0 ? text : cat(text, "; and ", more, " more ranges");
}

}  // namespace tenuto::servers
