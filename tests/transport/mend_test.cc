// Connections that break while both ends live: every message arrives once and whole, and no peer is
// reported lost.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>

#include "base/text.h"
#include "breaks.h"
#include "cutting_relay.h"
#include "tcp_party.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

UcxTransport& ucx(Party& party) { return static_cast<UcxTransport&>(*party.wire); }

// One message at one end: the sender's bytes or the receiver's buffer, and the seed of its right
// contents.
struct Message {
  std::vector<std::byte> bytes;
  uint64_t seed = 0;
  Ticket ticket{};
  bool ended = false;
  Taken taken;
};

// One end of the traffic, by seed.
class End {
 public:
  static constexpr int kMessages = 120;

  // `breaks`: the end breaks connections itself.
  End(int self, const Party::Make& make, uint64_t seed = 20, bool breaks = true)
      : self_(self),
        breaks_(breaks),
        random_(seed + 7 * static_cast<uint64_t>(self)),
        party(make, hello_of(self)) {
    for (int from = 0; from < 2; ++from) {
      Random sizes(2 * seed + static_cast<uint64_t>(from));  // the same at both ends
      for (int i = 0; i < kMessages; ++i) {
        Message message;
        message.seed = sizes.next();
        const size_t size = random_size(sizes);
        if (from == self) {
          message.bytes = pattern(message.seed, size);
        } else {
          message.bytes.resize(size);
        }
        messages_[from].push_back(std::move(message));
      }
    }
  }

  // Sends and receives everything, in random order.
  void run() {
    const WorkerId peer{1 - self_};
    int next[2] = {}, idle = 0;
    while (open_ > 0 || next[0] < kMessages || next[1] < kMessages) {
      const auto from = static_cast<int>(random_.below(2));
      if (next[from] < kMessages) begin(from, next[from]++);
      if (breaks_ && random_.below(10) == 0) {
        ASSERT_TRUE(party.wire->break_connection(peer, random_.below(4)).ok());
      }
      while (take(Duration::zero())) continue;
      if (next[0] < kMessages || next[1] < kMessages || open_ == 0) continue;
      // Connections break again while calls are open; if nothing ends for this long, a message is
      // lost.
      idle = take(milliseconds(2)) ? 0 : idle + 1;
      ASSERT_LT(idle, 8000) << open_ << " calls never ended";
    }
  }

 private:
  static size_t random_size(Random& random) {
    const int64_t most[] = {100, 20000, 200000, 1500000};
    if (random.below(100) == 0) return static_cast<size_t>(random.below(6000000));
    return static_cast<size_t>(random.below(most[random.below(4)]));
  }

  static bool is_taken(const Message& message) { return message.seed % 2 == 0; }

  void begin(int from, int index) {
    Message& message = messages_[from][static_cast<size_t>(index)];
    const auto name = static_cast<uint64_t>(index);
    if (from == self_) {
      message.ticket = party.send(1 - self_, name, message.bytes, {Duration(7), {}});
    } else if (is_taken(message)) {
      message.ticket = party.take(1 - self_, name, message.bytes, message.taken.taker());
    } else {
      message.ticket = party.recv(1 - self_, name, message.bytes);
    }
    ++open_;
  }

  // Reads a report; false when there was none. The memory of an ended send is free, so it is
  // overwritten at once.
  bool take(Duration limit) {
    const auto done = party.mailbox.wait(limit);
    if (!done.ok()) return false;
    const Done& report = done.value();
    EXPECT_TRUE(report.status.ok()) << report.status.error().message;
    EXPECT_NE(report.ticket, kNoTicket) << "a loss was told";
    for (int from = 0; from < 2; ++from) {
      for (Message& message : messages_[from]) {
        if (message.ticket != report.ticket || !report.status.ok()) continue;
        EXPECT_FALSE(message.ended) << "a call ended twice";
        message.ended = true;
        --open_;
        if (from == self_) {
          paint(message.bytes, 0x5a);
        } else {
          const bool taken = is_taken(message);
          EXPECT_EQ(message.taken.times, taken ? 1 : 0);
          const auto& came = taken ? message.taken.bytes : message.bytes;
          EXPECT_TRUE(same(came, pattern(message.seed, message.bytes.size())));
        }
        return true;
      }
    }
    ADD_FAILURE() << "a report of no call";
    return true;
  }

  const int self_;
  const bool breaks_;
  Random random_;
  std::deque<Message> messages_[2];  // by sender
  int open_ = 0;

 public:
  Party party;
};

// Reads a line from the other process, within a limit; empty when that process has ended.
std::string line_from(int descriptor) {
  std::string line;
  char letter = 0;
  pollfd ready{descriptor, POLLIN, 0};
  while (poll(&ready, 1, 60000) == 1 && read(descriptor, &letter, 1) == 1 && letter != '\n') {
    line += letter;
  }
  return line;
}
void line_to(int descriptor, const std::string& line) {
  const std::string whole = line + "\n";
  EXPECT_EQ(write(descriptor, whole.data(), whole.size()), static_cast<ssize_t>(whole.size()));
}

// The eager protocol, so that UCX copies: if a connection breaks during a rendezvous, or while UCX
// sends from our memory, UCX 1.13 may abort the process by an assertion (decision 13).
Party::Make make_eager() { return make_ucx(ucx_settings(UcxProtocol::Eager)); }

