#include "monitor/slow_scope.h"

#include <algorithm>

#include "base/text.h"

namespace tenuto {
namespace {

using LinkName = std::pair<WorkerId, WorkerId>;
using Links = std::map<LinkName, LinkWatch>;

bool has(const LinkGroup& group, WorkerId worker) {
  return std::find(group.workers.begin(), group.workers.end(), worker) != group.workers.end();
}

bool leaves(const LinkGroup& group, const LinkName& link) {
  return has(group, link.first) != has(group, link.second);
}

// True when two links or more belong to the whole, and all of them are slow.
template <class Belongs>
bool all_slow(const Links& links, const Belongs& belongs) {
  int count = 0;
  for (const auto& [name, watch] : links) {
    if (!belongs(name)) continue;
    if (!watch.slow()) return false;
    ++count;
  }
  return count >= 2;
}

}  // namespace

std::vector<LinkGroup> link_groups(const std::vector<std::string>& hosts,
                                   const std::vector<Port>& ports) {
  std::vector<LinkGroup> groups;
  std::map<std::string, std::vector<WorkerId>> of_hosts;
  for (size_t worker = 0; worker < hosts.size(); ++worker) {
    if (!hosts[worker].empty()) of_hosts[hosts[worker]].push_back({static_cast<int32_t>(worker)});
  }
  if (of_hosts.size() > 1) {
    for (auto& [host, workers] : of_hosts) {
      groups.push_back({cat("the port of host ", host), std::move(workers)});
    }
  }
  for (const Port& port : ports) groups.push_back({cat("the port ", port.name), port.devices});
  return groups;
}

std::string slow_scope(std::pair<WorkerId, WorkerId> link, const Links& links,
                       const std::vector<LinkGroup>& groups, const Seats& seats) {
  std::string named;
  for (const LinkGroup& group : groups) {
    if (!leaves(group, link)) continue;
    const auto belongs = [&](const LinkName& name) { return leaves(group, name); };
    if (all_slow(links, belongs)) named += cat(named.empty() ? "" : " and ", group.name);
  }
  if (!named.empty()) return named;
  const auto ends = [&](const LinkName& name) {
    return std::minmax({seats.place_of(name.first), seats.place_of(name.second)});
  };
  const auto [low, high] = ends(link);
  const auto same_boundary = [&](const LinkName& name) { return ends(name) == ends(link); };
  if (low >= 0 && high - low == 1 && all_slow(links, same_boundary)) {
    return cat("the boundary ", low, "-", high, " in every pipeline");
  }
  for (const WorkerId worker : {link.first, link.second}) {
    const LinkGroup alone{cat("worker ", worker), {worker}};
    const auto belongs = [&](const LinkName& name) { return leaves(alone, name); };
    if (all_slow(links, belongs)) return alone.name;
  }
  return {};
}

}  // namespace tenuto
