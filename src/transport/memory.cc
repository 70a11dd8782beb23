#include "transport/memory.h"

#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "transport/hello.h"

namespace tenuto {

namespace {

struct Sending {
  std::span<const std::byte> bytes;
  Stamp stamp;
  Ticket ticket;
};

struct Receiving {
  std::span<std::byte> bytes;
  Ticket ticket;
};

struct Node;

// What one end knows of the other.
struct Peer {
  Node* node = nullptr;               // the other end while connected
  std::optional<std::string> lost;    // why the other end is gone; calls with it end at once
  std::map<Tag, Sending> sends;       // waiting for the peer's receive
  std::map<Tag, Receiving> receives;  // waiting for the peer's message
};

struct Node {
  Hello hello;
  Mailbox* mailbox;
  const Clock* clock;
  bool open = true;
  int busy = 0;  // copies and reports under way that use this node's mailbox or buffers
  std::map<WorkerId, Peer> peers;
};

// Work that was decided under the lock and is done after it: copies first, then reports.
struct Deferred {
  struct Copy {
    Node *from, *to;
    Sending sending;
    Receiving receiving;
  };
  std::vector<Copy> copies;
  std::vector<std::pair<Node*, Done>> reports;

  void report(Node& node, Ticket ticket, WorkerId peer, Status status) {
    Done done;
    done.ticket = ticket;
    done.peer = peer;
    done.status = std::move(status);
    reports.emplace_back(&node, std::move(done));
  }
};

std::string name_of(WorkerId worker) { return cat("worker-", worker); }

}  // namespace

// All nodes under one lock; nothing is copied or posted while it is held.
class MemoryNetwork::State {
 public:
  Node* enter(Hello hello, Mailbox& mailbox, const Clock& clock);
  void leave(Node& node);
  void connect(Node& node, WorkerId peer, const Address& address, Ticket ticket);
  Status send(Node& node, WorkerId to, Tag tag, const Sending& sending);
  Status recv(Node& node, WorkerId from, Tag tag, const Receiving& receiving);
  void drop(Node& node, WorkerId peer);
  void lose(WorkerId worker);
  Status close(Node& node, Duration limit);

 private:
  Node* find(const std::string& name);
  Status agree(Node& node, WorkerId peer, const Address& address);
  void match_all(Node& from, Node& to, Deferred& deferred);
  void sever(Node& node, WorkerId peer, const Error& error, Deferred& deferred);
  void part(Node& node, const Error& mine, const std::string& theirs, bool report,
            Deferred& deferred);
  void run(std::unique_lock<std::mutex>& lock, Deferred& deferred);
  static void meet(Node& from, Node& to, const Tag& tag, const Sending& sending,
                   const Receiving& receiving, Deferred& deferred);

  std::mutex mutex_;  // guards every Node; nothing else is locked while it is held
  std::condition_variable changed_;
  std::list<Node> nodes_;
};

Node* MemoryNetwork::State::enter(Hello hello, Mailbox& mailbox, const Clock& clock) {
  const std::lock_guard lock(mutex_);
  nodes_.push_back({std::move(hello), &mailbox, &clock, true, 0, {}});
  return &nodes_.back();
}

void MemoryNetwork::State::leave(Node& node) {
  std::unique_lock lock(mutex_);
  CHECK(!node.open, "a memory wire leaves before it was closed");
  changed_.wait(lock, [&] { return node.busy == 0; });
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    if (&*it == &node) {
      nodes_.erase(it);
      return;
    }
  }
}

// The newest open node of that name: a restarted worker takes over its predecessor's name.
Node* MemoryNetwork::State::find(const std::string& name) {
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    if (it->open && name_of(it->hello.self) == name) return &*it;
  }
  return nullptr;
}

void MemoryNetwork::State::run(std::unique_lock<std::mutex>& lock, Deferred& deferred) {
  for (const auto& copy : deferred.copies) {
    ++copy.from->busy;
    ++copy.to->busy;
  }
  for (const auto& [node, done] : deferred.reports) ++node->busy;
  lock.unlock();
  for (const auto& copy : deferred.copies) {
    const auto bytes = copy.sending.bytes;
    if (!bytes.empty()) std::memcpy(copy.receiving.bytes.data(), bytes.data(), bytes.size());
    copy.to->mailbox->post(received(copy.receiving.ticket, copy.from->hello.self,
                                    copy.sending.stamp, copy.to->clock->now()));
    Done sent;
    sent.ticket = copy.sending.ticket;
    sent.peer = copy.to->hello.self;
    copy.from->mailbox->post(std::move(sent));
  }
  for (auto& [node, done] : deferred.reports) node->mailbox->post(std::move(done));
  lock.lock();
  for (const auto& copy : deferred.copies) {
    --copy.from->busy;
    --copy.to->busy;
  }
  for (const auto& [node, done] : deferred.reports) --node->busy;
  changed_.notify_all();
}

