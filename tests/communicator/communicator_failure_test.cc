// Members die during calls of a group, at any of their calls to the wire. The survivors agree among
// themselves on which members' sum they end with, all have the same bits, and go on.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <iostream>
#include <latch>
#include <map>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "communicator/call_tag.h"
#include "communicator/communicator.h"
#include "ready_thread.h"
#include "runtime/worker.h"
#include "sanitized.h"
#include "transport/memory.h"

namespace tenuto {
namespace {

using Numbers = std::vector<int64_t>;

// A wire that runs `deed` at call number `at`.
class TrapWire : public Transport {
 public:
  // Each call is delayed by `pause`.
  TrapWire(std::unique_ptr<Transport> under, int64_t at, std::function<void()> deed, Duration pause)
      : under_(std::move(under)), at_(at), deed_(std::move(deed)), pause_(pause) {}
  Address address() const override { return under_->address(); }
  Status connect(WorkerId peer, const Address& address, Ticket ticket) override {
    return under_->connect(peer, address, ticket);
  }
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    step();
    return under_->send(to, tag, bytes, stamp, ticket);
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    step();
    return under_->recv(from, tag, bytes, ticket);
  }
  Status drop(WorkerId peer) override { return under_->drop(peer); }
  Status close(Duration limit) override { return under_->close(limit); }
  // From now on `deed` is not run. Returns whether it has been.
  bool disarm() { return calls_.exchange(int64_t{1} << 40) > at_ && at_ >= 0; }

 private:
  void step() {
    if (pause_ > Duration::zero()) std::this_thread::sleep_for(pause_);
    if (calls_++ == at_) deed_();
  }
  std::unique_ptr<Transport> under_;
  const int64_t at_;
  const std::function<void()> deed_;
  const Duration pause_;
  std::atomic<int64_t> calls_{0};
};

// One run of a group: what its members call, and which members die when.
struct GroupRun {
  int32_t members = 8;
  std::string algorithm = "ring";
  int32_t chunks = 0, late = -1;
  bool in_place = false;
  Operation operation = Operation::Sum;
  std::map<int32_t, int64_t> deaths;  // by place: at which of its calls to the wire
  int calls = 2;                      // in which members may die; one more call follows
  int at_once = 1;                    // concurrent calls
  int64_t elements = 37;
  int32_t least = 0;
  uint64_t seed = 0;            // of the members' arrival times; 0 = all at once
  int32_t slow_from = 1 << 30;  // members from this one on are slow
  int32_t silent = -1;          // makes its second call only when the others are done
  Duration silence_limit = std::chrono::seconds(20);
  int32_t host = -1;  // its process runs the ready service, which dies with it; -1 = no service
};

// The result of a call at one member.
struct Ending {
  bool ok = false;
  std::string sentence, float_sentence;
  std::vector<WorkerId> contributors;
  Numbers total;
  std::vector<float> floats;
};

struct Member {
  std::vector<Ending> endings;
  bool died = false;
  int asked = 0;  // calls whose algorithm was changed because a member was missing
};

// Each member's numbers have digits of their own, so that a sum shows who contributed.
int64_t number_of(int32_t place, int call, int64_t i) {
  return int64_t{1 + (call + i) % 3} << (6 * place);
}

class Stage {
 public:
  explicit Stage(const GroupRun& run) : run_(run) {
    for (int32_t m = 0; m < run.members; ++m) {
      ids_.push_back({m});
      mailboxes_.push_back(std::make_unique<QueueMailbox>());
      auto wire = make_memory_transport(network_, {"group", "token", kWireVersion, ids_.back(), 0},
                                        *mailboxes_.back());
      const auto found = run.deaths.find(m);
      wires_.push_back(std::make_unique<TrapWire>(
          std::move(wire), found == run.deaths.end() ? -1 : found->second, [this, m] { die(m); },
          m >= run.slow_from ? std::chrono::microseconds(300) : Duration::zero()));
    }
    if (run.host >= 0) {
      ready_ =
          std::make_unique<ReadyThread>(network_, ids_, WorkerId{run.members}, WorkerId{run.host});
      for (const auto& wire : wires_) ready_->connect(*wire);
    }
    for (size_t m = 0; m < wires_.size(); ++m) {
      for (size_t peer = 0; peer < m; ++peer) {
        CHECK(wires_[m]->connect(ids_[peer], wires_[peer]->address(), fresh_ticket()).ok(), "");
      }
    }
  }

  std::vector<Member> run() {
    std::vector<Member> members(wires_.size());
    std::vector<std::thread> threads;
    for (size_t m = 0; m < wires_.size(); ++m) {
      threads.emplace_back([&, m] { live(static_cast<int32_t>(m), members[m]); });
    }
    for (std::thread& thread : threads) thread.join();
    return members;
  }

