// Who connects to whom: each process of a run connects to all that were started before it.
//
// So every pair is connected by exactly one of the two, as the transport wants it, and a process
// that comes later needs nothing from those that are there. A process is told once, when all that
// were started before it and live have said where they listen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "parameter_server/host_message.h"
#include "transport/transport.h"

namespace tenuto::servers {

// The host's side: what has started, been lost and said its address in, commands out.
class Connections {
 public:
  // A command for a process.
  struct Task {
    WorkerId process;
    ConnectCommand command;
  };

  // A process was started. Its number is above those of all before.
  void add(WorkerId process);
  // It listens there. A process that is not known changes nothing.
  void set_address(WorkerId process, const std::string& address);
  // Nobody connects to this process any more, and nobody waits for its address.
  void lose(WorkerId process);
  // The commands that can be given now, in the order of the starts. Each process gets one.
  std::vector<Task> take_tasks();
  // Whether the process, which is not lost, has got its command.
  bool was_told(WorkerId process) const;

 private:
  struct Started {
    WorkerId process;
    std::string address;  // empty = not known yet
    bool is_told = false;
  };
  std::vector<Started> started_;  // that are not lost, by number
};

// A process's side: connects to all of these. One that cannot be reached is no error here: it is
// lost, and the owner of the transport notices it as any other loss.
//
// Requires: nothing else is under way on this transport, whose mailbox this is. Others may post
//           reports without ticket and peer to it.
// Errors: those of Transport::connect; Timeout/Call  an attempt has no end within `limit` after the
//         one before
Status connect(Transport& transport, Mailbox& mailbox, const std::vector<ProcessAddress>& processes,
               Duration limit);

}  // namespace tenuto::servers
