// The part of Link that reads what comes from the peer. The bytes may be anything: each number is
// checked before it is used, and nothing is allocated by a size that the peer tells.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "transport/hello.h"
#include "transport/tcp/link.h"

namespace tenuto::tcp {

namespace {

// What is read at a time where nothing larger is on its way.
constexpr size_t kBehind = 16 << 10;
// What is read behind a piece of a large message: the next header, and little of the next piece,
// which should land where it belongs.
constexpr size_t kBehindPiece = 256;

}  // namespace

Error Link::malformed(const std::string& what) { return {Code::Corrupt, Reach::Link, what}; }

std::span<std::byte> Link::landing() {
  if (coming_ == nullptr) return {};
  return coming_->bytes.subspan(coming_->have, bytes_left_);
}

size_t Link::most_behind() const {
  const bool continues = coming_ != nullptr && coming_->have + bytes_left_ < coming_->bytes.size();
  return continues ? kBehindPiece : kBehind;
}

Status Link::take(size_t landed, std::span<const std::byte> more, Duration now) {
  if (landed > 0) advance(landed, now);
  while (!more.empty() && !parted_) {
    if (bytes_left_ > 0) {
      const size_t count = std::min(more.size(), bytes_left_);
      if (coming_ != nullptr) {
        std::memcpy(coming_->bytes.data() + coming_->have, more.data(), count);
      }
      advance(count, now);
      more = more.subspan(count);
      continue;
    }
    const size_t size = head_size_ < kFrameHead ? kFrameHead : frame_size({head_, kFrameHead});
    const size_t count = std::min(more.size(), size - head_size_);
    std::memcpy(head_ + head_size_, more.data(), count);
    head_size_ += count;
    more = more.subspan(count);
    if (head_size_ < kFrameHead) break;
    const size_t whole = frame_size({head_, kFrameHead});
    if (whole == 0) return malformed("it sent a header that no frame has");
    if (head_size_ < whole) continue;
    head_size_ = 0;
    const auto frame = decode({head_, whole});
    if (!frame.ok()) return frame.error();
    if (const Status status = handle(frame.value(), now); !status.ok()) return status;
  }
  return ok();
}

Status Link::handle(const Frame& frame, Duration now) {
  switch (frame.kind) {
    case FrameKind::Grant:
      return on_grant(frame);
    case FrameKind::Start:
      return on_start(frame, now);
    case FrameKind::Piece:
      return on_piece(frame);
    case FrameKind::Mismatch:
      return on_mismatch(frame);
    case FrameKind::Got:
      return on_got(frame.count, now);
    case FrameKind::AllGranted:
      on_all_granted();
      return ok();
    case FrameKind::Bye:
      parted_ = true;
      return ok();
  }
  return malformed("it sent a header that no frame has");
}

Status Link::on_grant(const Frame& frame) {
  if (ignoring_) return ok();
  if (frame.grant <= newest_granted_) {
    return malformed(cat("it granted receive ", frame.grant, " after ", newest_granted_));
  }
  newest_granted_ = frame.grant;
  if (const auto again = sent_.find(frame.grant); again != sent_.end()) {
    return on_regrant(frame, again->second);
  }
  const auto found = sends_.find(frame.tag);
  if (frame.from != 0) {
    return malformed(
        cat("it asks for the rest of a message (", to_text(frame.tag), ") that was not sent"));
  }
  if (found != sends_.end()) {
    const Sending sending = found->second;
    sends_.erase(found);
    pair(frame.tag, sending, {frame.grant, frame.size});
    return ok();
  }
  if (!granted_.emplace(frame.tag, Granted{frame.grant, frame.size}).second) {
    return malformed(cat("it posted two receives under ", to_text(frame.tag)));
  }
  if (granted_.size() <= settings_.most_awaited) return ok();
  return malformed(cat("it has posted more than ", settings_.most_awaited, " messages that worker ",
                       self_, " has not sent"));
}

// The peer still needs a message that was sent, at least in part, over an earlier connection.
Status Link::on_regrant(const Frame& frame, Sent& sent) {
  const size_t size = sent.sending.bytes.size();
  const bool fits = frame.size == size && frame.from < std::max<size_t>(size, 1);
  if (sent.connection == connection_ || !(fits || sent.mismatch)) {
    return malformed(cat("it changed a receive that it had granted (", to_text(frame.tag), ")"));
  }
  ++tally_.sent_again;
  sent.connection = connection_;
  sent.next = sent.mismatch ? 0 : frame.from;
  enqueue(frame.grant, sent);
  return ok();
}

Status Link::on_start(const Frame& frame, Duration now) {
  bytes_left_ = frame.count;
  coming_ = nullptr;
  if (ignoring_ || receives_ended_) return ok();
  const auto found = receives_.find(frame.grant);
  if (found == receives_.end()) return malformed("it sent a message that nobody waits for");
  Receiving& posted = found->second;
  const size_t wanted = posted.bytes.size() - posted.have;
  if (posted.started || frame.count > wanted || (frame.count == 0 && wanted > 0)) {
    return malformed(cat("it sent ", frame.count, " bytes of a message (", to_text(posted.tag),
                         ") that lacks ", posted.started ? size_t{0} : wanted));
  }
  posted.started = true;
  posted.stamp = frame.stamp;
  coming_ = &posted;
  if (frame.count == 0) arrived(now);
  return ok();
}

Status Link::on_piece(const Frame& frame) {
  bytes_left_ = frame.count;
  coming_ = nullptr;
  if (ignoring_ || receives_ended_) return ok();
  const auto found = receives_.find(frame.grant);
  if (found == receives_.end() || !found->second.started) {
    return malformed("it sent a piece of a message that has not begun");
  }
  Receiving& posted = found->second;
  const size_t wanted = posted.bytes.size() - posted.have;
  if (frame.count == 0 || frame.count > wanted) {
    return malformed(cat("it sent a piece of ", frame.count, " bytes of a message (",
                         to_text(posted.tag), ") that lacks ", wanted));
  }
  coming_ = &posted;
  return ok();
}

Status Link::on_mismatch(const Frame& frame) {
  if (ignoring_ || receives_ended_) return ok();
  const auto found = receives_.find(frame.grant);
  if (found == receives_.end() || found->second.started || found->second.have > 0) {
    return malformed("it told the size of a message that nobody waits for");
  }
  const Receiving posted = found->second;
  posted_.erase(posted.tag);
  receives_.erase(found);
  owe(0);
  report(posted.ticket,
         size_error(peer_, self_, posted.tag, size_of(frame.size), size_of(posted.bytes.size())));
  return ok();
}

// Bytes of a message have come.
void Link::advance(size_t count, Duration now) {
  bytes_left_ -= count;
  if (coming_ == nullptr) return;
  coming_->have += count;
  if (coming_->have == coming_->bytes.size()) return arrived(now);
  if (bytes_left_ == 0) coming_ = nullptr;
}

// The message that was coming is here.
void Link::arrived(Duration now) {
  const Receiving posted = *std::exchange(coming_, nullptr);
  const auto place = posted_.find(posted.tag);
  receives_.erase(place->second);
  posted_.erase(place);
  owe(posted.bytes.size());
  if (posted.taker.take != nullptr) posted.taker.take(posted.taker.self, posted.bytes);
  mailbox_.post(received(posted.ticket, peer_, posted.stamp, now));
}

// An arrival is to be acknowledged: at once if the sender waits for it, or else with the next
// frame.
void Link::owe(size_t size) {
  ++owed_;
  owed_now_ |= size > kSmall || settings_.sends_end_there || owed_ >= kMostOwed;
}

Status Link::on_got(uint32_t count, Duration now) {
  if (ignoring_) return ok();
  if (count == 0 || count > unacknowledged_.size()) {
    return malformed(cat("it acknowledged ", count, " messages of ", unacknowledged_.size()));
  }
  for (; count > 0; --count) {
    const auto found = sent_.find(unacknowledged_.front());
    unacknowledged_.pop_front();
    const Sent& sent = found->second;
    if (!sent.left) return malformed("it acknowledged a message that has not been written");
    if (sent.due != Duration{}) {
      if (!sent.kept) unacknowledged_bytes_ -= sent.sending.bytes.size();
      slow_acknowledgements_ = now > sent.due;
    }
    finish(found);
  }
  return ok();
}

// The peer has granted again all that it still needs, so all other messages have arrived.
void Link::on_all_granted() {
  for (auto each = sent_.begin(); each != sent_.end();) {
    const auto found = each++;
    if (found->second.connection != connection_) finish(found);
  }
}

}  // namespace tenuto::tcp
