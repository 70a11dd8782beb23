#include "communicator/link_measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"
#include "runtime/worker.h"
#include "transport/hello.h"

namespace tenuto {
namespace {

constexpr WorkerId kHub{0};
// The number of round trips, and how many of them, the first ones, are not counted.
constexpr int32_t kPings = 48, kPingWarmUps = 8;
// The least and the largest size of a message.
constexpr int64_t kLeastBytes = 16 << 10, kMostBytes = 4 << 20;
// The number of messages in a large batch. A small batch has one message.
constexpr int32_t kBatch = 5;
// The receiver asks for larger messages until a large batch takes this much longer than a small
// one, or up to kMostBytes.
constexpr Duration kLeastTime = std::chrono::milliseconds(20);
// Each batch is measured kLeastRepeats times, and then again until the rate is certain, but at most
// kMostRepeats times. The rate is certain when the interquartile range of the n large batches,
// divided by the square root of n, is at most the share kCertain of the difference between a large
// and a small batch.
constexpr int32_t kLeastRepeats = 7, kMostRepeats = 21;
constexpr double kCertain = 0.02;
// Each member of a ring sends for about this time, in this many messages, this many times.
constexpr double kRingSeconds = 0.05;
constexpr int32_t kRingMessages = 8, kRingRepeats = 3;
// How long the hub waits at most for a transport call to end.
constexpr Duration kSilence = std::chrono::seconds(60);
// How long the program waits, after an error, for transport calls that have not ended.
constexpr Duration kRetire = std::chrono::seconds(5);

// Kinds of messages. The tag of a message also has the numbers of the round and of the message.
enum Name : uint64_t { kCommand, kReport, kPing, kPong, kGo, kData };

Tag tag_of(int64_t round, Name name, int64_t number = 0) {
  return {-2, round, (static_cast<uint64_t>(number) << 4) | name};
}

// What the hub tells a worker to do. Command, Report and Go are sent as they are in memory.
enum class Task : int32_t { Nothing, Pair, Ring, End };
struct Command {
  Task task = Task::Nothing;
  int32_t begins = 0;        // Pair: 1 = this worker sends the pings, and receives first
  int32_t to = 0, from = 0;  // places of the peers; Pair: both the same
  int64_t bytes = 0;         // Ring: size of one message
};
struct Report {
  int64_t latency = 0;  // ns; Pair: only the worker that sends the pings measures it
  double rate = 0;      // bytes/s of the messages that this worker received
  double spread = 0;
  std::array<char, 192>
      error{};  // why this worker measured nothing, up to the first 0; "" = it did
};
struct Go {
  int64_t bytes = 0;
  int32_t count = 0, unused = 0;  // number of messages; 0 = this direction is measured
};

template <class Form>
std::span<const std::byte> bytes_of(const Form& form) {
  static_assert(std::is_trivially_copyable_v<Form>);
  return std::as_bytes(std::span(&form, 1));
}
template <class Form>
std::span<std::byte> buffer_of(Form& form) {
  static_assert(std::is_trivially_copyable_v<Form>);
  return std::as_writable_bytes(std::span(&form, 1));
}

std::string text_of(const std::array<char, 192>& form) {
  return {form.begin(), std::find(form.begin(), form.end(), '\0')};
}

// The transport calls of one measurement. The destructor waits until all of them have ended, but at
// most kRetire, because they use memory that the caller frees afterwards.
class Calls {
 public:
  // A wait lasts `silence` at most, and not beyond `end`.
  Calls(Transport& transport, Mailbox& mailbox, Duration silence, Duration end = Duration::max())
      : transport_(transport), mailbox_(mailbox), silence_(silence), end_(end) {}
  ~Calls() {
    std::set<WorkerId> peers;
    for (const auto& [ticket, peer] : open_) peers.insert(peer);
    for (const WorkerId peer : peers) (void)transport_.drop(peer);
    const Duration until = monotonic_clock().now() + kRetire;
    while (!open_.empty() && monotonic_clock().now() < until) {
      const auto done = mailbox_.wait(kRetire);
      if (done.ok()) open_.erase(done.value().ticket);
    }
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  Ticket send(WorkerId to, Tag tag, std::span<const std::byte> bytes) {
    const Ticket ticket = fresh_ticket();
    return opened(to, ticket, transport_.send(to, tag, bytes, {}, ticket));
  }
  Ticket recv(WorkerId from, Tag tag, std::span<std::byte> bytes) {
    const Ticket ticket = fresh_ticket();
    return opened(from, ticket, transport_.recv(from, tag, bytes, ticket));
  }
  // Waits until a call has ended, and returns the time at which it ended.
  Result<Duration> wait(Ticket ticket) {
    while (!failed_ && open_.contains(ticket)) hear();
    if (failed_) return *failed_;
    const auto found = ended_.find(ticket);
    return found == ended_.end() ? Duration{} : found->second;
  }
  // Waits until some call ends, and returns its ticket.
  //
  // Requires: some call has not ended
  Result<Ticket> wait_any() {
    const size_t before = ended_.size();
    while (!failed_ && ended_.size() == before) hear();
    if (failed_) return *failed_;
    return latest_;
  }
  // Waits until all calls have ended.
  Status wait_all() {
    while (!failed_ && !open_.empty()) hear();
    return failed_ ? Status(*failed_) : ok();
  }

 private:
  Ticket opened(WorkerId peer, Ticket ticket, const Status& status) {
    if (status.ok()) {
      open_[ticket] = peer;
    } else if (!failed_) {
      failed_ = status.error();
    }
    return ticket;
  }
  static std::string name_of(WorkerId place) {
    return place == kHub ? std::string("tenuto profile") : cat("worker ", place.value - 1);
  }
  // What the transport says, without its name of the peer, which is the place and not the worker.
  static std::string reason_of(const Error& error, WorkerId place) {
    const std::string name = lost_error(place, "").message;
    return error.message.substr(error.message.starts_with(name) ? name.size() : 0);
  }
  void hear() {
    const Duration now = monotonic_clock().now();
    const auto done = mailbox_.wait(std::max(Duration::zero(), std::min(silence_, end_ - now)));
    if (!done.ok()) {
      failed_ = Error{Code::Timeout, Reach::Job,
                      cat("the links were not measured in time: ", name_of(open_.begin()->second),
                          " has not answered; give more --seconds")};
      return;
    }
    const Done& report = done.value();
    const auto found = open_.find(report.ticket);
    if (!report.status.ok() && (found != open_.end() || report.ticket == kNoTicket)) {
      const WorkerId peer = found != open_.end() ? found->second : report.peer;
      failed_ =
          Error{Code::Disconnected, Reach::Worker,
                cat(name_of(peer),
                    " is lost while links are measured: ", reason_of(report.status.error(), peer))};
    }
    if (found == open_.end()) return;
    ended_[report.ticket] = report.finish;
    latest_ = report.ticket;
    open_.erase(found);
  }

  Transport& transport_;
  Mailbox& mailbox_;
  const Duration silence_, end_;
  std::map<Ticket, WorkerId> open_;
  std::map<Ticket, Duration> ended_;
  Ticket latest_ = kNoTicket;  // the call that ended last
  std::optional<Error> failed_;
};

double seconds_of(Duration time) { return to_milliseconds(time) / 1000; }

// Executes one command at one worker.
class Probe {
 public:
  Probe(Transport& transport, Mailbox& mailbox, Duration silence, int64_t round,
        const Command& command)
      : transport_(transport),
        mailbox_(mailbox),
        silence_(silence),
        round_(round),
        command_(command) {}