 private:
  struct Open {
    Numbers own, total;
    std::vector<float> float_own, float_total;
    Result<CallNumber> number = CallNumber{}, float_number = CallNumber{};
  };

  void die(int32_t member) {
    const bool first = run_.seed % 2 == 0;
    if (member == run_.host && first) network_.lose({run_.members});
    network_.lose({member});
    if (member == run_.host && !first) network_.lose({run_.members});
  }

  void live(int32_t place, Member& member) {
    const auto at = static_cast<size_t>(place);
    CommunicatorSettings settings;
    settings.members = ids_;
    settings.self = ids_[at];
    settings.way = {run_.algorithm, run_.chunks, {}};
    if (run_.late >= 0) settings.way.late = {{run_.late}};
    settings.slice_bytes = 64;
    settings.link = AlphaBeta{std::chrono::microseconds(10), 1e9};
    settings.told_bytes = 128;
    settings.silence_limit = run_.silence_limit;
    settings.survive_deaths = true;
    settings.least_survivors = run_.least;
    CommunicatorWire wire{wires_[at].get(), mailboxes_[at].get()};
    std::optional<ReadyDesk> desk;
    if (ready_ != nullptr) {
      desk = ready_->desk;
      wire.ready = &*desk;
      settings.link = AlphaBeta{Duration(10), 1e7};  // so slow that asking the service pays
      settings.rules.least_chunk = {8};
    }
    // Other members may still need these tensors, so they outlive the group.
    std::vector<std::unique_ptr<Open>> opens;
    auto made = Communicator::make(wire, settings);
    CHECK(made.ok(), made.error().message);
    Communicator& group = *made.value();
    Random random(mix(run_.seed, static_cast<uint64_t>(place)));
    for (int call = 0; call <= run_.calls; call += run_.at_once) {
      // Nobody dies in the last call: a member that is done leaves and can then help no other.
      if (call == run_.calls) member.died = wires_[at]->disarm();
      if (call > 0 && place == run_.silent) others_.wait();
      for (int i = 0; i < run_.at_once; ++i) {
        if (run_.seed != 0 && random.below(2) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
        }
        opens.push_back(std::make_unique<Open>());
        start(group, place, call + i, *opens.back());
      }
      for (int i = 0; i < run_.at_once; ++i) {
        Open& open = *opens[static_cast<size_t>(call + i)];
        member.endings.push_back(end(group, open));
      }
    }
    for (const std::string& note : group.take_notes()) {
      member.asked += note.find("had not come") != std::string::npos ? 1 : 0;
    }
    if (place != run_.silent) others_.count_down();
  }

  void start(Communicator& group, int32_t place, int call, Open& open) {
    for (int64_t i = 0; i < run_.elements; ++i) {
      open.own.push_back(number_of(place, call, i));
      open.float_own.push_back(1.0F / static_cast<float>(1 + place * 7 + call + i));
    }
    open.total = run_.in_place ? open.own : Numbers(open.own.size(), -1);
    open.float_total = run_.in_place ? open.float_own : std::vector<float>(open.own.size(), -1);
    CallRequest request;
    request.operation = run_.operation;
    request.element = Element::Int64;
    request.total = std::as_writable_bytes(std::span(open.total));
    request.own = std::as_bytes(std::span(run_.in_place ? open.total : open.own));
    open.number = group.start(request);
    request.element = Element::Float32;
    request.total = std::as_writable_bytes(std::span(open.float_total));
    request.own = std::as_bytes(std::span(run_.in_place ? open.float_total : open.float_own));
    open.float_number = group.start(request);
  }

  static Ending end(Communicator& group, Open& open) {
    Ending ending;
    const Status status =
        open.number.ok() ? group.wait(open.number.value()) : Status(open.number.error());
    ending.ok = status.ok();
    if (!status.ok()) ending.sentence = status.error().message;
    if (status.ok()) ending.contributors = group.contributors();
    if (status.ok()) ending.total = open.total;
    const Status other = open.float_number.ok() ? group.wait(open.float_number.value())
                                                : Status(open.float_number.error());
    if (!other.ok()) ending.float_sentence = other.error().message;
    if (other.ok()) ending.floats = open.float_total;
    if (other.ok()) {
      for (const WorkerId each : group.contributors()) {
        ending.floats.push_back(static_cast<float>(each.value));
      }
    }
    return ending;
  }

