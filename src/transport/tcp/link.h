// All that one worker knows about its messages with one peer: a function of its calls, of the bytes
// that come and of the time, without sockets, threads and clocks.
//
// A receive is a numbered grant. The sender pairs it with the send of that tag and writes the
// message in pieces: control frames first, then messages of at most kSmall bytes, then the next
// piece of the large message that was posted first; large messages of a state transfer come last.
// A piece whose rate does not allow it yet (pace.h) waits, and others go ahead of it. The bytes are
// read from and received into the memory of the calls.
//
// A send ends when the receiver has acknowledged the message, or earlier when its bytes have been
// copied here: small messages are copied at once, large ones when the acknowledgement is late. So a
// connection may break at any byte. On the next one each end grants again what it has not received
// completely, from the first byte that is missing, and then says so (AllGranted): all other
// messages have arrived (docs/decisions/076-a-wire-over-tcp.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "transport/pace.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/outbox.h"
#include "transport/tcp/tally.h"
#include "transport/transport.h"

namespace tenuto::tcp {

// Messages up to this size are copied at once and go ahead of larger ones.
inline constexpr size_t kSmall = 16 << 10;
// A larger message leaves in pieces of this size. At 10 Gbit/s one takes 0.2 ms, which is the
// longest time that it can delay what is more urgent.
inline constexpr size_t kPiece = 256 << 10;
// The most arrivals that are not acknowledged while nothing else is written.
inline constexpr uint32_t kMostOwed = 64;

// How a link treats its messages.
struct LinkSettings {
  bool sends_end_there = false;   // large sends end only when they have arrived
  size_t most_awaited = 1 << 20;  // grants of the peer that may wait here for their send
  std::shared_ptr<const SendPace> pace = {};    // null = no rates
  Purpose (*purpose_of)(const Tag&) = nullptr;  // null: all messages are for the step
};

// The messages between this worker and one peer. It posts the ends of calls to the mailbox.
class Link {
 public:
  Link(WorkerId self, WorkerId peer, const LinkSettings& settings, Tally& tally, Mailbox& mailbox);

  // The calls of Transport.
  void send(const Tag& tag, std::span<const std::byte> bytes, const Stamp& stamp, Ticket ticket);
  void recv(const Tag& tag, std::span<std::byte> bytes, Taker taker, Ticket ticket);
  // Ends every call with `error`. What a connection still brings is ignored.
  void fail(const Error& error);
  // Ends every receive with `error`, for good: the wire closes. What has been sent may still be
  // sent again.
  void end_receives(const Error& error);
  // Whether end_receives() has been called.
  bool receives_ended() const { return receives_ended_; }
  // Sends that would be lost if the connection were closed now.
  size_t unsent() const;
  // Messages that are not known to have arrived, among them all that unsent() counts: they would be
  // lost if the connection broke now and were not repaired.
  size_t undelivered() const { return sends_.size() + sent_.size(); }

  // A new connection with the peer carries frames from now on.
  void opened();
  // It does so no more.
  void broke();
  // Writes a Bye behind what has been written, and nothing after it.
  void say_bye();
  // Whether this connection ends with a Bye from here.
  bool has_said_bye() const { return leaving_; }
  // Whether the peer has said Bye: nothing comes any more.
  bool parted() const { return parted_; }

  // The bytes to be written next; empty = none now. `now` counts only where there are rates.
  std::span<const std::span<const std::byte>> gather(Duration now);
  // When a piece that has waited for its rate may leave, as of the last gather(); Duration::max() =
  // none has.
  Duration held_until() const { return held_until_; }
  // The first `count` of them have been written.
  void written(size_t count, Duration now);
  // How many messages have been written to their last byte.
  int64_t messages_written() const { return messages_written_; }

  // Where the next received bytes shall land; empty = they are given to take() alone.
  std::span<std::byte> landing();
  // How many bytes should be read behind those at most: few while a large message is coming, whose
  // next piece should land where it belongs.
  size_t most_behind() const;
  // `landed` bytes have come to landing(), and `more` came behind them.
  //
  // Errors: Corrupt/Link  the peer does not keep to the format: it is not to be listened to further
  Status take(size_t landed, std::span<const std::byte> more, Duration now);

  // Whether tick() has something to wait for.
  bool waits_for_acknowledgements() const { return !late_.empty(); }
  // Ends the sends whose acknowledgement is late. Returns the moment of the next, or
  // Duration::max().
  Duration tick(Duration now);

