#include "simulated_network.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "breaks.h"

namespace tenuto::tcp {

namespace {

constexpr size_t kSpace = 200 << 10;  // of one direction, as a kernel's buffers have
// The part of it at the receiver: what does not fit there is not acknowledged.
constexpr size_t kWindow = kSpace / 2;
// When a packet without an answer is sent again; each next time after twice as long.
constexpr Duration kRepeat = std::chrono::milliseconds(10);
// How often a sender asks for space at a receiver that has none, and when the answer comes.
constexpr Duration kQuestion = std::chrono::milliseconds(100);
constexpr Duration kAnswer = std::chrono::milliseconds(90);

}  // namespace

// One host's sockets.
class SimulatedSockets : public Sockets {
 public:
  using End = SimulatedNetwork::End;
  explicit SimulatedSockets(SimulatedNetwork& network)
      : number(network.next_host_++), net_(network) {}
  ~SimulatedSockets() override { std::erase(net_.hosts_, this); }

  Result<std::string> listen(const std::string& host, uint16_t) override {
    port = net_.next_port_++;
    return cat(host, ":", port);
  }
  SocketId accept(SocketAddress& from) override {
    for (auto& each : waiting) {
      if (each->open_at > net_.now_) continue;
      const auto end = std::make_shared<End>();
      end->told_open = true;
      auto& address = reinterpret_cast<sockaddr_in&>(from.storage);
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(0x0a000000u + static_cast<uint32_t>(each->from));
      from.length = sizeof(sockaddr_in);
      end->other = each;
      each->other = end;
      each->accepted = true;
      end->swallowed = each->swallowed;
      std::erase(waiting, std::shared_ptr<End>(each));
      return keep(end);
    }
    return kNoSocket;
  }
  SocketId connect(const SocketAddress& to) override;
  Io read(SocketId socket, std::span<const std::span<std::byte>> to) override;
  Io write(SocketId socket, std::span<const std::span<const std::byte>> from) override;
  std::string binding(SocketId) const override { return {}; }
  void close(SocketId socket, bool reset) override {
    const auto node = ends.extract(static_cast<int32_t>(socket));
    if (!node.empty()) close_end(*node.mapped(), reset);  // a killed host's are gone
  }
  Delivery delivery(SocketId socket) const override;
  void wait(Duration limit, std::vector<SocketEvent>& events) override;
  void wake() override {}
  Duration now() const override { return net_.now_; }

  // The next moment at which an event comes by itself.
  Duration next() const;
  void close_end(End& end, bool reset) {
    const auto other = end.other.lock();
    if (other == nullptr || end.swallowed) return;
    Duration& moment = reset ? other->breaks_at : other->ends_at;
    moment = std::min(moment, net_.now_ + net_.delay());
  }

  const int number;  // of this host; its address is 10.0.0.0 and so many
  std::vector<Duration> troubles;
  int port = 0, refusals = 0;
  bool alive = true, stopped = false;
  std::map<int32_t, std::shared_ptr<End>> ends;
  std::vector<std::shared_ptr<End>> waiting;  // want to be accepted

 private:
  SocketId keep(std::shared_ptr<End> end) {
    int32_t id = 1;  // the lowest that is free, as the kernel gives
    while (ends.contains(id)) ++id;
    ends[id] = std::move(end);
    return SocketId{id};
  }

  // How a connection has ended.
  static Io failure(const End& end) {
    if (end.swallowed) return {Io::Kind::Silent, 0, false, "connection timed out"};
    return {Io::Kind::Failed, 0, false, "connection reset"};
  }
  // Whether a write that found no space may be tried again.
  static bool may_write_again(const End& end) {
    const auto other = end.other.lock();
    return end.blocked && (end.broken || (other != nullptr && other->size < kSpace / 2));
  }

