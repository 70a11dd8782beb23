// What is slow when a link is: the link of two workers alone, all links of a port, or all links of
// the boundary between two stages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "monitor/link.h"
#include "world/cluster.h"
#include "world/seats.h"

namespace tenuto {

// Workers whose links to all others have a part in common: those of a host, of a port of the
// cluster file, or one worker.
struct LinkGroup {
  std::string name;  // in sentences: "the port of host 10.0.0.5"
  std::vector<WorkerId> workers;
};

// The groups in the order in which a slow link is named after them: hosts if there are several,
// then ports. `hosts`: of each worker; empty = not known.
std::vector<LinkGroup> link_groups(const std::vector<std::string>& hosts,
                                   const std::vector<Port>& ports);

// What the slow link belongs to as a whole, when all links of that are slow. Of the links that are
// watched, those of a group or of a worker have one end in it, and those of a boundary join its two
// stages in any pipeline. A whole has two links or more. The first of these that fits is named: the
// groups ("the port of host a", or "the port of host a and the port of host b" if both fit), the
// boundary ("the boundary 0-1 in every pipeline"), a worker ("worker 3"). Empty: the link alone.
//
// Cost: linear in the links
std::string slow_scope(std::pair<WorkerId, WorkerId> link,
                       const std::map<std::pair<WorkerId, WorkerId>, LinkWatch>& links,
                       const std::vector<LinkGroup>& groups, const Seats& seats);

}  // namespace tenuto