void MemoryNetwork::State::meet(Node& from, Node& to, const Tag& tag, const Sending& sending,
                                const Receiving& receiving, Deferred& deferred) {
  if (sending.bytes.size() == receiving.bytes.size()) {
    deferred.copies.push_back({&from, &to, sending, receiving});
    return;
  }
  const Error error =
      size_error(from.hello.self, to.hello.self, tag, {static_cast<int64_t>(sending.bytes.size())},
                 {static_cast<int64_t>(receiving.bytes.size())});
  deferred.report(from, sending.ticket, to.hello.self, error);
  deferred.report(to, receiving.ticket, from.hello.self, error);
}

void MemoryNetwork::State::match_all(Node& from, Node& to, Deferred& deferred) {
  auto& sends = from.peers[to.hello.self].sends;
  auto& receives = to.peers[from.hello.self].receives;
  for (auto it = sends.begin(); it != sends.end();) {
    const auto receive = receives.find(it->first);
    if (receive == receives.end()) {
      ++it;
      continue;
    }
    meet(from, to, it->first, it->second, receive->second, deferred);
    receives.erase(receive);
    it = sends.erase(it);
  }
}

Status MemoryNetwork::State::agree(Node& node, WorkerId peer, const Address& address) {
  Node* other = find(address.text);
  if (peer == node.hello.self) return invalid(cat("worker ", peer, " connects to itself"));
  if (other == nullptr) {
    return Error{Code::Disconnected, Reach::Link,
                 cat("worker ", node.hello.self, " cannot reach worker ", peer,
                     ": nobody in this process listens at '", address.text, "'")};
  }
  if (other->hello.self != peer) {
    return Error{Code::Invalid, Reach::Link,
                 cat("at '", address.text, "' listens worker ", other->hello.self,
                     ", expected worker ", peer, ": check the list of addresses")};
  }
  const Status verdict = verify_hello(other->hello, node.hello, cat("worker ", node.hello.self));
  if (!verdict.ok()) {
    return Error{verdict.error().code, verdict.error().reach,
                 cat("worker ", peer, " refused: ", verdict.error().message)};
  }
  if (node.peers[peer].node != nullptr || other->peers[node.hello.self].node != nullptr) {
    return invalid(cat("worker ", node.hello.self, " and worker ", peer,
                       " are already connected: of a pair exactly one end connects"));
  }
  node.peers[peer].node = other;
  node.peers[peer].lost.reset();
  other->peers[node.hello.self].node = &node;
  other->peers[node.hello.self].lost.reset();
  return ok();
}

void MemoryNetwork::State::connect(Node& node, WorkerId peer, const Address& address,
                                   Ticket ticket) {
  std::unique_lock lock(mutex_);
  Deferred deferred;
  Status status = node.open ? agree(node, peer, address) : closed_error(node.hello.self);
  const bool connected = status.ok();
  deferred.report(node, ticket, peer, std::move(status));
  if (connected) {
    Node& other = *node.peers[peer].node;
    match_all(node, other, deferred);
    match_all(other, node, deferred);
  }
  run(lock, deferred);
}

Status MemoryNetwork::State::send(Node& node, WorkerId to, Tag tag, const Sending& sending) {
  std::unique_lock lock(mutex_);
  if (!node.open) return closed_error(node.hello.self);
  Deferred deferred;
  Peer& peer = node.peers[to];
  if (peer.lost) {
    deferred.report(node, sending.ticket, to, lost_error(to, *peer.lost));
  } else if (peer.sends.contains(tag)) {
    deferred.report(node, sending.ticket, to, twice_error("send", to, tag));
  } else {
    peer.sends.emplace(tag, sending);
    if (peer.node != nullptr) {
      auto& receives = peer.node->peers[node.hello.self].receives;
      if (const auto found = receives.find(tag); found != receives.end()) {
        meet(node, *peer.node, tag, sending, found->second, deferred);
        receives.erase(found);
        peer.sends.erase(tag);
      }
    }
  }
  run(lock, deferred);
  return ok();
}

Status MemoryNetwork::State::recv(Node& node, WorkerId from, Tag tag, const Receiving& receiving) {
  std::unique_lock lock(mutex_);
  if (!node.open) return closed_error(node.hello.self);
  Deferred deferred;
  Peer& peer = node.peers[from];
  if (peer.lost) {
    deferred.report(node, receiving.ticket, from, lost_error(from, *peer.lost));
  } else if (peer.receives.contains(tag)) {
    deferred.report(node, receiving.ticket, from, twice_error("receive", from, tag));
  } else {
    peer.receives.emplace(tag, receiving);
    if (peer.node != nullptr) {
      auto& sends = peer.node->peers[node.hello.self].sends;
      if (const auto found = sends.find(tag); found != sends.end()) {
        meet(*peer.node, node, tag, found->second, receiving, deferred);
        sends.erase(found);
        peer.receives.erase(tag);
      }
    }
  }
  run(lock, deferred);
  return ok();
}

