#include "communicator/join.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/worker.h"
#include "transport/address.h"

namespace tenuto {

namespace {

// The address of a member as it is sent: its text, then zeros. A host's name has at most 253
// letters, and a colon and the port stand behind it.
constexpr size_t kAddressBytes = 260;
using AddressBytes = std::array<char, kAddressBytes>;

// Names of a meeting's messages. Their tags have -1 in place of a group's number, which is 0 or
// more.
enum Name : uint64_t { kMine, kAll, kHere };
Tag tag_of(Name name) { return {-1, 0, name}; }

Status write_address(const Address& address, AddressBytes& bytes) {
  const std::string& text = address.text;
  if (text.size() >= bytes.size()) {
    return invalid(cat("the address '", text.substr(0, 40), "...' has ", text.size(),
                       " letters: expected at most ", bytes.size() - 1));
  }
  std::memcpy(bytes.data(), text.data(), text.size());
  return ok();
}

constexpr int32_t kMostMembers = 1 << 16;

// What a member does until all are there.
class Meeting {
 public:
  // `desk` is where the ready service listens, at place 0.
  Meeting(const JoinSettings& settings, Transport& wire, Mailbox& mailbox, const Address& desk)
      : settings_(settings),
        wire_(wire),
        mailbox_(mailbox),
        end_(monotonic_clock().now() + settings.limit),
        addresses_(static_cast<size_t>(settings.count) + 1),
        words_(static_cast<size_t>(settings.count)),
        desk_(desk) {}

  Status meet() {
    // Checked before any connection: a member that leaves later ends the others' meeting, too.
    if (Status status = write_address(wire_.address(), sent_); !status.ok()) return status;
    if (Status status = write_address(desk_, addresses_.back()); !status.ok()) return status;
    if (Status status = settings_.place == 0 ? gather() : report(); !status.ok()) return status;
    return connect_all();
  }

 private:
  // Place 0 receives all addresses and sends the list.
  Status gather() {
    for (int32_t peer = 1; peer < settings_.count; ++peer) recv(peer, kMine, bytes_of(peer));
    if (Status status = wait_for_calls("sent its address"); !status.ok()) return status;
    for (int32_t peer = 1; peer < settings_.count; ++peer) send(peer, kAll, all());
    return wait_for_calls("received the list of members");
  }

  // The other members send their address to place 0 and receive the list.
  Status report() {
    connect(0, {settings_.meeting});
    if (Status status = wait_for_calls("answered"); !status.ok()) return status;
    addresses_[static_cast<size_t>(settings_.place)] = sent_;
    send(0, kMine, std::as_bytes(std::span(sent_)));
    recv(0, kAll, std::as_writable_bytes(std::span(addresses_)));
    return wait_for_calls("sent the list of members: others are still missing");
  }

  // Of two members the one with the higher place connects; then each sends the other one byte to
  // show that the connection works.
  Status connect_all() {
    for (int32_t peer = 1; peer < settings_.place; ++peer) {
      AddressBytes& there = addresses_[static_cast<size_t>(peer)];
      there.back() = 0;
      connect(peer, {there.data()});
    }
    addresses_.back().back() = 0;
    if (settings_.ready_service) connect(settings_.count, {addresses_.back().data()});
    for (int32_t peer = 0; peer < settings_.count; ++peer) {
      if (peer == settings_.place) continue;
      send(peer, kHere, word_);
      recv(peer, kHere, std::span(words_).subspan(static_cast<size_t>(peer), 1));
    }
    return wait_for_calls("connected");
  }

  std::span<std::byte> bytes_of(int32_t peer) {
    return std::as_writable_bytes(std::span(addresses_[static_cast<size_t>(peer)]));
  }
  std::span<const std::byte> all() const { return std::as_bytes(std::span(addresses_)); }

  void connect(int32_t peer, const Address& address) {
    take(peer, [&](Ticket ticket) { return wire_.connect({peer}, address, ticket); });
  }
  void send(int32_t peer, Name name, std::span<const std::byte> bytes) {
    take(peer, [&](Ticket ticket) { return wire_.send({peer}, tag_of(name), bytes, {}, ticket); });
  }
  void recv(int32_t peer, Name name, std::span<std::byte> bytes) {
    take(peer, [&](Ticket ticket) { return wire_.recv({peer}, tag_of(name), bytes, ticket); });
  }
  template <class Make>
  void take(int32_t peer, const Make& make) {
    const Ticket ticket = fresh_ticket();
    const Status status = make(ticket);
    if (status.ok()) {
      open_.emplace(static_cast<uint64_t>(ticket), peer);
    } else if (!failed_) {
      failed_ = status.error();
    }
  }

  // Waits until all calls have ended. If members are missing, `what` says in the error what they
  // have not done.
  Status wait_for_calls(const char* what) {
    while (!failed_ && !open_.empty()) {
      const Duration left = end_ - monotonic_clock().now();
      const auto report = mailbox_.wait(std::max(left, Duration::zero()));
      if (!report.ok()) return late(what);
      const auto found = open_.find(static_cast<uint64_t>(report.value().ticket));
      if (found == open_.end()) continue;
      open_.erase(found);
      if (!report.value().status.ok()) failed_ = report.value().status.error();
    }
    if (!failed_) return ok();
    Error error = *failed_;
    error.message = cat(who(), ": ", error.message,
                        " (expected: one process at each place, all "
                        "with the same count and token)");
    return error;
  }

