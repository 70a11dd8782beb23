#include "transport/tcp/tls_sockets.h"

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "transport/tcp/tls_stream.h"

namespace tenuto::tcp {

namespace {

// What a listener says to a connection that has said nothing: an alert of TLS, unencrypted, that
// the handshake has failed. A worker without TLS waits for us to begin; it learns why we do not.
constexpr std::array<std::byte, 7> kUnheard{std::byte{0x15}, std::byte{3}, std::byte{3},
                                            std::byte{0},    std::byte{2}, std::byte{2},
                                            std::byte{40}};

class TlsSockets : public Sockets {
 public:
  TlsSockets(std::unique_ptr<Sockets> inner, TlsContext context, uint64_t records_for_a_key)
      : shared_{std::move(inner), std::move(context), records_for_a_key, {}} {}

  Result<std::string> listen(const std::string& host, uint16_t port) override {
    return shared_.inner->listen(host, port);
  }
  SocketId accept(SocketAddress& from) override {
    const std::lock_guard lock(mutex_);
    return add(shared_.inner->accept(from), TlsStream::Side::Listener);
  }
  SocketId connect(const SocketAddress& to) override {
    const std::lock_guard lock(mutex_);  // an event may come before this returns
    return add(shared_.inner->connect(to), TlsStream::Side::Dialler);
  }
  Io read(SocketId socket, std::span<const std::span<std::byte>> to) override {
    Connection& connection = connections_.at(socket);
    Io io = connection.stream.read(to);
    note(socket, connection);
    return io;
  }
  Io write(SocketId socket, std::span<const std::span<const std::byte>> from) override {
    Connection& connection = connections_.at(socket);
    Io io = connection.stream.write(from);
    note(socket, connection);
    return io;
  }
  std::string binding(SocketId socket) const override {
    return connections_.at(socket).stream.binding();
  }
  void close(SocketId socket, bool reset) override;
  // Of the encrypted bytes.
  Delivery delivery(SocketId socket) const override { return shared_.inner->delivery(socket); }
  void wait(Duration limit, std::vector<SocketEvent>& events) override;
  void wake() override { shared_.inner->wake(); }
  Duration now() const override { return shared_.inner->now(); }

 private:
  struct Connection {
    Connection(TlsShared& shared, SocketId socket, TlsStream::Side side)
        : stream(shared, socket, side) {}
    TlsStream stream;
    bool mixes = true;  // is in mixing_
  };
  SocketId add(SocketId socket, TlsStream::Side side) {
    if (socket == kNoSocket) return socket;
    connections_.try_emplace(socket, shared_, socket, side);
    mixing_.insert(socket);
    return socket;
  }
  void note(SocketId socket, Connection& connection);

  TlsShared shared_;
  std::map<SocketId, Connection> connections_;
  std::mutex mutex_;           // guards mixing_; nothing else is locked while it is held
  std::set<SocketId> mixing_;  // connections whose directions wait for each other
};

// After the first messages a connection's directions wait for each other no more.
void TlsSockets::note(SocketId socket, Connection& connection) {
  const bool mixes = connection.stream.mixes_directions();
  if (mixes == std::exchange(connection.mixes, mixes)) return;
  const std::lock_guard lock(mutex_);
  if (mixes) {
    mixing_.insert(socket);
  } else {
    mixing_.erase(socket);
  }
}

void TlsSockets::close(SocketId socket, bool reset) {
  const auto found = connections_.find(socket);
  if (found != connections_.end()) {
    TlsStream& stream = found->second.stream;
    if (!reset) stream.end();
    if (stream.unheard()) {
      const std::span<const std::byte> bytes(kUnheard);
      shared_.inner->write(socket, std::span(&bytes, 1));
    }
    connections_.erase(found);
    const std::lock_guard lock(mutex_);
    mixing_.erase(socket);
  }
  shared_.inner->close(socket, reset);
}

void TlsSockets::wait(Duration limit, std::vector<SocketEvent>& events) {
  size_t each = events.size();
  shared_.inner->wait(limit, events);
  if (each == events.size()) return;
  const std::lock_guard lock(mutex_);
  if (mixing_.empty()) return;
  for (; each < events.size(); ++each) {
    SocketEvent& event = events[each];
    if (mixing_.contains(event.socket)) event.readable = event.writable = true;
  }
}

}  // namespace

std::unique_ptr<Sockets> make_tls_sockets(std::unique_ptr<Sockets> inner, TlsContext context,
                                          uint64_t records_for_a_key) {
  return std::make_unique<TlsSockets>(std::move(inner), std::move(context), records_for_a_key);
}

}  // namespace tenuto::tcp