// Ends this side's calls with `peer` and forgets the connection.
void MemoryNetwork::State::sever(Node& node, WorkerId peer, const Error& error,
                                 Deferred& deferred) {
  Peer& side = node.peers[peer];
  side.node = nullptr;
  for (const auto& [tag, sending] : side.sends) deferred.report(node, sending.ticket, peer, error);
  for (const auto& [tag, posted] : side.receives) deferred.report(node, posted.ticket, peer, error);
  side.sends.clear();
  side.receives.clear();
}

// Disconnects `node` from all its peers. Its own calls end with `mine`, the peers' calls with
// `theirs`. With `report` the peers also get a report of the loss; an orderly close has none.
void MemoryNetwork::State::part(Node& node, const Error& mine, const std::string& theirs,
                                bool report, Deferred& deferred) {
  node.open = false;
  const WorkerId self = node.hello.self;
  for (auto& [id, peer] : node.peers) {
    if (Node* other = peer.node; other != nullptr) {
      const Error error = lost_error(self, theirs);
      other->peers[self].lost = theirs;
      if (report) deferred.report(*other, kNoTicket, self, error);
      sever(*other, self, error, deferred);
    }
    sever(node, id, mine, deferred);
  }
}

void MemoryNetwork::State::drop(Node& node, WorkerId peer) {
  std::unique_lock lock(mutex_);
  Deferred deferred;
  if (Node* other = node.peers[peer].node; other != nullptr) {
    const WorkerId self = node.hello.self;
    const Error error = lost_error(self, "it dropped the link");
    other->peers[self].lost = "it dropped the link";
    deferred.report(*other, kNoTicket, self, error);
    sever(*other, self, error, deferred);
  }
  sever(node, peer, dropped_error(peer), deferred);
  node.peers[peer].lost.reset();
  run(lock, deferred);
}

void MemoryNetwork::State::lose(WorkerId worker) {
  std::unique_lock lock(mutex_);
  Node* node = find(name_of(worker));
  if (node == nullptr) return;
  Deferred deferred;
  part(*node, lost_error(worker, "its wire was cut"), "its end of the wire is gone", true,
       deferred);
  run(lock, deferred);
}

Status MemoryNetwork::State::close(Node& node, Duration limit) {
  std::unique_lock lock(mutex_);
  if (!node.open) return ok();
  const auto waiting = [&] {
    size_t count = 0;
    for (const auto& [id, peer] : node.peers) count += peer.sends.size();
    return count;
  };
  const bool flushed = changed_.wait_for(
      lock, limit, [&] { return !node.open || (waiting() == 0 && node.busy == 0); });
  const size_t left = waiting();
  Deferred deferred;
  part(node, closed_error(node.hello.self), "it closed its wire", false, deferred);
  run(lock, deferred);
  if (flushed) return ok();
  return Error{Code::Timeout, Reach::Call,
               cat("worker ", node.hello.self, " closed its wire with ", left,
                   " messages that nobody had asked for within the limit")};
}

namespace {

class MemoryTransport : public Transport {
 public:
  MemoryTransport(std::shared_ptr<MemoryNetwork::State> state, Node* node)
      : state_(std::move(state)), node_(node), self_(node->hello.self) {}
  MemoryTransport(const MemoryTransport&) = delete;
  MemoryTransport& operator=(const MemoryTransport&) = delete;
  ~MemoryTransport() override {
    [[maybe_unused]] const Status status = state_->close(*node_, Duration::zero());
    state_->leave(*node_);
  }

  Address address() const override { return {name_of(self_)}; }

  Status connect(WorkerId peer, const Address& address, Ticket ticket) override {
    state_->connect(*node_, peer, address, ticket);
    return ok();
  }

  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    return state_->send(*node_, to, tag, {bytes, stamp, ticket});
  }

  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    return state_->recv(*node_, from, tag, {bytes, ticket});
  }

  Status drop(WorkerId peer) override {
    state_->drop(*node_, peer);
    return ok();
  }

  Status close(Duration limit) override { return state_->close(*node_, limit); }

 private:
  std::shared_ptr<MemoryNetwork::State> state_;
  Node* node_;
  WorkerId self_;
};

}  // namespace

MemoryNetwork::MemoryNetwork() : state_(std::make_shared<State>()) {}
MemoryNetwork::~MemoryNetwork() = default;

void MemoryNetwork::lose(WorkerId worker) { state_->lose(worker); }

std::unique_ptr<Transport> make_memory_transport(MemoryNetwork& network, Hello self,
                                                 Mailbox& mailbox, const Clock& clock) {
  Node* node = network.state_->enter(std::move(self), mailbox, clock);
  return std::make_unique<MemoryTransport>(network.state_, node);
}

}  // namespace tenuto