  SimulatedNetwork& net_;
};

std::unique_ptr<Sockets> SimulatedNetwork::host() {
  auto made = std::make_unique<SimulatedSockets>(*this);
  hosts_.push_back(made.get());
  return made;
}

Duration SimulatedNetwork::delay() {
  return Duration(random_.below(std::max<int64_t>(faults_.most_latency.count(), 1)));
}

// Both ends break, each when it hears of it. What is under way is lost from a drawn byte on.
void SimulatedNetwork::break_now(End& end) {
  ++breaks_;
  const auto other = end.other.lock();
  for (End* each : {&end, other.get()}) {
    if (each == nullptr) continue;
    size_t kept = static_cast<size_t>(random_.below(static_cast<int64_t>(each->size) + 1));
    if (random_.below(4) == 0) kept = 0;
    each->size = kept;
    for (Chunk& chunk : each->coming) {
      const size_t rest = std::min(kept, chunk.bytes.size() - chunk.used);
      chunk.bytes.resize(chunk.used + rest);
      kept -= rest;
    }
    std::erase_if(each->coming, [](const Chunk& one) { return one.used == one.bytes.size(); });
    const Duration heard = random_.below(3) == 0 ? Duration(random_.below(3000000)) : Duration{};
    each->breaks_at = std::min(each->breaks_at, now_ + heard);
    each->broken = true;  // what is written from now on is lost
    if (each->dialler != nullptr) each->dialler->troubles.push_back(each->breaks_at);
  }
}

const std::vector<Duration>& SimulatedNetwork::troubles_of(const Sockets& host) {
  return static_cast<const SimulatedSockets&>(host).troubles;
}

void SimulatedNetwork::kill(Sockets& host) {
  auto& sockets = static_cast<SimulatedSockets&>(host);
  sockets.alive = false;
  for (auto& [id, end] : sockets.ends) sockets.close_end(*end, random_.below(2) == 0);
  sockets.ends.clear();
  for (auto& each : sockets.waiting) each->breaks_at = now_;
  sockets.waiting.clear();
}

void SimulatedNetwork::stop(Sockets& host, bool stopped) {
  static_cast<SimulatedSockets&>(host).stopped = stopped;
}

void SimulatedNetwork::cut(Sockets& host) {
  for (auto& [id, end] : static_cast<SimulatedSockets&>(host).ends) {
    const auto other = end->other.lock();
    if (other == nullptr) continue;
    if (!end->coming.empty()) {
      end->size -= end->coming.back().bytes.size() - end->coming.back().used;
      end->coming.pop_back();
    }
    end->ends_at = now_;
    other->broken = true;
  }
}

void SimulatedNetwork::break_all(Sockets& host) {
  for (auto& [id, end] : static_cast<SimulatedSockets&>(host).ends) break_now(*end);
}

void SimulatedNetwork::swallow(Sockets& host, Duration patience) {
  const Duration told = patience == Duration::max() ? patience : now_ + patience;
  for (auto& [id, end] : static_cast<SimulatedSockets&>(host).ends) {
    const auto other = end->other.lock();
    for (End* each : {end.get(), other.get()}) {
      if (each == nullptr) continue;
      each->swallowed = true;
      if (each->lost == 0) each->breaks_at = std::min(each->breaks_at, told);
    }
  }
}

void SimulatedNetwork::advance(Duration limit) {
  Duration next = limit;
  for (const SimulatedSockets* each : hosts_) {
    if (!each->stopped) next = std::min(next, each->next());
  }
  now_ = std::max(now_, next);
}

SocketId SimulatedSockets::connect(const SocketAddress& to) {
  const auto end = std::make_shared<End>();
  end->port = port_of(to.storage);
  end->from = number;
  end->dialler = this;
  end->open_at = net_.now_ + net_.delay();
  SimulatedSockets* target = nullptr;
  for (SimulatedSockets* each : net_.hosts_) {
    if (each->port == end->port && each->alive) target = each;
  }
  const bool refuse = net_.random_.below(100) < net_.faults_.refused_of_100 && refusals < 2;
  refusals = refuse ? refusals + 1 : 0;
  if (!net_.silent_ && (target == nullptr || refuse)) {
    end->refused = true;
    troubles.push_back(end->open_at);
  } else if (net_.silent_ || net_.random_.below(100) < net_.faults_.unanswered_of_100) {
    end->open_at = Duration::max();
  } else {
    target->waiting.push_back(end);
  }
  return keep(end);
}

Io SimulatedSockets::read(SocketId socket, std::span<const std::span<std::byte>> to) {
  End& end = *ends.at(static_cast<int32_t>(socket));
  Io io;
  if (end.open_at > net_.now_) return io;
  if (end.refused) return {Io::Kind::Refused, 0, false, "connection refused"};
  size_t wanted = 0, available = 0;
  for (const auto& each : to) wanted += each.size();
  for (const auto& chunk : end.coming) {
    if (chunk.at <= net_.now_) available += chunk.bytes.size() - chunk.used;
  }
  size_t count = std::min(wanted, available);
  if (count == 0) {
    if (end.breaks_at <= net_.now_) return failure(end);
    if (end.ends_at <= net_.now_ && end.coming.empty()) return {Io::Kind::Ended, 0, false, ""};
    return io;
  }
  if (net_.random_.below(3) == 0)
    count = static_cast<size_t>(net_.random_.below(static_cast<int64_t>(count))) + 1;
  io.kind = Io::Kind::Moved;
  io.count = count;
  io.more = count < available;
  end.size -= count;
  for (auto target : to) {
    while (!target.empty() && count > 0) {
      auto& chunk = end.coming.front();
      const size_t part = std::min({count, target.size(), chunk.bytes.size() - chunk.used});
      std::memcpy(target.data(), chunk.bytes.data() + chunk.used, part);
      chunk.used += part;
      count -= part;
      target = target.subspan(part);
      if (chunk.used == chunk.bytes.size()) end.coming.pop_front();
    }
  }
  return io;
}

Io SimulatedSockets::write(SocketId socket, std::span<const std::span<const std::byte>> from) {
  const auto found = ends.find(static_cast<int32_t>(socket));
  if (found == ends.end()) return {Io::Kind::Failed, 0, false, "killed"};
  End& end = *found->second;
  Io io;
  if (end.refused && end.open_at <= net_.now_) return {Io::Kind::Refused, 0, false, "refused"};
  if (end.breaks_at <= net_.now_) return failure(end);
  if (end.port != 0 && !end.accepted) {
    end.blocked = true;
    return io;
  }
  const auto other = end.other.lock();
  size_t wanted = 0;
  for (const auto& each : from) wanted += each.size();
  const bool lost = end.broken || other == nullptr;  // this end has not heard of it
  const size_t space = lost ? wanted + 1 : kSpace - std::min(kSpace, other->size);
  if (space == 0) {
    end.blocked = true;
    return io;
  }
  size_t count = std::min(wanted, space);
  if (net_.random_.below(3) == 0) {
    count = static_cast<size_t>(net_.random_.below(static_cast<int64_t>(count))) + 1;
  }
  io.kind = Io::Kind::Moved;
  io.count = count;
  io.more = count < space;
  end.blocked = !io.more;
  end.sent += count;
  if (net_.silent_ || end.swallowed) {
    if (end.lost == 0) end.lost_at = net_.now_;
    end.lost += count;
    // Keep-alive waits while bytes are under way.
    if (end.swallowed) end.breaks_at = Duration::max();
    return io;
  }
  if (lost) return io;
  const bool breaks =
      net_.faults_.mean_bytes > 0 && net_.until_break_ <= static_cast<int64_t>(count);
  const size_t sent = breaks ? static_cast<size_t>(net_.until_break_) : count;
  net_.until_break_ -= static_cast<int64_t>(count);
  SimulatedNetwork::Chunk chunk;
  chunk.at = net_.now_ + net_.delay();
  if (!other->coming.empty()) chunk.at = std::max(chunk.at, other->coming.back().at);
  for (const auto& each : from) {
    const size_t part = std::min(each.size(), sent - chunk.bytes.size());
    chunk.bytes.insert(chunk.bytes.end(), each.begin(), each.begin() + static_cast<long>(part));
  }
  other->size += chunk.bytes.size();
  if (!chunk.bytes.empty()) other->coming.push_back(std::move(chunk));
  if (breaks) {
    net_.break_now(end);
    net_.until_break_ = bytes_until_break(net_.random_, net_.faults_.mean_bytes);
  }
  return io;
}

Delivery SimulatedSockets::delivery(SocketId socket) const {
  const End& end = *ends.at(static_cast<int32_t>(socket));
  const auto other = end.other.lock();
  Delivery delivery;
  delivery.acknowledged = end.sent - end.lost;
  delivery.left = end.lost;
  if (end.lost > 0) {
    delivery.quiet = net_.now_ - end.lost_at;
    while (kRepeat * ((1 << (delivery.unanswered + 1)) - 1) <= delivery.quiet) {
      ++delivery.unanswered;
    }
  }
  if (other == nullptr) return delivery;
  size_t under_way = 0;
  for (const auto& chunk : other->coming) {
    if (chunk.at > net_.now_) under_way += chunk.bytes.size();
  }
  const size_t unread = other->size - std::min(other->size, under_way);
  const size_t refused = unread - std::min(unread, kWindow);
  delivery.left = end.lost + under_way + refused;
  if (refused > 0 && end.lost == 0) {
    const Duration asked = net_.now_ % kQuestion;
    delivery.unanswered = asked < kAnswer ? 2 : 0;
    delivery.quiet = asked < kAnswer ? asked + kQuestion - kAnswer : asked - kAnswer;
  }
  delivery.acknowledged = end.sent - delivery.left;
  delivery.round_trip = net_.faults_.most_latency;
  return delivery;
}

void SimulatedSockets::wait(Duration, std::vector<SocketEvent>& events) {
  for (auto& each : waiting) {
    if (each->open_at <= net_.now_ && !std::exchange(each->arrived, true)) {
      events.push_back({kNoSocket});
    }
  }
  for (auto& [id, end] : ends) {
    SocketEvent event{SocketId{id}};
    if (end->open_at <= net_.now_ && !std::exchange(end->told_open, true)) {
      event.readable = event.writable = true;
      event.over = end->refused;
    }
    for (auto& chunk : end->coming) {
      if (chunk.at <= net_.now_ && !std::exchange(chunk.told, true)) event.readable = true;
    }
    if (std::min(end->ends_at, end->breaks_at) <= net_.now_ &&
        !std::exchange(end->told_end, true)) {
      event.readable = event.writable = event.over = true;
    }
    if (may_write_again(*end)) {
      end->blocked = false;
      event.writable = true;
    }
    if (event.readable || event.writable) events.push_back(event);
  }
}

Duration SimulatedSockets::next() const {
  Duration next = Duration::max();
  for (const auto& each : waiting) {
    if (!each->arrived) next = std::min(next, each->open_at);
  }
  for (const auto& [id, end] : ends) {
    if (may_write_again(*end)) return net_.now_;
    if (!end->told_open) next = std::min(next, end->open_at);
    if (!end->told_end) next = std::min({next, end->ends_at, end->breaks_at});
    for (const auto& chunk : end->coming) {
      if (!chunk.told) next = std::min(next, chunk.at);
    }
  }
  return next;
}

}  // namespace tenuto::tcp