  const GroupRun& run_;
  std::latch others_{run_.members - (run_.silent >= 0 ? 1 : 0)};  // done with all calls
  MemoryNetwork network_;
  std::vector<WorkerId> ids_;
  std::vector<std::unique_ptr<QueueMailbox>> mailboxes_;
  std::vector<std::unique_ptr<TrapWire>> wires_;
  std::unique_ptr<ReadyThread> ready_;
};

struct Counts {
  int64_t plays = 0, all = 0, survivors = 0, lost = 0, asked = 0;
};

// Checks a run: all survivors have the same results, and these are right.
void judge(const GroupRun& run, const std::vector<Member>& members, Counts& counts) {
  ++counts.plays;
  const Member* first = nullptr;
  for (int32_t m = 0; m < run.members; ++m) {
    const Member& member = members[static_cast<size_t>(m)];
    if (member.died) continue;
    if (first == nullptr) first = &member;
    counts.asked += member.asked;
    ASSERT_EQ(member.endings.size(), static_cast<size_t>(run.calls + run.at_once));
    for (size_t call = 0; call < member.endings.size(); ++call) {
      const Ending& ending = member.endings[call];
      SCOPED_TRACE(cat("call ", call, " at member ", m, ": ", ending.sentence));
      const Ending& other = first->endings[call];
      ASSERT_EQ(ending.ok, other.ok) << other.sentence;
      ASSERT_EQ(ending.contributors, other.contributors);
      ASSERT_EQ(ending.total, other.total);
      ASSERT_EQ(ending.floats, other.floats);
      ASSERT_TRUE(ending.ok || run.in_place);
      if (first != &member) continue;
      if (!ending.ok) ++counts.lost;
      if (!ending.ok) continue;
      const auto count = std::ssize(ending.contributors);
      ++(count == run.members ? counts.all : counts.survivors);
      for (int32_t place = 0; place < run.members; ++place) {
        const bool in = std::find(ending.contributors.begin(), ending.contributors.end(),
                                  WorkerId{place}) != ending.contributors.end();
        ASSERT_TRUE(in || members[static_cast<size_t>(place)].died) << "a survivor is not in it";
      }
      for (int64_t i = 0; i < run.elements; ++i) {
        int64_t sum = 0;
        for (const WorkerId each : ending.contributors) {
          sum += number_of(each.value, static_cast<int>(call), i);
        }
        if (run.operation == Operation::Average) sum /= count;
        ASSERT_EQ(ending.total[static_cast<size_t>(i)], sum) << "element " << i;
      }
    }
  }
}

std::string say(const GroupRun& run) {
  std::string text = cat(run.algorithm, " of ", run.members, " chunks ", run.chunks,
                         run.in_place ? " in place" : "", " seed ", run.seed);
  for (const auto& [place, at] : run.deaths) text += cat(", ", place, " dies at call ", at);
  return text;
}

// Prints all results of all members, for debugging.
void tell_all(const std::vector<Member>& members) {
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t call = 0; call < members[m].endings.size(); ++call) {
      const Ending& ending = members[m].endings[call];
      std::cout << "member " << m << " call " << call << ": "
                << (ending.ok ? cat("sum of ", ending.contributors.size()) : ending.sentence)
                << "; " << ending.float_sentence << "\n";
    }
  }
}

// Kills `victim` at each of its calls to the wire, one run each.
void die_everywhere(GroupRun run, int32_t victim, int64_t step, Counts& counts) {
  for (int64_t at = 0;; at += step) {
    run.deaths = {{victim, at}};
    SCOPED_TRACE(say(run));
    const std::vector<Member> members = Stage(run).run();
    if (!members[static_cast<size_t>(victim)].died) return;
    judge(run, members, counts);
    if (testing::Test::HasFatalFailure()) return tell_all(members);
  }
}

void report(const Counts& counts) {
  std::cout << counts.plays << " plays; ends of calls: " << counts.all << " with all, "
            << counts.survivors << " with the survivors, " << counts.lost << " not to be had\n";
}

TEST(CommunicatorFailure, AMemberDiesAtEachOfItsCalls) {
  Counts counts;
  const int32_t members = kSanitized ? 4 : 8;
  for (const auto& [algorithm, chunks] : std::vector<std::pair<std::string, int32_t>>{
           {"late-one", members - 1}, {"late-one", 2}, {"ring", 0}, {"halving", 0}}) {
    for (int32_t victim = 0; victim < members; ++victim) {
      GroupRun run;
      run.members = members;
      run.algorithm = algorithm;
      run.chunks = chunks;
      if (algorithm == "late-one") run.late = members - 1;
      // In the algorithms without a late member all members are alike.
      if (run.late < 0 && victim % 3 != 0) continue;
      die_everywhere(run, victim, kSanitized ? 7 : 1, counts);
      if (HasFatalFailure()) return;
    }
  }
  report(counts);
  EXPECT_GT(counts.all, 0);
  EXPECT_GT(counts.survivors, 0);
}