  Result<Report> run() {
    if (command_.task == Task::Pair) return pair();
    if (command_.task == Task::Ring) return ring();
    return report_;
  }

 private:
  Result<Report> pair() {
    const WorkerId peer{command_.to};
    if (Status pinged = command_.begins != 0 ? ping(peer) : answer(peer); !pinged.ok()) {
      return pinged.error();
    }
    for (const bool receives : {command_.begins != 0, command_.begins == 0}) {
      if (Status moved = receives ? receive(peer) : deliver(peer); !moved.ok()) {
        return moved.error();
      }
    }
    return report_;
  }

  Result<Report> ring() {
    std::vector<std::byte> out(static_cast<size_t>(command_.bytes));
    std::vector<std::vector<std::byte>> in(kRingMessages, out);
    std::vector<Duration> times;
    for (int64_t turn = 0; turn < kRingRepeats; ++turn) {
      Go mine{command_.bytes, kRingMessages}, theirs;
      Calls calls(transport_, mailbox_, silence_);
      const WorkerId to{command_.to}, from{command_.from};
      const Duration begin = monotonic_clock().now();
      std::vector<Ticket> arrivals;
      for (int64_t m = 0; m < kRingMessages; ++m) {
        arrivals.push_back(
            calls.recv(from, tag(kData, turn * kRingMessages + m), in[static_cast<size_t>(m)]));
      }
      calls.send(from, tag(kGo, turn), bytes_of(mine));
      if (auto went = calls.wait(calls.recv(to, tag(kGo, turn), buffer_of(theirs))); !went.ok()) {
        return went.error();
      }
      for (int64_t m = 0; m < kRingMessages; ++m) {
        calls.send(to, tag(kData, turn * kRingMessages + m), out);
      }
      const auto took = last_of(calls, arrivals, begin);
      if (!took.ok()) return took.error();
      if (Status all = calls.wait_all(); !all.ok()) return all.error();
      times.push_back(took.value());
    }
    const double bytes = static_cast<double>(command_.bytes) * kRingMessages;
    report_.rate = bytes / std::max(1e-9, seconds_of(quantile(times, 0.5)));
    return report_;
  }

