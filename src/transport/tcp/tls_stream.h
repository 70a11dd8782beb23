// One encrypted connection: TLS 1.3 by OpenSSL over a socket. It reads and writes as Sockets do.
//
// OpenSSL never waits for the socket to take bytes: what the socket does not take is kept here, at
// most a record and a flight of the handshake. The caller's bytes count as written when the socket
// has taken the whole record that they are in, so the caller comes back while something is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/tcp/sockets.h"
#include "transport/tcp/tls_context.h"

struct ssl_st;  // OpenSSL's SSL

namespace tenuto::tcp {

// What the connections of one wire share.
struct TlsShared {
  std::unique_ptr<Sockets> inner;
  TlsContext context;
  uint64_t records_for_a_key = 0;  // after so many records an end writes with a new key
  std::vector<std::byte> record;   // scratch memory for the bytes of one record
};

// One end of a connection. One call at a time.
class TlsStream {
 public:
  // Whether this end has connected or has accepted.
  enum class Side : uint8_t { Dialler, Listener };
  TlsStream(TlsShared& shared, SocketId socket, Side side);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Sockets::read and write. If a write has not moved all bytes, the next one begins with those
  // that have not moved.
  Io read(std::span<const std::span<std::byte>> to);
  Io write(std::span<const std::span<const std::byte>> from);
  // Tells the other end that the stream ends here in order, if the socket takes that at once.
  void end();
  // Sockets::binding; requires that bytes have been read.
  std::string binding() const;
  // Whether this end has accepted the connection and the other one has sent nothing yet.
  bool unheard() const { return side_ == Side::Listener && handshake_bytes_ == 0; }
  // Whether reading may wait until the socket takes bytes, or writing until some come.
  bool mixes_directions() const;

  // Reads from the socket for OpenSSL, at most `size` bytes; returns how many, 0 = none now.
  size_t pull(std::byte* to, size_t size);
  // Writes to the socket for OpenSSL; what the socket does not take is kept.
  void put(std::span<const std::byte> bytes);

 private:
  bool flush();
  Io shake();
  Io verdict(int code);
  Io explain_end() const;
  void renew_key();
  std::span<const std::byte> next_record(std::span<const std::span<const std::byte>> from,
                                         size_t skip) const;

  TlsShared& shared_;
  SocketId socket_;
  Side side_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  bool shaken_ = false;         // the handshake is over
  bool used_ = false;           // bytes of the caller have moved
  size_t handshake_bytes_ = 0;  // that have come
  std::optional<Io> verdict_;   // how reading has ended

  std::optional<Io> read_end_;  // how reading from the socket has ended
  bool drained_ = false;        // in this read: an event comes before the socket has more
  size_t moved_ = 0;            // bytes of the caller that this read has moved

  std::optional<Io> write_end_;    // why the socket takes no more bytes
  std::vector<std::byte> unsent_;  // encrypted bytes that it has not taken
  size_t encrypted_ = 0;           // bytes of the caller in unsent_
  bool writable_ = true;           // it may take more now
  uint64_t records_ = 0;           // written with the present key
};

}  // namespace tenuto::tcp