// In place, so inputs are not kept: all survivors get the same error, or the same sum.
TEST(CommunicatorFailure, InPlace) {
  Counts counts;
  for (const char* const algorithm : {"late-one", "ring", "halving", "tree"}) {
    for (const int32_t victim : {0, 2, 4}) {
      GroupRun run;
      run.members = 5;
      run.algorithm = algorithm;
      run.in_place = true;
      run.operation = Operation::Average;
      if (run.algorithm == "late-one") run.late = 4;
      die_everywhere(run, victim, kSanitized ? 7 : 2, counts);
      if (HasFatalFailure()) return;
    }
  }
  report(counts);
  EXPECT_GT(counts.lost, 0);
  EXPECT_GT(counts.survivors, 0);
}

// A member whose calls have all ended, some with an error, is done long before the slow members and
// may have data that they lack. It leaves after them, and all members get the same results.
TEST(CommunicatorFailure, AFinishedMemberStaysForSlowOnes) {
  Counts counts;
  for (const char* const algorithm : {"late-one", "halving"}) {
    GroupRun run;
    run.members = 5;
    run.algorithm = algorithm;
    run.in_place = true;
    run.elements = 20;
    run.slow_from = 2;
    if (run.algorithm == "late-one") run.late = 4;
    die_everywhere(run, 4, kSanitized ? 9 : 3, counts);
    if (HasFatalFailure()) return;
  }
  report(counts);
  EXPECT_GT(counts.lost, 0);
}

// Several members die at random moments of random plays. Members arrive at random times and have
// several calls under way at once. More than half survive.
void play_drawn(uint64_t salt, uint64_t plays, bool asks, Counts& counts) {
  const std::vector<std::string> names{"late-one", "ring",      "halving",  "tree",
                                       "direct",   "late-join", "slow-one", "auto"};
  for (uint64_t seed = 1; seed <= plays; ++seed) {
    Random random(mix(salt, seed));
    GroupRun run;
    run.seed = seed;
    run.members = static_cast<int32_t>(3 + random.below(6));
    run.algorithm = names[static_cast<size_t>(random.below(std::ssize(names)))];
    if (asks) run.algorithm = "auto";
    if (asks) run.host = static_cast<int32_t>(random.below(run.members));
    run.chunks = static_cast<int32_t>(random.below(5));
    if (run.algorithm.substr(0, 4) == "late" || run.algorithm == "slow-one") {
      run.late = static_cast<int32_t>(random.below(run.members));
    }
    run.in_place = random.below(4) == 0;
    run.operation = random.below(2) == 0 ? Operation::Average : Operation::Sum;
    run.at_once = static_cast<int>(1 + random.below(3));
    run.calls = 3 * run.at_once;
    run.elements = random.below(6) == 0 ? random.below(4) : 1 + random.below(200);
    const auto most = static_cast<size_t>((run.members - 1) / 2);
    while (run.deaths.size() < std::min(most, static_cast<size_t>(1 + seed % 3))) {
      run.deaths[static_cast<int32_t>(random.below(run.members))] = random.below(120);
    }
    SCOPED_TRACE(say(run));
    const std::vector<Member> members = Stage(run).run();
    judge(run, members, counts);
    if (testing::Test::HasFatalFailure()) return tell_all(members);
  }
  report(counts);
}

TEST(CommunicatorFailure, DrawnDeaths) {
  Counts counts;
  play_drawn(51, kSanitized ? 40 : 400, false, counts);
}

// With a ready service that names late members: members die at each of their calls to the wire, and
// the service dies with its host.
TEST(CommunicatorFailure, WhileTheReadyServiceIsAsked) {
  Counts counts;
  for (const int32_t victim : {0, 1, 4}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      GroupRun run;
      run.members = 5;
      run.algorithm = "auto";
      run.host = 1;
      run.calls = 4;
      run.at_once = 2;
      run.seed = seed;
      die_everywhere(run, victim, kSanitized ? 13 : 3, counts);
      if (HasFatalFailure()) return;
    }
  }
  report(counts);
  EXPECT_GT(counts.asked, 0);
  EXPECT_GT(counts.survivors, 0);
}

TEST(CommunicatorFailure, DrawnDeathsWithAReadyService) {
  Counts counts;
  play_drawn(52, kSanitized ? 20 : 100, true, counts);
  EXPECT_GT(counts.asked, 0);
}