  Tag tag(Name name, int64_t number) const { return tag_of(round_, name, number); }

  // The time from `begin` until the last of the messages has arrived.
  static Result<Duration> last_of(Calls& calls, const std::vector<Ticket>& arrivals,
                                  Duration begin) {
    Duration last{};
    for (const Ticket ticket : arrivals) {
      const auto finish = calls.wait(ticket);
      if (!finish.ok()) return finish.error();
      last = std::max(last, finish.value());
    }
    return last - begin;
  }

  Status ping(WorkerId peer) {
    std::array<int64_t, kPings> in{};
    const int64_t out = 0;
    std::vector<Ticket> answers;
    std::vector<Duration> times;
    Calls calls(transport_, mailbox_, silence_);
    for (int64_t i = 0; i < kPings; ++i) {
      answers.push_back(calls.recv(peer, tag(kPong, i), buffer_of(in[static_cast<size_t>(i)])));
    }
    for (int64_t i = 0; i < kPings; ++i) {
      const Duration begin = monotonic_clock().now();
      calls.send(peer, tag(kPing, i), bytes_of(out));
      const auto back = calls.wait(answers[static_cast<size_t>(i)]);
      if (!back.ok()) return back.error();
      if (i >= kPingWarmUps) times.push_back(back.value() - begin);
    }
    report_.latency = std::max<int64_t>(0, quantile(times, 0.25).count() / 2);
    return calls.wait_all();
  }

  Status answer(WorkerId peer) {
    std::array<int64_t, kPings> in{};
    const int64_t out = 0;
    std::vector<Ticket> asked;
    Calls calls(transport_, mailbox_, silence_);
    for (int64_t i = 0; i < kPings; ++i) {
      asked.push_back(calls.recv(peer, tag(kPing, i), buffer_of(in[static_cast<size_t>(i)])));
    }
    for (int64_t i = 0; i < kPings; ++i) {
      if (auto came = calls.wait(asked[static_cast<size_t>(i)]); !came.ok()) return came.error();
      calls.send(peer, tag(kPong, i), bytes_of(out));
    }
    return calls.wait_all();
  }

