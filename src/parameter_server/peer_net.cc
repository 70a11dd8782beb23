#include "parameter_server/peer_net.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/clock.h"
#include "base/longest_time.h"
#include "base/memory_left.h"
#include "base/text.h"

namespace tenuto::servers {

namespace {

constexpr int64_t kEpoch = -3;  // of tags; communicators have -1 and -2
constexpr uint64_t kNotice = 0, kHead = 1, kFirstPayload = 2;
constexpr uint64_t kTicketsBelongHere = uint64_t{1} << 63;
// How long the transport may keep memory of calls with dropped processes.
constexpr Duration kDropLimit = std::chrono::seconds(10);

Tag tag_of(int64_t number, uint64_t part) { return {kEpoch, number, part}; }

Payload notice_of(const std::vector<std::byte>& head) {
  auto notice = std::make_shared<std::vector<std::byte>>(kNoticeBytes);
  const auto length = static_cast<uint32_t>(head.size());
  std::memcpy(notice->data(), &length, sizeof(length));
  if (std::ssize(head) <= kHeadInNotice) {
    std::copy(head.begin(), head.end(), notice->begin() + sizeof(length));
  }
  return notice;
}

Error corrupt(WorkerId from, const std::string& what) {
  return {Code::Corrupt, Reach::Worker, cat("process ", from, " is dropped: ", what)};
}

}  // namespace

PeerNet::PeerNet(Transport& transport, Mailbox& mailbox, WorkerId self)
    : transport_(transport), mailbox_(mailbox), self_(self), last_ticket_(kTicketsBelongHere) {}

// Until its calls have ended the transport may read and write their memory. A closed one has ended
// them all.
PeerNet::~PeerNet() {
  bool is_open = false;
  for (const auto& [process, link] : links_) is_open |= transport_.drop(process).ok();
  const Duration until = monotonic_clock().now() + kDropLimit;
  while (is_open && !calls_.empty()) {
    const auto done = mailbox_.wait(std::max(until - monotonic_clock().now(), Duration::zero()));
    CHECK(done.ok(), "the transport does not end its calls with dropped processes");
    calls_.erase(done.value().ticket);
  }
}

Status PeerNet::open(WorkerId process) {
  if (process.value < 0 || process == self_ || links_.contains(process)) {
    return invalid(cat("process ", self_, " cannot receive from process ", process,
                       ": expected another process that was not opened or dropped before; one "
                       "that comes back needs a new number"));
  }
  links_[process];
  return expect_part(process, 0, kNotice, kNoticeBytes);
}

Status PeerNet::send(WorkerId to, const Message& message) {
  if (to == self_) {
    arrivals_.messages.push_back({self_, message});
    return ok();
  }
  const auto found = links_.find(to);
  if (found == links_.end()) {
    return invalid(cat("process ", self_, " sends to process ", to,
                       ", which was not opened: open() it first"));
  }
  Link& link = found->second;
  if (link.is_over) return ok();
  EncodedMessage encoded = encode(message);
  if (std::ssize(encoded.head) > kLargestHead) {
    return Error{Code::Exhausted, Reach::Call,
                 cat("process ", self_, " sends a message of ", encoded.head.size(),
                     " bytes without its payloads to process ", to, ": expected at most ",
                     kLargestHead, "; use fewer replicas")};
  }
  const int64_t number = link.sent++;
  Status status = send_part(to, number, kNotice, false, notice_of(encoded.head));
  if (status.ok() && std::ssize(encoded.head) > kHeadInNotice) {
    status = send_part(to, number, kHead, false,
                       std::make_shared<const std::vector<std::byte>>(std::move(encoded.head)));
  }
  const bool is_gradient = std::holds_alternative<Gradient>(message.body) ||
                           std::holds_alternative<Relayed>(message.body);
  uint64_t part = kFirstPayload;
  for (Payload& payload : encoded.payloads) {
    if (status.ok()) status = send_part(to, number, part++, is_gradient, std::move(payload));
  }
  return status;
}

Status PeerNet::send_part(WorkerId to, int64_t number, uint64_t part, bool is_gradient,
                          Payload bytes) {
  const Ticket ticket{++last_ticket_};
  const std::span<const std::byte> all(*bytes);
  if (is_gradient) unsent_ = unsent_ + size_of(bytes);
  const auto call =
      calls_.emplace(ticket, Call{to, number, part, true, is_gradient, std::move(bytes)}).first;
  const Status status = transport_.send(to, tag_of(number, part), all, {}, ticket);
  if (!status.ok()) end_call(call);
  return status;
}

Status PeerNet::expect_part(WorkerId from, int64_t number, uint64_t part, int64_t size) {
  const Ticket ticket{++last_ticket_};
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(size));
  const std::span<std::byte> all(*bytes);
  const auto call =
      calls_.emplace(ticket, Call{from, number, part, false, false, std::move(bytes)}).first;
  const Status status = transport_.recv(from, tag_of(number, part), all, ticket);
  if (!status.ok()) end_call(call);
  return status;
}

std::map<WorkerId, int64_t> PeerNet::take_sent() { return std::exchange(sent_, {}); }