// The accepting end: writes its address, runs, writes its counters, and exits when it is told to.
[[noreturn]] void run_other_end(int in, int out) {
  {
    End end(1, make_eager());
    line_to(out, end.party.wire->address().text);
    end.run();
    const UcxCounters counters = ucx(end.party).counters();
    EXPECT_EQ(counters.malformed, 0);
    EXPECT_TRUE(end.party.wire->take_news().repairs.empty()) << "the end that connected tells";
    const bool well = !testing::Test::HasFailure();
    line_to(out, cat(well ? "well " : "failed ", counters.broken, " ", counters.sent_again));
    line_from(in);
  }
  _exit(0);
}

// Each end is a process of its own, as workers are, because UCX keeps socket state for the whole
// process, which breaks when two ends in it close by force.
TEST(Mend, EveryMessageArrivesOnceWhateverBreaks) {
  ASSERT_EQ(setenv("UCX_ZCOPY_THRESH", "inf", 0), 0);
  int to[2], from[2];
  ASSERT_EQ(pipe(to), 0);
  ASSERT_EQ(pipe(from), 0);
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    close(to[1]);  // so that it sees this process end
    run_other_end(to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  std::string told;
  UcxCounters counters;
  {
    End end(0, make_eager());
    const Status connected = end.party.connect(WorkerId{1}, {line_from(from[0])});
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    end.run();
    told = line_from(from[0]);
    counters = ucx(end.party).counters();
    EXPECT_EQ(counters.malformed, 0);
    EXPECT_FALSE(end.party.wire->take_news().repairs.empty());
    line_to(to[1], "go");
    int status = 0;
    EXPECT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(status, 0);
  }
  close(to[1]);
  close(from[0]);
  long broken = 0, sent_again = 0;
  ASSERT_EQ(std::sscanf(told.c_str(), "well %ld %ld", &broken, &sent_again), 2) << told;
  EXPECT_GT(counters.broken, 0);
  EXPECT_GT(broken, 0);
  EXPECT_GT(counters.sent_again + sent_again, 0) << "no break swallowed anything";
  std::printf("breaks %ld and %ld, sent again %ld and %ld\n", counters.broken, broken,
              counters.sent_again, sent_again);
}

// What happened in some plays of two ends.
struct Totals {
  int64_t messages = 0, broken = 0, sent_again = 0, repairs = 0;
  Duration longest{};
};

// Lets both ends, each in a thread of its own, send and receive everything.
void play(End& left, End& right, const std::string& address, Totals& totals) {
  const Status connected = left.party.connect(WorkerId{1}, {address});
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  std::thread other([&right] { right.run(); });
  left.run();
  other.join();
  for (End* end : {&left, &right}) {
    const TcpCounters counters = static_cast<TcpTransport&>(*end->party.wire).counters();
    EXPECT_EQ(counters.malformed, 0);
    totals.broken += counters.broken;
    totals.sent_again += counters.sent_again;
    totals.messages += End::kMessages;
  }
  for (const Repair& each : left.party.wire->take_news().repairs) {
    totals.longest = std::max(totals.longest, each.took);
    ++totals.repairs;
  }
  EXPECT_TRUE(right.party.wire->take_news().repairs.empty()) << "the end that connected tells";
}

TEST(Mend, EveryMessageArrivesOnceWhateverBreaksOverTcp) {
  Totals totals;
  for (uint64_t seed = 1; seed <= (kSanitized ? 2 : 8) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    End left(0, make_tcp(), seed), right(1, make_tcp(), seed);
    play(left, right, right.party.wire->address().text, totals);
  }
  EXPECT_GT(totals.repairs, 0);
  EXPECT_GT(totals.sent_again, 0) << "no break swallowed anything";
  std::printf("breaks %ld, sent again %ld, the longest repair %.1f ms\n", totals.broken,
              totals.sent_again, to_milliseconds(totals.longest));
}

// Real connections that somebody between the ends breaks, at drawn bytes of greetings, headers and
// messages of any size. TENUTO_BREAKS=2000 breaks as many. A repair takes the time that the machine
// needs for it, so the longest one is only printed; tcp_mend_test has the limit.
void play_over_a_relay(const TcpSettings& settings, int64_t breaks) {
  constexpr int64_t kMeanBytes = 500000;
  Totals totals;
  int64_t cut = 0;
  for (uint64_t seed = 1; cut < breaks && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    End left(0, make_tcp(settings), seed, false), right(1, make_tcp(settings), seed, false);
    const CuttingRelay relay(right.party.wire->address().text, kMeanBytes, seed);
    play(left, right, relay.address(), totals);
    cut += relay.breaks();
  }
  EXPECT_GT(totals.repairs, 0);
  EXPECT_GT(totals.sent_again, 0) << "no break swallowed anything";
  std::printf(
      "%ld connections broken, %ld messages, %ld sent again, %ld repairs, the longest %.1f "
      "ms\n",
      cut, totals.messages, totals.sent_again, totals.repairs, to_milliseconds(totals.longest));
}

TEST(Mend, EveryMessageArrivesOnceThroughARelayThatBreaksConnections) {
  play_over_a_relay({}, wanted_breaks(100));
}

TEST(Mend, EveryMessageArrivesOnceThroughSuchARelayOverTls) {
  play_over_a_relay(tls_settings(), wanted_breaks(60));
}

}  // namespace
}  // namespace tenuto