 private:
  struct Sending {
    std::span<const std::byte> bytes;
    Stamp stamp;
    Ticket ticket = kNoTicket;
    uint64_t order = 0;  // of posting
    Purpose purpose = Purpose::Step;
  };
  struct Granted {
    uint64_t grant = 0, size = 0;
  };
  // A message whose receive has been granted and which is not known to have arrived.
  struct Sent {
    Sending sending;                   // its ticket is kNoTicket once it has been posted
    std::unique_ptr<std::byte[]> own;  // the copy of its bytes
    bool kept = false;                 // `own` has them
    bool mismatch = false;             // a Mismatch goes in its place
    bool begun = false, left = false;  // on this connection: its first, its last byte is written
    uint64_t connection = 0;           // the number of the connection that it goes over
    size_t next = 0;                   // the first byte that is not staged
    Duration due{};                    // after it the acknowledgement is late
  };
  struct Receiving {
    Tag tag;
    std::span<std::byte> bytes;
    Taker taker;
    Ticket ticket = kNoTicket;
    size_t have = 0;       // bytes that have come, over all connections
    bool started = false;  // on this connection
    Stamp stamp;
  };
  struct Late {
    Duration due{};
    uint64_t grant = 0;
  };

  // What is written.
  void grant(uint64_t number, const Receiving& posted);
  void pair(const Tag& tag, const Sending& sending, const Granted& granted);
  void enqueue(uint64_t number, const Sent& sent);
  void stage_acknowledgements();
  void stage_large(Purpose purpose, Duration now);
  void stage_message(uint64_t number, Sent& sent);
  void left(uint64_t number, Duration now);
  void keep(Sent& sent);
  void end_early(Sent& sent);
  void finish(std::map<uint64_t, Sent>::iterator sent);
  void stop_receives(const Error& error);

  // What comes.
  Status handle(const Frame& frame, Duration now);
  Status on_grant(const Frame& frame);
  Status on_regrant(const Frame& frame, Sent& sent);
  Status on_start(const Frame& frame, Duration now);
  Status on_piece(const Frame& frame);
  Status on_mismatch(const Frame& frame);
  Status on_got(uint32_t count, Duration now);
  void on_all_granted();
  void advance(size_t count, Duration now);
  void arrived(Duration now);
  void owe(size_t size);
  void report(Ticket ticket, Status status);
  static Error malformed(const std::string& what);
  static Bytes size_of(uint64_t count) { return {static_cast<int64_t>(count)}; }

  WorkerId self_, peer_;
  const LinkSettings& settings_;
  Tally& tally_;
  Mailbox& mailbox_;

  std::map<Tag, Sending> sends_;            // not yet granted
  std::map<uint64_t, Sent> sent_;           // by grant
  std::map<uint64_t, Receiving> receives_;  // by grant: not yet arrived
  std::map<Tag, uint64_t> posted_;          // the grants of `receives_`
  std::array<Meter, kPurposes> meters_;
  // When the next piece may leave, by the total of all peers; none = it was not asked for.
  std::optional<Duration> reserved_;
  uint64_t next_grant_ = 1, next_order_ = 1;
  bool receives_ended_ = false;
  int64_t messages_written_ = 0;

  // What ends with the connection.
  uint64_t connection_ = 0;  // its number; 0 = there was none
  bool open_ = false, leaving_ = false, parted_ = false;
  bool ignoring_ = false;           // all calls have ended: what comes is for nobody
  uint64_t newest_granted_ = 0;     // by the peer, which numbers its grants upwards
  std::map<Tag, Granted> granted_;  // the peer's receives that have no send here yet
  std::vector<Frame> control_;      // to be staged
  std::deque<uint64_t> small_;      // messages to be staged
  // The same, by purpose, then by order of posting.
  std::array<std::map<uint64_t, uint64_t>, kPurposes> large_;
  Duration held_until_ = Duration::max();
  Outbox outbox_;
  std::deque<uint64_t> unacknowledged_;  // messages whose last byte is staged, in that order
  std::deque<Late> late_;
  size_t unacknowledged_bytes_ = 0;     // of large ones that are not kept
  bool slow_acknowledgements_ = false;  // they take long: copy bytes at once
  uint32_t owed_ = 0;                   // arrivals to be acknowledged
  bool owed_now_ = false;               // without waiting for another frame
  std::byte head_[kLongestFrame];       // of the frame that is coming
  size_t head_size_ = 0;
  Receiving* coming_ = nullptr;  // the message whose bytes are coming
  size_t bytes_left_ = 0;        // of its piece; of nobody's if coming_ is null
};

}  // namespace tenuto::tcp
