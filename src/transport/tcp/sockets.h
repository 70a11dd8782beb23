// The sockets that the engine of a wire uses: those of the kernel (epoll_sockets.h), or those of a
// network that a test simulates on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unit.h"
#include "transport/address.h"

namespace tenuto::tcp {

// One connection, or an attempt at one. Numbers may be used again after close().
enum class SocketId : int32_t {};
inline constexpr SocketId kNoSocket{-1};

// What a read or write has done.
struct Io {
  // Moved: `count` bytes. Blocked: none; an event comes when it may be tried again. Ended (read
  // only): the other end writes no more. Refused: nobody listens there, or nobody who speaks as
  // this end does. Denied (read only): one end does not accept the other's certificate, and will
  // not the next time. Failed: the connection is broken. Silent: the same, because nothing was
  // under way and the other host has answered nothing for a while, which these sockets were made
  // with. `why` says more of the last four.
  enum class Kind : uint8_t {
    Moved,
    Blocked,
    Ended,
    Refused,
    Denied,
    Failed,
    Silent
  } kind = Kind::Blocked;
  size_t count = 0;
  bool more = false;  // Moved: another call may move more now; false = an event comes first
  std::string why;
};

// What has become of the bytes that were written to a socket, as the kernel sends them.
struct Delivery {
  uint64_t acknowledged = 0;    // by the other host
  size_t left = 0;              // not acknowledged yet
  Duration round_trip{};        // of a packet and its acknowledgement, smoothed; zero = not known
  Duration variation{};         // its mean deviation
  double bytes_per_second = 0;  // of the latest that was acknowledged
  // Whether this rate is only what the sender gave the network, not what the network carried.
  bool held_up = true;
  uint64_t repeated = 0;  // packets that were sent again, as far as they had not arrived
  // How often in a row this host has sent packets again, or asked whether there is space for more,
  // without any answer over this connection; and how long ago the last answer came.
  int unanswered = 0;
  Duration quiet{};
  // How long there was something to send, and for how long of this the other end's process, which
  // read too slowly, was what held it up.
  Duration busy{}, unread{};
};

// What has happened at a socket since the last event, at least: events may come without need.
struct SocketEvent {
  SocketId socket = kNoSocket;  // kNoSocket: somebody may want to be accepted
  bool readable = false, writable = false;
  bool over = false;  // it is readable, and no other event comes: read until it ends or fails
};

// Nothing here blocks but wait(). One thread at a time; wait() may run beside the others and in two
// threads at once, each of which then gets some of the events, and wake() beside anything. As a
// clock they show the time by which limits run out.
class Sockets : public Clock {
 public:
  // Listens; call once. Returns the address with its port.
  //
  // Errors: Invalid, Disconnected, Exhausted, each with a sentence
  virtual Result<std::string> listen(const std::string& host, uint16_t port) = 0;
  // The next one that connects to this end, and from where; kNoSocket = none now.
  virtual SocketId accept(SocketAddress& from) = 0;
  // Begins to connect. Reading from the socket tells how it goes. kNoSocket = no socket is left.
  virtual SocketId connect(const SocketAddress& to) = 0;
  // Reads into the buffers, one after the other.
  virtual Io read(SocketId socket, std::span<const std::span<std::byte>> to) = 0;
  // Writes from the buffers, one after the other.
  virtual Io write(SocketId socket, std::span<const std::span<const std::byte>> from) = 0;
  // A secret of this connection that only its two ends know, once bytes have been read from it;
  // empty if it is not encrypted.
  virtual std::string binding(SocketId socket) const = 0;
  // Closes: with `reset` what is on its way is lost and the other end's connection breaks; without,
  // it arrives, and the other end reads the end of the stream behind it.
  virtual void close(SocketId socket, bool reset) = 0;
  // What has become of all that was written.
  virtual Delivery delivery(SocketId socket) const = 0;
  // Waits until something happens, `limit` at most, and appends what. Errors of waiting are events.
  virtual void wait(Duration limit, std::vector<SocketEvent>& events) = 0;
  // Ends one wait() that is under way, or the next one. Any thread.
  virtual void wake() = 0;
};

}  // namespace tenuto::tcp