  std::string who() const {
    return cat("member ", settings_.place, " of ", settings_.count, " cannot join at ",
               settings_.meeting);
  }

  Error late(const char* what) const {
    std::map<int32_t, bool> places;
    for (const auto& [ticket, peer] : open_) places[peer] = true;
    std::string missing;
    for (const auto& [peer, open] : places) {
      const bool member = peer < settings_.count;
      missing += cat(missing.empty() ? "" : ", ", member ? cat(peer) : "the ready service");
    }
    return {Code::Timeout, Reach::Job,
            cat(who(), ": within ", fixed(to_milliseconds(settings_.limit), 0), " ms ",
                places.size() > 1 ? "members " : "member ", missing, " of ", settings_.count,
                places.size() > 1 ? " have" : " has", " not ", what)};
  }

  const JoinSettings& settings_;
  Transport& wire_;
  Mailbox& mailbox_;
  Duration end_;
  // By place, unused for place 0, whose address is the meeting; behind these the ready service's.
  std::vector<AddressBytes> addresses_;
  AddressBytes sent_{};           // this member's own, on its way
  std::vector<std::byte> words_;  // by place
  const Address desk_;
  const std::array<std::byte, 1> word_{};
  std::map<uint64_t, int32_t> open_;  // calls under way: with whom
  std::optional<Error> failed_;
};

// Where this member listens: place 0 at the meeting, the others at a free port.
Result<ProcessWireSettings> wire_settings(const JoinSettings& settings) {
  ProcessWireSettings wire = settings.wire;
  wire.connect_limit = settings.limit;
  wire.workers = settings.count;
  wire.sends_end_there = true;  // else sends_at_once would not limit sends on a slow link
  wire.listen_host = settings.host;
  wire.listen_port = 0;
  const size_t colon = settings.meeting.rfind(':');
  const char* const end = settings.meeting.data() + settings.meeting.size();
  uint16_t port = 0;
  const auto read = colon == std::string::npos
                        ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                        : std::from_chars(settings.meeting.data() + colon + 1, end, port);
  if (read.ec != std::errc{} || read.ptr != end || port == 0) {
    return invalid(cat("the meeting is '", settings.meeting,
                       "': expected host:port, with the port at which member 0 listens"));
  }
  if (wire.listen_host.empty()) {
    auto host = host_towards(settings.meeting);
    if (!host.ok()) return host.error();
    wire.listen_host = std::move(host).value();
  }
  if (settings.place == 0) wire.listen_port = port;
  return wire;
}

// Starts the ready service, which listens at a free port and is one more peer for all members.
Result<std::unique_ptr<ReadyServer>> start_ready_server(ProcessWireSettings wire, Hello hello,
                                                        const std::vector<WorkerId>& members) {
  wire.listen_port = 0;
  hello.self = {static_cast<int32_t>(members.size())};
  const auto make_wire = [&](Mailbox& mailbox) { return make_process_wire(wire, hello, mailbox); };
  return ReadyServer::make(make_wire, members);
}

// Destroys the transport if the members do not meet: until then its unfinished messages use memory
// of the Meeting, which ends with this function.
Status meet_over(const JoinSettings& settings, std::unique_ptr<Transport>& wire, Mailbox& mailbox,
                 const Address& desk) {
  Meeting meeting(settings, *wire, mailbox, desk);
  Status met = meeting.meet();
  if (!met.ok()) wire.reset();
  return met;
}

}  // namespace

Status Joined::leave(Duration limit) {
  // Closing a wire waits until its peers close, too. So the service's wire, a peer of this
  // member's, has to begin to close first.
  if (server_ != nullptr) server_->end(limit);
  return wire_->close(limit);
}

Result<std::unique_ptr<Joined>> join(const JoinSettings& settings) {
  if (settings.count < 1 || settings.count > kMostMembers || settings.place < 0 ||
      settings.place >= settings.count) {
    return invalid(cat("place ", settings.place, " of ", settings.count, " members: expected 1 to ",
                       kMostMembers, " members, and places from 0 to one less"));
  }
  const auto wire = wire_settings(settings);
  if (!wire.ok()) return wire.error();
  auto joined = std::make_unique<Joined>();
  // The count is in the name, so that a process with another count is told so at once.
  Hello hello{cat(settings.group, " of ", settings.count, " members",
                  settings.ready_service ? " with a ready service" : ""),
              settings.token,
              kWireVersion,
              {settings.place},
              0};
  auto made = make_process_wire(wire.value(), hello, joined->mailbox_);
  if (!made.ok()) return made.error();
  joined->wire_ = std::move(made).value();
  joined->settings_.self = {settings.place};
  for (int32_t place = 0; place < settings.count; ++place) {
    joined->settings_.members.push_back({place});
  }
  Address desk;
  if (settings.ready_service) {
    joined->desk_ = ReadyDesk{{settings.count}, {0}, joined->settings_.members};
    if (settings.place == 0) {
      auto server = start_ready_server(wire.value(), hello, joined->settings_.members);
      if (!server.ok()) return server.error();
      joined->server_ = std::move(server).value();
      desk = joined->server_->address();
    }
  }
  const Status met = meet_over(settings, joined->wire_, joined->mailbox_, desk);
  if (!met.ok()) return met.error();
  return joined;
}

Status meet(const JoinSettings& settings, std::unique_ptr<Transport>& wire, Mailbox& mailbox) {
  return meet_over(settings, wire, mailbox, {});
}

}  // namespace tenuto
