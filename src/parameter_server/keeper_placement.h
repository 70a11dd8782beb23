// On which hosts the servers of a run keep its ranges (sync/placement.h).
//
// How long an iteration takes is not known when a run begins. So what is compared are the bytes
// that pass each host's port in an iteration of all replicas, those of the replicas that live there
// included, as a part of what the port carries in a second.
// Right: tests/parameter_server/keeper_placement_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// A range, and the hosts of the keepers that it has: that of its first keeper comes first.
struct RangeHosts {
  ElementRange range;
  std::vector<std::string> hosts;
};

// A part of a replica: where it lives, and its stage.
struct PartHost {
  std::string host;
  StageId stage;
};

// Where all keepers are, and shall be.
struct KeeperPlacement {
  // Of each range: of its first keeper, then of its standby, if there are two servers. Keepers that
  // there were, stay.
  std::vector<std::vector<std::string>> hosts;
  std::string reason;  // a clause: "no host has both copies of a range, and ..."
};

// Places the keepers that are missing.
//
// Shapes:   ranges by stage, then by element; at most two hosts each. servers: the host of each
//           process that can keep ranges; one host may have several. ports: bytes per second in
//           each direction, by host; 0, or no entry = not known
// Requires: a server; hosts of keepers that are hosts of servers
KeeperPlacement place_keepers(const std::vector<RangeHosts>& ranges,
                              const std::vector<std::string>& servers,
                              const std::vector<PartHost>& parts, int32_t replicas,
                              const std::map<std::string, int64_t>& ports = {});

// Who keeps what, for people: "range 0: worker 4, standby worker 5; range 1: ...". `where` names
// the process of a keeper. Of many ranges only the first ones are named.
std::string keepers_text(const Membership& members,
                         const std::function<std::string(PeerId)>& where);

}  // namespace tenuto::servers