  // Asks the peer for one batch after another, and receives them.
  Status receive(WorkerId peer) {
    std::vector<Duration> one, several;
    int64_t bytes = kLeastBytes;
    while (!is_certain(one, several)) {
      const auto first = batch(peer, bytes, 1);
      if (!first.ok()) return first.error();
      const auto all = batch(peer, bytes, kBatch);
      if (!all.ok()) return all.error();
      const Duration longer = all.value() - first.value();
      if (several.empty() && longer < kLeastTime && bytes < kMostBytes) {
        bytes *= 4;
        continue;
      }
      one.push_back(first.value());
      several.push_back(all.value());
    }
    if (const auto ended = batch(peer, 0, 0); !ended.ok()) return ended.error();
    Duration more = difference_of(one, several);
    // If other programs on the machine hide the difference, uses the time of a whole large batch:
    // the true rate is at least the one that this gives.
    if (more <= Duration::zero()) more = quantile(several, 0.25);
    report_.rate = static_cast<double>(bytes) * (kBatch - 1) / std::max(1e-9, seconds_of(more));
    report_.spread =
        seconds_of(width_of(several)) / std::max(1e-9, seconds_of(quantile(several, 0.5)));
    return ok();
  }

  // How much longer a large batch takes than a small one. Compares the lower quartiles, because
  // other programs on the machine can only make a batch longer.
  static Duration difference_of(std::vector<Duration>& one, std::vector<Duration>& several) {
    return quantile(several, 0.25) - quantile(one, 0.25);
  }

  // The interquartile range.
  static Duration width_of(std::vector<Duration>& times) {
    return quantile(times, 0.75) - quantile(times, 0.25);
  }

  // See kCertain.
  static bool is_certain(std::vector<Duration>& one, std::vector<Duration>& several) {
    const auto count = static_cast<int32_t>(several.size());
    if (count < kLeastRepeats || count >= kMostRepeats) return count >= kMostRepeats;
    return seconds_of(width_of(several)) / std::sqrt(count) <=
           kCertain * seconds_of(difference_of(one, several));
  }

  // Asks for a batch, and returns how long it took.
  Result<Duration> batch(WorkerId peer, int64_t bytes, int32_t count) {
    in_.resize(std::max(in_.size(), static_cast<size_t>(bytes) * static_cast<size_t>(count)));
    Calls calls(transport_, mailbox_, silence_);
    std::vector<Ticket> arrivals;
    for (int32_t m = 0; m < count; ++m) {
      const auto place = std::span(in_).subspan(static_cast<size_t>(bytes) * static_cast<size_t>(m),
                                                static_cast<size_t>(bytes));
      arrivals.push_back(calls.recv(peer, tag(kData, messages_++), place));
    }
    const Go go{bytes, count};
    const Duration begin = monotonic_clock().now();
    calls.send(peer, tag(kGo, batches_++), bytes_of(go));
    const auto took = last_of(calls, arrivals, begin);
    if (!took.ok()) return took.error();
    if (Status all = calls.wait_all(); !all.ok()) return all.error();
    return took;
  }

  // Sends the batches that the peer asks for.
  Status deliver(WorkerId peer) {
    std::vector<std::byte> out(kMostBytes);
    int64_t messages = 0;
    for (int64_t batch = 0;; ++batch) {
      Go go;
      Calls calls(transport_, mailbox_, silence_);
      if (auto went = calls.wait(calls.recv(peer, tag(kGo, batch), buffer_of(go))); !went.ok()) {
        return went.error();
      }
      if (go.count <= 0) return ok();
      if (go.bytes < 0 || go.bytes > kMostBytes || go.count > kBatch) {
        return invalid(cat("a peer asks for ", go.count, " messages of ", go.bytes, " bytes"));
      }
      for (int32_t m = 0; m < go.count; ++m) {
        calls.send(peer, tag(kData, messages++),
                   std::span(out).first(static_cast<size_t>(go.bytes)));
      }
      if (Status all = calls.wait_all(); !all.ok()) return all;
    }
  }