Result<PeerNet::Arrivals> PeerNet::wait(Duration limit) {
  const Duration until = monotonic_clock().now() + std::min(limit, kLongestTime);
  // Messages to itself do not keep it from looking for others.
  do {
    const bool is_empty = arrivals_.messages.empty() && arrivals_.lost.empty();
    const Duration left = is_empty ? until - monotonic_clock().now() : Duration::zero();
    const auto done = mailbox_.wait(std::max(left, Duration::zero()));
    if (!done.ok() && done.error().code != Code::Timeout) return done.error();
    if (!done.ok()) break;
    if (done.value().ticket == kNoTicket && done.value().peer == WorkerId{}) break;
    if (const Status status = handle(done.value()); !status.ok()) return status.error();
  } while (arrivals_.messages.empty() && arrivals_.lost.empty());
  return std::exchange(arrivals_, {});
}

Status PeerNet::handle(const Done& done) {
  const auto found = calls_.find(done.ticket);
  if (found == calls_.end()) {
    // A loss, or the end of a call of the transport's owner.
    const auto link = links_.find(done.peer);
    if (link == links_.end() || link->second.is_over || done.status.ok()) return ok();
    lose(done.peer, link->second, done.status.error());
    return ok();
  }
  const Call call = end_call(found);
  Link& link = links_.at(call.process);
  if (call.is_send && done.status.ok()) sent_[call.process] += std::ssize(*call.bytes);
  if (link.is_over) return ok();
  Status status = done.status;
  if (status.ok() && !call.is_send) status = take(call, link);
  if (status.ok()) return ok();
  lose(call.process, link, status.error());
  // The end of a call says that the other process is gone, or that it takes part in another size.
  const Code code = status.error().code;
  if (code == Code::Disconnected || (code == Code::Cancelled && !done.status.ok())) return ok();
  return done.status.ok() ? status : corrupt(call.process, status.error().message);
}

// A part of a message is here.
Status PeerNet::take(const Call& call, Link& link) {
  if (call.part == kNotice) return take_notice(call, link);
  if (call.part == kHead) return take_head(call, call.bytes, link);
  Coming& coming = link.coming[static_cast<size_t>(call.number - link.first)];
  coming.payloads[call.part - kFirstPayload] = call.bytes;
  --coming.missing;
  return deliver(call.process, link);
}

Status PeerNet::take_notice(const Call& call, Link& link) {
  uint32_t length = 0;
  std::memcpy(&length, call.bytes->data(), sizeof(length));
  if (length > kLargestHead) {
    return corrupt(call.process,
                   cat("it sends a message of ", length,
                       " bytes without its payloads, expected at most ", kLargestHead));
  }
  link.coming.emplace_back();
  const Status status = expect_part(call.process, call.number + 1, kNotice, kNoticeBytes);
  if (!status.ok()) return status;
  if (length > kHeadInNotice) return expect_part(call.process, call.number, kHead, length);
  const auto head = std::span(*call.bytes).subspan(sizeof(length), length);
  return take_head(call, std::make_shared<const std::vector<std::byte>>(head.begin(), head.end()),
                   link);
}

Status PeerNet::take_head(const Call& call, Payload head, Link& link) {
  const auto sizes = payload_sizes(*head);
  if (!sizes.ok()) return corrupt(call.process, sizes.error().message);
  double sum = 0;
  for (const int64_t size : sizes.value()) sum += static_cast<double>(size);
  const Status memory = check_memory(cat("a message from process ", call.process), sum);
  if (!memory.ok()) return memory;
  Coming& coming = link.coming[static_cast<size_t>(call.number - link.first)];
  coming.head = std::move(head);
  coming.payloads.resize(sizes.value().size());
  coming.missing = sizes.value().size();
  uint64_t part = kFirstPayload;
  for (const int64_t size : sizes.value()) {
    const Status status = expect_part(call.process, call.number, part++, size);
    if (!status.ok()) return status;
  }
  return deliver(call.process, link);
}

// Gives out the messages that are complete, in order.
Status PeerNet::deliver(WorkerId from, Link& link) {
  while (!link.coming.empty()) {
    Coming& first = link.coming.front();
    if (first.head == nullptr || first.missing > 0) break;
    auto message = decode(*first.head, std::move(first.payloads));
    if (!message.ok()) return corrupt(from, message.error().message);
    arrivals_.messages.push_back({from, std::move(message).value()});
    link.coming.pop_front();
    ++link.first;
  }
  return ok();
}

PeerNet::Call PeerNet::end_call(std::map<Ticket, Call>::iterator call) {
  Call ended = std::move(call->second);
  calls_.erase(call);
  if (!ended.is_gradient) return ended;
  unsent_ = unsent_ - size_of(ended.bytes);
  if (unsent_ == Bytes{}) emptied_ = monotonic_clock().now();
  return ended;
}

// The memory of calls that are under way is kept until they have ended.
void PeerNet::end_link(WorkerId process, Link& link) {
  [[maybe_unused]] const Status status = transport_.drop(process);
  link.is_over = true;
  link.coming.clear();
}

void PeerNet::lose(WorkerId process, Link& link, const Error& why) {
  end_link(process, link);
  arrivals_.lost.push_back(process);
  arrivals_.reasons.push_back(why.message);
}

void PeerNet::drop(WorkerId process) {
  if (process == self_) return;
  end_link(process, links_[process]);
}

}  // namespace tenuto::servers
