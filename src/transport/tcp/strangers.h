// The connections that have not yet said who they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>

#include "transport/tcp/sockets.h"

namespace tenuto::tcp {

// Keeps them in the order in which they came, and knows whose turn to go it is if they are too
// many.
class Strangers {
 public:
  // The bytes of an address without its port (address_bytes).
  using Host = std::array<uint8_t, 16>;

  // One more has come from that host.
  void add(SocketId socket, const Host& from);
  // Does nothing if it is none of them.
  void remove(SocketId socket);
  // The one that has been here longest; there must be one.
  SocketId oldest() const { return all_.front().socket; }
  // The oldest of the host that has the most here, so that a host with many connections harms only
  // itself. If several hosts have the most, the oldest of all of theirs. Of two or more connections
  // it is never the newest. There must be one.
  SocketId next_to_go() const;
  // Whether there are none.
  bool empty() const { return all_.empty(); }
  // How many there are.
  size_t size() const { return all_.size(); }

 private:
  struct Stranger {
    SocketId socket = kNoSocket;
    Host from{};
  };
  std::list<Stranger> all_;        // the oldest first
  std::map<Host, size_t> counts_;  // none is 0
};

}  // namespace tenuto::tcp
