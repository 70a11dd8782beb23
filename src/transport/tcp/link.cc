#include "transport/tcp/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "transport/hello.h"

namespace tenuto::tcp {

namespace {

// A large send waits for its acknowledgement for this time, and longer for each byte under way.
// Then its bytes are copied and it ends. On a link slower than 250 MB/s the copy costs little
// compared with the transfer; on a faster one the acknowledgement comes in time, and nothing is
// copied.
constexpr Duration kPatience = std::chrono::milliseconds(1);
constexpr int64_t kPatienceForByte = 4;  // ns

}  // namespace

Link::Link(WorkerId self, WorkerId peer, const LinkSettings& settings, Tally& tally,
           Mailbox& mailbox)
    : self_(self), peer_(peer), settings_(settings), tally_(tally), mailbox_(mailbox) {}

void Link::report(Ticket ticket, Status status) {
  Done done;
  done.ticket = ticket;
  done.peer = peer_;
  done.status = std::move(status);
  mailbox_.post(std::move(done));
}

void Link::send(const Tag& tag, std::span<const std::byte> bytes, const Stamp& stamp,
                Ticket ticket) {
  if (sends_.contains(tag)) return report(ticket, twice_error("send", peer_, tag));
  const Purpose purpose = settings_.purpose_of ? settings_.purpose_of(tag) : Purpose::Step;
  const Sending sending{bytes, stamp, ticket, next_order_++, purpose};
  const auto granted = granted_.find(tag);
  if (granted == granted_.end()) {
    sends_.emplace(tag, sending);
    return;
  }
  const Granted grant = granted->second;
  granted_.erase(granted);
  pair(tag, sending, grant);
}

void Link::recv(const Tag& tag, std::span<std::byte> bytes, Taker taker, Ticket ticket) {
  if (!posted_.emplace(tag, next_grant_).second) {
    return report(ticket, twice_error("receive", peer_, tag));
  }
  const uint64_t number = next_grant_++;
  Receiving& posted = receives_[number];
  posted.tag = tag;
  posted.bytes = bytes;
  posted.taker = taker;
  posted.ticket = ticket;
  if (open_) grant(number, posted);
}

void Link::grant(uint64_t number, const Receiving& posted) {
  Frame frame;
  frame.kind = FrameKind::Grant;
  frame.grant = number;
  frame.from = posted.have;
  frame.size = posted.bytes.size();
  frame.tag = posted.tag;
  control_.push_back(frame);
}

// A send and its grant have both come. The caller has made sure that the number is new.
void Link::pair(const Tag& tag, const Sending& sending, const Granted& granted) {
  Sent& sent = sent_[granted.grant];
  sent.sending = sending;
  sent.connection = connection_;
  sent.mismatch = granted.size != sending.bytes.size();
  if (sent.mismatch) {
    const Ticket ticket = std::exchange(sent.sending.ticket, kNoTicket);
    report(ticket,
           size_error(self_, peer_, tag, size_of(sending.bytes.size()), size_of(granted.size)));
  } else if (sending.bytes.size() <= kSmall) {
    keep(sent);
    end_early(sent);
  }
  enqueue(granted.grant, sent);
}

void Link::enqueue(uint64_t number, const Sent& sent) {
  if (sent.mismatch || sent.sending.bytes.size() <= kSmall) {
    small_.push_back(number);
  } else {
    large_[static_cast<size_t>(sent.sending.purpose)].emplace(sent.sending.order, number);
  }
}

// Copies the bytes of a message, so that it can be sent again after its send has ended.
void Link::keep(Sent& sent) {
  if (sent.kept) return;
  sent.kept = true;
  const std::span<const std::byte> bytes = sent.sending.bytes;
  if (bytes.size() > kSmall) ++tally_.kept;
  if (bytes.empty()) return;
  sent.own.reset(new std::byte[bytes.size()]);
  std::memcpy(sent.own.get(), bytes.data(), bytes.size());
  sent.sending.bytes = {sent.own.get(), bytes.size()};
}

void Link::end_early(Sent& sent) {
  const Ticket ticket = std::exchange(sent.sending.ticket, kNoTicket);
  if (ticket != kNoTicket) report(ticket, ok());
}

// A message is known to have arrived.
void Link::finish(std::map<uint64_t, Sent>::iterator sent) {
  end_early(sent->second);
  sent_.erase(sent);
}

void Link::fail(const Error& error) {
  const auto sends = std::exchange(sends_, {});
  const auto sent = std::exchange(sent_, {});
  granted_.clear();
  outbox_.own();
  small_.clear();
  large_ = {};
  control_.clear();
  unacknowledged_.clear();
  late_.clear();
  ignoring_ = true;
  for (const auto& [tag, sending] : sends) report(sending.ticket, error);
  for (const auto& [number, each] : sent) {
    if (each.sending.ticket != kNoTicket) report(each.sending.ticket, error);
  }
  stop_receives(error);
}

void Link::stop_receives(const Error& error) {
  const auto receives = std::exchange(receives_, {});
  posted_.clear();
  coming_ = nullptr;
  for (const auto& [number, posted] : receives) report(posted.ticket, error);
}

void Link::end_receives(const Error& error) {
  receives_ended_ = true;
  stop_receives(error);
}

size_t Link::unsent() const {
  size_t count = sends_.size();
  for (const auto& [number, sent] : sent_) {
    if (!sent.left || sent.sending.ticket != kNoTicket) ++count;
  }
  return count;
}

void Link::opened() {
  broke();
  ++connection_;
  open_ = true;
  ignoring_ = false;
  // The peer takes AllGranted for the word that what is not granted again has arrived.
  if (receives_ended_) return;
  for (const auto& [number, posted] : receives_) grant(number, posted);
  Frame frame;
  frame.kind = FrameKind::AllGranted;
  control_.push_back(frame);
}

void Link::broke() {
  open_ = leaving_ = parted_ = false;
  granted_.clear();
  control_.clear();
  small_.clear();
  large_ = {};
  outbox_.clear();
  unacknowledged_.clear();
  late_.clear();
  unacknowledged_bytes_ = 0;
  slow_acknowledgements_ = false;
  newest_granted_ = 0;
  held_until_ = Duration::max();
  owed_ = 0;
  owed_now_ = false;
  head_size_ = bytes_left_ = 0;
  coming_ = nullptr;
  for (auto& [number, sent] : sent_) {
    sent.begun = sent.left = false;
    sent.due = {};
  }
  for (auto& [number, posted] : receives_) posted.started = false;
}

void Link::say_bye() {
  if (!open_ || leaving_) return;
  Frame frame;
  frame.kind = FrameKind::Bye;
  control_.push_back(frame);
  leaving_ = true;
}

std::span<const std::span<const std::byte>> Link::gather(Duration now) {
  if (!open_) return {};
  if (outbox_.empty()) {
    const bool large = std::any_of(large_.begin(), large_.end(),
                                   [](const auto& waiting) { return !waiting.empty(); });
    const bool something = !control_.empty() || !small_.empty() || large;
    if (owed_ > 0 && (something || owed_now_)) stage_acknowledgements();
    size_t staged = 0;
    for (; staged < control_.size() && outbox_.has_space(); ++staged) {
      outbox_.stage(control_[staged]);
    }
    control_.erase(control_.begin(), control_.begin() + static_cast<ptrdiff_t>(staged));
    while (!small_.empty() && outbox_.has_space()) {
      const uint64_t number = small_.front();
      small_.pop_front();
      stage_message(number, sent_.at(number));
    }
    held_until_ = Duration::max();
    stage_large(Purpose::Step, now);
    stage_large(Purpose::Transfer, now);
  }
  return outbox_.gather();
}

// Stages pieces of large messages, as far as there is space and their rate allows it.
void Link::stage_large(Purpose purpose, Duration now) {
  auto& waiting = large_[static_cast<size_t>(purpose)];
  if (waiting.empty()) return;
  const double rate = settings_.pace != nullptr ? settings_.pace->rate(peer_, purpose) : 0;
  Meter& meter = meters_[static_cast<size_t>(purpose)];
  while (!waiting.empty() && outbox_.has_space()) {
    if (rate > 0 && meter.due() > now) {
      held_until_ = std::min(held_until_, meter.due());
      return;
    }
    const uint64_t number = waiting.begin()->second;
    Sent& sent = sent_.at(number);
    const size_t before = sent.next;
    if (settings_.pace != nullptr) {
      const size_t piece = std::min(kPiece, sent.sending.bytes.size() - before);
      if (!reserved_) reserved_ = settings_.pace->reserve(peer_, size_of(piece), now);
      if (*reserved_ > now) {
        held_until_ = std::min(held_until_, *reserved_);
        return;
      }
      reserved_.reset();
    }
    stage_message(number, sent);
    if (rate > 0) meter.spend(size_of(sent.next - before), rate, now);
    if (sent.next == sent.sending.bytes.size()) waiting.erase(waiting.begin());
  }
}

void Link::stage_acknowledgements() {
  Frame frame;
  frame.kind = FrameKind::Got;
  frame.count = std::exchange(owed_, 0);
  owed_now_ = false;
  outbox_.stage(frame);
}

// Stages the next piece of a message.
void Link::stage_message(uint64_t number, Sent& sent) {
  Frame frame;
  frame.grant = number;
  const std::span<const std::byte> bytes = sent.sending.bytes;
  const size_t size = sent.mismatch ? 0 : std::min(kPiece, bytes.size() - sent.next);
  if (sent.mismatch) {
    frame.kind = FrameKind::Mismatch;
    frame.size = bytes.size();
  } else {
    frame.kind = sent.begun ? FrameKind::Piece : FrameKind::Start;
    frame.count = static_cast<uint32_t>(size);
    frame.stamp = sent.sending.stamp;
  }
  const bool last = sent.mismatch || sent.next + size == bytes.size();
  sent.begun = true;
  if (last) unacknowledged_.push_back(number);
  outbox_.stage(frame, last && size == 0 ? number : 0);
  if (size > 0) outbox_.stage(bytes.subspan(sent.next, size), last ? number : 0);
  sent.next += size;
}

void Link::written(size_t count, Duration now) {
  outbox_.written(count, [&](uint64_t number) { left(number, now); });
}

// The last byte of a message has been written.
void Link::left(uint64_t number, Duration now) {
  ++messages_written_;
  const auto found = sent_.find(number);
  if (found == sent_.end()) return;  // its call has ended meanwhile
  Sent& sent = found->second;
  sent.left = true;
  if (sent.kept || sent.mismatch) return;
  unacknowledged_bytes_ += sent.sending.bytes.size();
  sent.due =
      now + kPatience + Duration(kPatienceForByte * static_cast<int64_t>(unacknowledged_bytes_));
  if (settings_.sends_end_there) return;
  if (slow_acknowledgements_) {
    unacknowledged_bytes_ -= sent.sending.bytes.size();
    keep(sent);
    end_early(sent);
  } else {
    late_.push_back({sent.due, number});
  }
}

Duration Link::tick(Duration now) {
  for (; !late_.empty(); late_.pop_front()) {
    const auto [due, number] = late_.front();
    const auto found = sent_.find(number);
    if (found == sent_.end() || found->second.kept || found->second.due != due) continue;
    if (due > now) return due;
    unacknowledged_bytes_ -= found->second.sending.bytes.size();
    keep(found->second);
    end_early(found->second);
    slow_acknowledgements_ = true;
  }
  return Duration::max();
}

}  // namespace tenuto::tcp
