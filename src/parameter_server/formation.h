// The parts of a replica of several stages, which compute together over a wire of their own.
//
// Idea:  a *formation* is the time in which the same parts get their works from the same decider.
//        Within it every part gets the same works in the same order, and no work is given up before
//        all parts have computed it. So what the parts send each other always matches. When a part
//        or the decider is lost, a work may be under way in some of the parts only. Then there is
//        another formation, with a wire of its own: nothing of the one before can arrive there.
//        Host and parts see the same members in the same order, so they count formations alike.
// Right: tests/parameter_server/formation_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parameter_server/host_message.h"
#include "parameter_server/roster.h"

namespace tenuto::servers {

// A formation of one replica.
struct Formation {
  int64_t epoch = 0;                // in which it began; 0 = the replica is not in the run
  PeerId decider;                   // that gives it works
  std::vector<PeerId> parts;        // by stage
  std::vector<WorkerId> processes;  // in which they live, by stage
  bool operator==(const Formation&) const = default;
};

// The formation of this replica with these members: the one before, or another one.
//
// Requires: members that check(PlacedMembers) accepts and that have the replica
Formation formation_of(const PlacedMembers& placed, ReplicaId replica, const Formation& before);

// The host's side: members and addresses in, commands out.
class Formations {
 public:
  // A command for a process.
  struct Task {
    WorkerId process;
    FormCommand command;
  };

  // The members from now on. Formations that are over need no addresses any more.
  void set_members(const PlacedMembers& placed);
  // The process listens there for the formation of this epoch. If it has no part in such a
  // formation now, nothing is changed.
  void set_address(WorkerId process, const FormingReport& report);
  // The commands that can be given now: all parts of a formation get theirs when all have said
  // where they listen, once.
  std::vector<Task> take_tasks();

 private:
  struct Forming {
    Formation formation;
    std::vector<std::string> addresses;  // by stage; empty = not known yet
    bool is_told = false;
  };
  std::vector<Forming> replicas_;
};

}  // namespace tenuto::servers
