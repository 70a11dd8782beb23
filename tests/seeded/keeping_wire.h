// A wire that may deliver a message of an earlier epoch, as the models of recovery assume. It wraps
// the wire of each epoch; all wires of a run share the record of sent messages.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/test_cluster.h"
#include "runtime/worker.h"
#include "transport/hello.h"

namespace tenuto {

// The newest message sent, by sender, receiver and tag.
struct SentBefore {
  // A message and the epoch of the wire that it was sent over.
  struct Message {
    int64_t epoch = 0;
    std::vector<std::byte> bytes;
    Stamp stamp;
  };
  std::mutex mutex;  // guards the messages
  std::map<std::tuple<WorkerId, WorkerId, Tag>, Message> messages;
};

// If a message with the same tag was sent in an earlier epoch, a receive delivers that one; the
// message that is sent over this wire is then received and thrown away.
class KeepingTransport : public ForwardingTransport {
 public:
  KeepingTransport(std::unique_ptr<Transport> under, const Hello& hello, SentBefore& sent,
                   Mailbox& mailbox)
      : ForwardingTransport(std::move(under)),
        self_(hello.self),
        epoch_(hello.epoch),
        sent_(sent),
        mailbox_(mailbox) {}
  ~KeepingTransport() override { under_.reset(); }  // destroyed before the memory it may write to

  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    {
      const std::lock_guard lock(sent_.mutex);
      sent_.messages[{self_, to, tag}] = {epoch_, {bytes.begin(), bytes.end()}, stamp};
    }
    return under_->send(to, tag, bytes, stamp, ticket);
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    if (!take_old(from, tag, bytes, ticket)) return under_->recv(from, tag, bytes, ticket);
    thrown_away_.emplace_back(bytes.size());
    return under_->recv(from, tag, thrown_away_.back(), fresh_ticket());
  }

 private:
  bool take_old(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) {
    const std::lock_guard lock(sent_.mutex);
    const auto found = sent_.messages.find({from, self_, tag});
    if (found == sent_.messages.end()) return false;
    const SentBefore::Message& message = found->second;
    if (message.epoch >= epoch_ || message.bytes.size() != bytes.size()) return false;
    std::memcpy(bytes.data(), message.bytes.data(), bytes.size());
    mailbox_.post(received(ticket, from, message.stamp, monotonic_clock().now()));
    return true;
  }

  const WorkerId self_;
  const int64_t epoch_;
  SentBefore& sent_;
  Mailbox& mailbox_;
  std::deque<std::vector<std::byte>> thrown_away_;
};

}  // namespace tenuto