// The last survivor goes on if the user allows it; otherwise its calls end with an error.
TEST(CommunicatorFailure, AllButOne) {
  for (const int32_t least : {0, 1}) {
    for (int64_t at = 0; at < 40; at += 3) {
      GroupRun run;
      run.members = 4;
      run.least = least;
      run.deaths = {{0, at}, {1, at + 1}, {3, at + 5}};
      SCOPED_TRACE(say(run));
      const std::vector<Member> members = Stage(run).run();
      for (const Ending& ending : members[2].endings) {
        if (least == 1) {
          EXPECT_TRUE(ending.ok) << ending.sentence;
        } else if (!ending.ok) {
          EXPECT_NE(ending.sentence.find("expected at least 3: the others may be"),
                    std::string::npos)
              << ending.sentence;
        }
      }
      EXPECT_EQ(members[2].endings.back().ok, least == 1);
      EXPECT_EQ(members[2].endings.back().contributors.size(), least == 1 ? 1U : 0U);
      if (HasFailure()) return tell_all(members);
    }
  }
}

// A member lives but is silent: the others ask it, wait, and go on without it. When it comes back
// it is told that it is out.
TEST(CommunicatorFailure, ASilentMember) {
  GroupRun run;
  run.members = 4;
  run.silent = 2;
  run.silence_limit = std::chrono::seconds(3);
  Counts counts;
  std::vector<Member> members = Stage(run).run();
  const std::vector<Ending> back = members[2].endings;
  ASSERT_EQ(back.size(), 3U);
  EXPECT_TRUE(back[0].ok) << back[0].sentence;
  EXPECT_FALSE(back[1].ok);
  EXPECT_FALSE(back[2].ok);
  EXPECT_NE(back[1].sentence.find("expected at least 3: the others may be"), std::string::npos)
      << back[1].sentence;
  members[2].died = true;
  judge(run, members, counts);
  EXPECT_EQ(counts.survivors, 2);
}

// In an agreement a member announces a report with more words than any report may have: the group
// ends with an error, and allocates no memory for the words.
TEST(CommunicatorFailure, AnOversizedReportEndsTheGroup) {
  constexpr int64_t kAttempt = 1, kTooMany = (int64_t{1} << 26) + 1, kNoLimit = int64_t{1} << 40;
  for (const int64_t size : {kTooMany, kNoLimit, int64_t{-1}}) {
    MemoryNetwork network;
    const std::vector<WorkerId> ids{{0}, {1}, {2}};
    std::array<QueueMailbox, 3> mailboxes;
    std::vector<std::unique_ptr<Transport>> wires;
    for (const WorkerId id : ids) {
      wires.push_back(make_memory_transport(network, {"group", "token", kWireVersion, id, 0},
                                            mailboxes[static_cast<size_t>(id.value)]));
      for (const WorkerId peer : ids) {
        if (peer.value >= id.value) break;
        const auto& other = wires[static_cast<size_t>(peer.value)];
        ASSERT_TRUE(wires.back()->connect(peer, other->address(), fresh_ticket()).ok());
      }
    }
    CommunicatorSettings settings;
    settings.members = ids;
    settings.survive_deaths = true;
    std::array<std::unique_ptr<Communicator>, 3> groups;
    std::vector<std::thread> threads;
    for (size_t m = 0; m < groups.size(); ++m) {
      threads.emplace_back([&, m, mine = settings]() mutable {
        mine.self = ids[m];
        auto made = Communicator::make({wires[m].get(), &mailboxes[m]}, mine);
        CHECK(made.ok(), made.error().message);
        groups[m] = std::move(made).value();
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<float> own(8, 1.0F), total(8);
    CallRequest request;
    request.element = Element::Float32;
    request.total = std::as_writable_bytes(std::span(total));
    request.own = std::as_bytes(std::span(own));
    const auto call = groups[0]->start(request);
    ASSERT_TRUE(call.ok()) << call.error().message;
    network.lose(ids[2]);
    const std::array<int64_t, 3> words{kAttempt, size, 4};  // member 2 is dead
    const Tag tag = tag_of_word(settings.number, kAttempt, Saying::Dead);
    ASSERT_TRUE(
        wires[1]->send(ids[0], tag, std::as_bytes(std::span(words)), {}, fresh_ticket()).ok());
    const Status status = groups[0]->wait(call.value());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::Corrupt);
    EXPECT_EQ(status.error().message,
              "worker 1 sent a malformed recovery message: check that all members run the same "
              "version; "
              "worker 2 is lost: its end of the wire is gone");
  }
}

}  // namespace
}  // namespace tenuto