  Transport& transport_;
  Mailbox& mailbox_;
  const Duration silence_;
  const int64_t round_;
  const Command command_;
  std::vector<std::byte> in_;
  int64_t messages_ = 0, batches_ = 0;  // that this worker has asked for
  Report report_;
};

WorkerId place_of(WorkerId worker) { return {worker.value + 1}; }

using Pairs = std::vector<std::pair<WorkerId, WorkerId>>;

// The pairs of a round-robin round: worker 0 keeps its seat, all others move by one seat per round.
Pairs pairs_of(int32_t workers, int32_t round) {
  const int32_t seats = workers + workers % 2;  // with an odd number of workers, one seat is empty
  std::vector<int32_t> order(static_cast<size_t>(seats));
  for (int32_t s = 1; s < seats; ++s) {
    order[static_cast<size_t>(s)] = 1 + (s - 1 + round) % (seats - 1);
  }
  Pairs pairs;
  for (int32_t s = 0; s < seats / 2; ++s) {
    const int32_t one = order[static_cast<size_t>(s)];
    const int32_t other = order[static_cast<size_t>(seats - 1 - s)];
    if (std::max(one, other) < workers) {
      pairs.push_back({{std::min(one, other)}, {std::max(one, other)}});
    }
  }
  return pairs;
}

}  // namespace

// One round: the hub sends one command to each worker, and each reports back, except after End.
class LinkHub::Round {
 public:
  explicit Round(LinkHub& hub) : hub_(hub), commands_(static_cast<size_t>(hub.workers_)) {}
  Command& of(WorkerId worker) { return commands_[static_cast<size_t>(worker.value)]; }
  // Sends the commands, and returns the reports of all workers.
  Result<std::vector<Report>> run() {
    const int64_t round = hub_.rounds_++;
    std::vector<Report> reports(commands_.size());
    std::map<Ticket, int32_t> awaited;  // the worker whose report a call receives
    Calls calls(hub_.transport_, hub_.mailbox_, kSilence, hub_.end_);
    for (int32_t w = 0; w < hub_.workers_; ++w) {
      calls.send(place_of({w}), tag_of(round, kCommand), bytes_of(of({w})));
      if (of({w}).task == Task::End) continue;
      awaited[calls.recv(place_of({w}), tag_of(round, kReport),
                         buffer_of(reports[static_cast<size_t>(w)]))] = w;
    }
    // Ends at the first worker that has measured nothing: others may wait for it.
    while (!awaited.empty()) {
      const auto ended = calls.wait_any();
      if (!ended.ok()) return ended.error();
      const auto found = awaited.find(ended.value());
      if (found == awaited.end()) continue;
      if (const std::string why = text_of(reports[static_cast<size_t>(found->second)].error);
          !why.empty()) {
        return Error{Code::Disconnected, Reach::Worker,
                     cat("worker ", found->second, " could not measure its links: ", why)};
      }
      awaited.erase(found);
    }
    if (Status all = calls.wait_all(); !all.ok()) return all.error();
    return reports;
  }

 private:
  LinkHub& hub_;
  std::vector<Command> commands_;
};

Result<LinkTable> LinkHub::measure_pairs() {
  LinkTable table(workers_);
  const int32_t rounds = workers_ + workers_ % 2 - 1;
  for (int32_t r = 0; r < rounds; ++r) {
    const Pairs pairs = pairs_of(workers_, r);
    Round round(*this);
    for (const auto& [one, other] : pairs) {
      round.of(one) = {Task::Pair, 1, place_of(other).value, place_of(other).value, 0};
      round.of(other) = {Task::Pair, 0, place_of(one).value, place_of(one).value, 0};
    }
    const auto reports = round.run();
    if (!reports.ok()) return reports.error();
    for (const auto& [one, other] : pairs) {
      const Report& ones = reports.value()[static_cast<size_t>(one.value)];
      const Report& others = reports.value()[static_cast<size_t>(other.value)];
      table.at(other, one) = {{Duration(ones.latency), ones.rate}, ones.spread};
      table.at(one, other) = {{Duration(ones.latency), others.rate}, others.spread};
      count_item(watch_);
    }
  }
  return table;
}

Result<double> LinkHub::measure_ring(const std::vector<WorkerId>& ring, const LinkTable& pairs) {
  double slowest = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    const double rate = pairs.at(ring[i], ring[(i + 1) % ring.size()]).link.bytes_per_second;
    slowest = i == 0 ? rate : std::min(slowest, rate);
  }
  const auto bytes = static_cast<int64_t>(slowest * kRingSeconds / kRingMessages);
  Round round(*this);
  for (size_t i = 0; i < ring.size(); ++i) {
    const WorkerId next = ring[(i + 1) % ring.size()];
    const WorkerId before = ring[(i + ring.size() - 1) % ring.size()];
    round.of(ring[i]) = {Task::Ring, 0, place_of(next).value, place_of(before).value,
                         std::clamp(bytes, kLeastBytes, kMostBytes)};
  }
  const auto reports = round.run();
  if (!reports.ok()) return reports.error();
  double least = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    const double rate = reports.value()[static_cast<size_t>(ring[i].value)].rate;
    least = i == 0 ? rate : std::min(least, rate);
  }
  return least;
}

Status LinkHub::finish() {
  Round round(*this);
  for (int32_t w = 0; w < workers_; ++w) round.of({w}).task = Task::End;
  const auto told = round.run();
  return told.ok() ? ok() : Status(told.error());
}

namespace {

Report failed_report(const Error& error) {
  Report report;
  const size_t size = std::min(error.message.size(), report.error.size() - 1);
  std::copy_n(error.message.begin(), size, report.error.begin());
  return report;
}

// Returns true if the call ends within the limit.
bool await_end_of(Ticket ticket, Mailbox& mailbox, Duration limit) {
  const Duration until = monotonic_clock().now() + limit;
  while (monotonic_clock().now() < until) {
    const auto done = mailbox.wait(until - monotonic_clock().now());
    if (done.ok() && done.value().ticket == ticket) return true;
  }
  return false;
}

// A worker that ended at once would close its wires to the others, which would then take it for the
// worker that is lost, and might say so to the hub first. `next` is a tag that the hub does not
// use: the receive ends when the hub has left. Other reports need not tell that.
void wait_for_the_hub_to_leave(Transport& transport, Mailbox& mailbox, Tag next, Duration limit) {
  Command never;
  const Ticket ticket = fresh_ticket();
  if (!transport.recv(kHub, next, buffer_of(never), ticket).ok()) return;
  if (await_end_of(ticket, mailbox, limit)) return;
  if (transport.drop(kHub).ok()) await_end_of(ticket, mailbox, kRetire);
}

}  // namespace

Status serve_measuring(Transport& transport, Mailbox& mailbox, Duration silence) {
  for (int64_t round = 0;; ++round) {
    Command command;
    {
      Calls calls(transport, mailbox, silence);
      const auto came = calls.wait(calls.recv(kHub, tag_of(round, kCommand), buffer_of(command)));
      if (!came.ok()) return came.error();
    }
    if (command.task == Task::End) return ok();
    const auto measured = Probe(transport, mailbox, silence, round, command).run();
    const Report report = measured.ok() ? measured.value() : failed_report(measured.error());
    {
      Calls calls(transport, mailbox, silence);
      calls.send(kHub, tag_of(round, kReport), bytes_of(report));
      if (Status sent = calls.wait_all(); !sent.ok()) return sent;
    }
    if (!measured.ok()) {
      wait_for_the_hub_to_leave(transport, mailbox, tag_of(round + 1, kCommand), silence);
      return measured.error();
    }
  }
}

}  // namespace tenuto
