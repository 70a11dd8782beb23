// Communicators: for all calls and any order of messages and members, all members end with the
// same, correct bits; whatever goes wrong, calls end with an error.
#include "communicator/communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <mutex>

#include "communicators.h"
#include "sanitized.h"

namespace tenuto {
namespace {

using Bytes8 = std::vector<std::byte>;

// Results of the members of a run, compared with each other.
class Findings {
 public:
  // Takes the bits of a result; all results under one name must be equal.
  void tell(const std::string& name, std::span<const std::byte> bits) {
    const std::lock_guard lock(mutex_);
    const auto [place, fresh] = bits_.emplace(name, Bytes8(bits.begin(), bits.end()));
    const bool same =
        fresh || std::equal(bits.begin(), bits.end(), place->second.begin(), place->second.end());
    if (!same) faults_.push_back(name + ": other bits than another member or another time");
  }
  void fault(std::string what) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(std::move(what));
  }
  // The first fault, or "".
  std::string first() {
    const std::lock_guard lock(mutex_);
    return faults_.empty() ? std::string() : faults_.front();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Bytes8> bits_;
  std::vector<std::string> faults_;
};

// A call of one member with its memory.
struct OpenCall {
  DrawnCall drawn;
  Bytes8 own, total;
  Bytes8 before;  // a copy of `own`, which the call must not change
  CallNumber number{};
  int index = 0;
};

CallRequest request_of(OpenCall& call) {
  CallRequest request = call.drawn.request;
  request.total = call.total;
  request.own = call.drawn.in_place ? std::span<const std::byte>(call.total) : call.own;
  return request;
}

void judge(const OpenCall& call, int32_t place, const std::vector<WorkerId>& members,
           Findings& findings, bool keep_bits) {
  const std::string wrong = difference(call.drawn, call.total, place, members);
  if (!wrong.empty()) findings.fault(cat("call ", call.index, ": ", wrong));
  if (call.own != call.before) findings.fault(cat("call ", call.index, ": own was written"));
  if (!keep_bits) return;
  const auto count = static_cast<int32_t>(members.size());
  const ElementRange range = result_range(call.drawn, place, count);
  const size_t one = size_of(call.drawn.request.element);
  const bool scattered = call.drawn.request.kind == CallKind::ReduceScatter;
  findings.tell(cat("call ", call.index, scattered ? cat(" place ", place) : std::string()),
                std::span<const std::byte>(call.total)
                    .subspan(static_cast<size_t>(range.first) * one,
                             static_cast<size_t>(range.end - range.first) * one));
}

// One member's calls: `rounds` batches of calls, each made `times` times with different arrival
// times.
struct Script {
  uint64_t seed = 0;
  int rounds = 0, times = 1;
  int64_t most_elements = 0;
  bool keep_bits = true;
};

void play(Communicator& group, int32_t place, const std::vector<WorkerId>& members,
          const Script& script, Findings& findings) {
  Random drawn(script.seed);                                            // the same at all members
  Random mine(mix(script.seed, static_cast<uint64_t>(place), 0x6d65));  // this member's arrivals
  int index = 0;
  for (int round = 0; round < script.rounds; ++round) {
    std::vector<DrawnCall> calls(static_cast<size_t>(1 + drawn.below(4)));
    for (DrawnCall& call : calls) call = draw_call(drawn, members, script.most_elements);
    for (int time = 0; time < script.times; ++time) {
      std::vector<std::unique_ptr<OpenCall>> open;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (mine.below(4) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(mine.below(300)));
        }
        auto call = std::make_unique<OpenCall>();
        call->drawn = calls[i];
        call->index = index + static_cast<int>(i);
        call->own = call->before = tensor_of(call->drawn, place);
        call->total.assign(call->own.size(), std::byte{0x5a});
        if (call->drawn.in_place) call->total = call->own;
        const auto number = group.start(request_of(*call));
        if (!number.ok()) return findings.fault(number.error().message);
        call->number = number.value();
        open.push_back(std::move(call));
      }
      while (!open.empty()) {
        const auto pick = static_cast<size_t>(mine.below(static_cast<int64_t>(open.size())));
        const OpenCall& call = *open[pick];
        if (mine.below(3) == 0) {
          const auto over = group.test(call.number);
          if (!over.ok()) return findings.fault(over.error().message);
          if (!over.value()) continue;
        } else if (const Status status = group.wait(call.number); !status.ok()) {
          return findings.fault(status.error().message);
        }
        judge(call, place, members, findings, script.keep_bits);
        open.erase(open.begin() + static_cast<int64_t>(pick));
      }
    }
    index += static_cast<int>(calls.size());
  }
}

// A group's settings, drawn from a seed.
CommunicatorSettings drawn_settings(uint64_t seed) {
  Random random(mix(seed, 0x7365));
  CommunicatorSettings settings;
  settings.slice_bytes = random.below(3) == 0 ? 0 : 64 + random.below(2000);
  settings.sends_at_once = static_cast<int32_t>(random.below(5));
  settings.link = AlphaBeta{std::chrono::microseconds(20), 1e8};
  settings.told_bytes = 500;
  settings.calls_ahead = static_cast<int32_t>(1 + random.below(5));
  return settings;
}

// Settings of groups that always use the ring.
CommunicatorSettings plain_settings() {
  CommunicatorSettings settings;
  settings.way = {"ring"};
  return settings;
}

TEST(Communicator, DrawnCallsAreRightAndRepeatBitForBit) {
  const int most = kSanitized ? 8 : 16;
  for (int32_t count = 1; count <= most; ++count) {
    const uint64_t seed = 100 + static_cast<uint64_t>(count);
    Wires wires(count, Wires::Kind::Memory, 3);
    Findings findings;
    const Script script{seed, kSanitized ? 6 : 15, 2, 1500, true};
    wires.run(drawn_settings(seed), [&](Communicator& group, int32_t place) {
      play(group, place, wires.members, script, findings);
    });
    EXPECT_EQ(findings.first(), "") << count << " members, seed " << seed;
  }
}

// Every all-reduce with every element and operation.
TEST(Communicator, EveryElementAndOperationByEveryAlgorithm) {
  const int32_t count = 5;
  Wires wires(count);
  Findings findings;
  CommunicatorSettings settings = plain_settings();
  settings.slice_bytes = 256;
  wires.run(settings, [&](Communicator& group, int32_t place) {
    int index = 0;
    for (const NamedAlgorithm& algorithm : algorithms()) {
      if (algorithm.card.goal != Goal::AllReduce) continue;
      for (const Element element : kElements) {
        for (const Operation operation : kOperations) {
          OpenCall call;
          call.index = index++;
          call.drawn.request.element = element;
          call.drawn.request.operation = operation;
          call.drawn.request.way = {algorithm.card.name};
          if (algorithm.card.late_most != 0) call.drawn.request.way.late = {wires.members[2]};
          call.drawn.elements = 131;
          call.drawn.seed = static_cast<uint64_t>(index);
          call.own = call.before = tensor_of(call.drawn, place);
          call.total.assign(call.own.size(), std::byte{0});
          const Status status = group.run(request_of(call));
          if (!status.ok()) return findings.fault(status.error().message);
          judge(call, place, wires.members, findings, true);
        }
      }
    }
  });
  EXPECT_EQ(findings.first(), "");
}

// Signed zeros and NaNs: the late member and the owner of a chunk combine them in opposite order
// and must get the same bits.
TEST(Communicator, SignsOfZerosAndNoNumbersAreTheSameForAll) {
  const int32_t count = 6;
  Wires wires(count);
  Findings findings;
  wires.run(plain_settings(), [&](Communicator& group, int32_t place) {
    for (const Operation operation : {Operation::Min, Operation::Max}) {
      for (int late = 0; late < count; ++late) {
        Random random(mix(static_cast<uint64_t>(late), static_cast<uint64_t>(place)));
        std::vector<float> numbers(400);
        constexpr float kSpecial[]{0.0F, -0.0F, NAN, -NAN, 1.0F};
        for (float& each : numbers) each = kSpecial[random.below(20) < 3 ? 2 : random.below(5) % 2];
        CallRequest request;
        request.operation = operation;
        request.total = std::as_writable_bytes(std::span(numbers));
        request.own = request.total;
        request.way = {"late-one", 7, {wires.members[static_cast<size_t>(late)]}};
        const Status status = group.run(request);
        if (!status.ok()) return findings.fault(status.error().message);
        findings.tell(cat(name_of(operation), " ", late), request.total);
      }
    }
  });
  EXPECT_EQ(findings.first(), "");
}

TEST(Communicator, WorksOverUcx) {
  for (int32_t count = 2; count <= (kSanitized ? 3 : 5); ++count) {
    const uint64_t seed = 500 + static_cast<uint64_t>(count);
    Wires wires(count, Wires::Kind::Ucx);
    Findings findings;
    CommunicatorSettings settings = drawn_settings(seed);
    settings.slice_bytes = 16 << 10;
    const Script script{seed, kSanitized ? 4 : 10, 2, 40'000, true};
    wires.run(settings, [&](Communicator& group, int32_t place) {
      play(group, place, wires.members, script, findings);
    });
    EXPECT_EQ(findings.first(), "") << count << " members, seed " << seed;
  }
}

// Groups follow one another over the same wires and use the same call numbers: no message of one
// group is taken for another's.
TEST(Communicator, GroupsFollowOneAnother) {
  Wires wires(3);
  for (int64_t number = 1; number <= 3; ++number) {
    Findings findings;
    CommunicatorSettings settings = drawn_settings(3);
    settings.number = number;
    wires.run(settings, [&](Communicator& group, int32_t place) {
      play(group, place, wires.members, {static_cast<uint64_t>(number), 3, 1, 500, true}, findings);
    });
    EXPECT_EQ(findings.first(), "");
  }
}

// Runs one all-reduce of `floats` numbers; returns its status.
Status reduce(Communicator& group, size_t floats, const std::function<void(CallRequest&)>& change) {
  std::vector<float> numbers(floats, 1.0F);
  CallRequest request;
  request.total = std::as_writable_bytes(std::span(numbers));
  request.own = request.total;
  request.way = {"ring"};
  change(request);
  return group.run(request);
}

// One member makes a different call from the rest: it ends with an error at all members.
TEST(Communicator, CallsThatDoNotMatchEndWithAnError) {
  std::vector<float> more(101);
  const std::vector<std::pair<const char*, std::function<void(CallRequest&)>>> changes{
      {"size",
       [&](CallRequest& it) { it.own = it.total = std::as_writable_bytes(std::span(more)); }},
      {"operation", [](CallRequest& it) { it.operation = Operation::Max; }},
      {"element", [](CallRequest& it) { it.element = Element::Int32; }},
      {"algorithm", [](CallRequest& it) { it.way = {"halving"}; }},
      {"late member",
       [](CallRequest& it) {
         it.way = {"late-one", 4, {{1}}};
       }},
      {"nothing", [](CallRequest& it) { it.own = it.total = {}; }},
      {"kind", [](CallRequest& it) { it.kind = CallKind::ReduceScatter, it.way = {}; }},
  };
  for (const auto& [what, change] : changes) {
    for (const int32_t odd : {0, 2}) {
      Wires wires(4);
      std::vector<std::string> said(4);
      CommunicatorSettings settings = plain_settings();
      wires.run(settings, [&, change = change](Communicator& group, int32_t place) {
        const Status status =
            reduce(group, 100, [&](CallRequest& it) { place == odd ? change(it) : void(); });
        said[static_cast<size_t>(place)] = status.ok() ? "" : status.error().message;
      });
      int told = 0;
      for (const std::string& each : said) {
        told += each.find("it received a message of another call") != std::string::npos ||
                each.find("must agree on the size") != std::string::npos;
      }
      EXPECT_GT(told, 0) << what << ", member " << odd << ": " << said[0] << " | " << said[1]
                         << " | " << said[2] << " | " << said[3];
    }
  }
}

TEST(Communicator, ALostMemberIsNamed) {
  for (const char* algorithm : {"ring", "halving", "late-one"}) {
    Wires wires(4);
    std::vector<std::string> said(4);
    wires.run(plain_settings(), [&](Communicator& group, int32_t place) {
      if (place == 2) return wires.network.lose({2});
      const Status status = reduce(group, 5000, [&](CallRequest& it) {
        it.way = {algorithm, 0, {}};
        if (it.way.algorithm == "late-one") it.way.late = {{2}};
      });
      said[static_cast<size_t>(place)] = status.ok() ? "ok" : status.error().message;
      EXPECT_TRUE(group.lost().contains({2}));
      // The group has ended: the next call says why at once.
      const Status next = reduce(group, 10, [](CallRequest&) {});
      ASSERT_FALSE(next.ok());
      EXPECT_EQ(next.error().message, said[static_cast<size_t>(place)]);
    });
    for (const int place : {0, 1, 3}) {
      EXPECT_NE(said[static_cast<size_t>(place)].find("worker 2 is lost"), std::string::npos)
          << algorithm << ": " << said[static_cast<size_t>(place)];
    }
  }
}

TEST(Communicator, SilenceIsNamed) {
  Wires wires(3);
  std::vector<std::string> said(3);
  CommunicatorSettings settings = plain_settings();
  settings.silence_limit = std::chrono::milliseconds(300);
  std::latch given_up(2);  // the silent member stays until then
  wires.run(settings, [&](Communicator& group, int32_t place) {
    if (place == 1) return given_up.wait();
    const Status status = reduce(group, 3000, [](CallRequest&) {});
    said[static_cast<size_t>(place)] = status.ok() ? "ok" : status.error().message;
    given_up.count_down();
  });
  const std::string both = said[0] + said[2];
  EXPECT_NE(both.find("call 0 (all-reduce of 12000 bytes by ring), chunk "), std::string::npos)
      << both;
  EXPECT_NE(both.find("no news for 300 ms"), std::string::npos) << both;
  // The error names the silent member, or one that waits for it.
  const bool named = both.find(" worker 1: no news") != std::string::npos ||
                     both.find(" worker 2: no news") != std::string::npos ||
                     both.find(" worker 0: no news") != std::string::npos;
  EXPECT_TRUE(named) << both;
}

TEST(Communicator, AsksForWhatItNeeds) {
  Wires wires(2);
  wires.run(plain_settings(), [&](Communicator& group, int32_t) {
    const auto said = [&](const std::function<void(CallRequest&)>& change) {
      std::vector<double> numbers(8);
      CallRequest request;
      request.element = Element::Float64;
      request.total = std::as_writable_bytes(std::span(numbers));
      request.own = request.total;
      change(request);
      const auto number = group.start(request);
      return number.ok() ? std::string("ok") : number.error().message;
    };
    const auto has = [](const std::string& text, const char* part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    has(said([](CallRequest& it) { it.own = it.own.subspan(8); }), "expected equal sizes");
    has(said([](CallRequest& it) { it.own = it.total = it.total.first(12); }), "whole elements");
    has(said([](CallRequest& it) { it.own = it.total = it.total.subspan(4, 8); }), "align it");
    has(said([](CallRequest& it) {
          it.own = it.own.first(32);
          it.total = it.total.subspan(8, 32);
        }),
        "overlap in part");
    has(said([](CallRequest& it) { it.way = {"rings"}; }), "did you mean 'ring'?");
    has(said([](CallRequest& it) { it.way = {"broadcast"}; }), "no algorithm for a call");
    EXPECT_FALSE(group.wait(CallNumber{7}).ok());
    EXPECT_FALSE(group.test(CallNumber{7}).ok());
  });
  const auto refused = [&](CommunicatorSettings settings) {
    return !Communicator::make({wires.wires[0].get(), wires.mailboxes[0].get()}, settings).ok();
  };
  CommunicatorSettings settings = plain_settings();
  settings.members = wires.members;
  settings.self = {0};
  EXPECT_FALSE(refused(settings));
  settings.self = {5};
  EXPECT_TRUE(refused(settings));
  settings.self = {0};
  settings.members.push_back({0});
  EXPECT_TRUE(refused(settings));
  settings.members = wires.members;
  settings.way = {"no such"};
  EXPECT_TRUE(refused(settings));
  settings = plain_settings();
  settings.members = wires.members;
  settings.self = wires.members[0];
  EXPECT_FALSE(refused(settings));
  for (const int32_t least : {-1, 3}) {
    settings.least_survivors = least;
    EXPECT_TRUE(refused(settings)) << least;
  }
}

// An algorithm that does not fit these members is replaced by the ring, with a note.
TEST(Communicator, TakesTheRingInPlaceOfWhatCannotBe) {
  Wires wires(1);
  wires.run(plain_settings(), [&](Communicator& group, int32_t) {
    const Status status = reduce(group, 10, [](CallRequest& it) {
      it.way = {"late-one", 3, {{0}}};
    });
    EXPECT_TRUE(status.ok());
    const std::vector<std::string> notes = group.take_notes();
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_EQ(notes[0].find("ring in place of late-one: "), 0U) << notes[0];
    EXPECT_TRUE(group.take_notes().empty());
  });
}

TEST(Communicator, CallsThatNobodyWaitsForAreBounded) {
  Wires wires(1);
  wires.run(plain_settings(), [&](Communicator& group, int32_t) {
    std::vector<float> numbers(4);
    CallRequest request;
    request.total = std::as_writable_bytes(std::span(numbers));
    request.own = request.total;
    for (size_t i = 0; i < kMostCalls; ++i) ASSERT_TRUE(group.start(request).ok());
    const auto refused = group.start(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::Exhausted);
    EXPECT_TRUE(group.wait(CallNumber{0}).ok());
    EXPECT_TRUE(group.start(request).ok());
  });
}

// A group keeps a limited number of procedures, of ways to slice each, and of ended calls. This
// test needs more of each, with three calls under way at a time. The group makes again what it has
// forgotten, and every sum is right.
TEST(Communicator, MoreOfEverythingThanIsKept) {
  constexpr size_t kCalls = 1200, kUnderWay = 3, kSets = kUnderWay + 2;
  for (const bool survives : {false, true}) {
    Wires wires(3);
    CommunicatorSettings settings = plain_settings();
    settings.survive_deaths = survives;
    settings.slice_bytes = 8;
    wires.run(settings, [&](Communicator& group, int32_t place) {
      std::vector<std::vector<float>> numbers(kSets);
      std::vector<CallNumber> calls;
      const auto look = [&](size_t call) {
        ASSERT_TRUE(group.wait(calls[call]).ok()) << "call " << call;
        const std::vector<float>& sum = numbers[call % kSets];
        for (size_t i = 0; i < sum.size(); ++i) {
          ASSERT_EQ(sum[i], 6 * static_cast<float>(1 + i % 5)) << "call " << call;
        }
      };
      for (size_t call = 0; call < kCalls; ++call) {
        if (call >= kUnderWay) look(call - kUnderWay);
        std::vector<float>& own = numbers[call % kSets];
        own.resize(call % 8 == 0 ? 1 + call * 3 / 8 : 80);
        for (size_t i = 0; i < own.size(); ++i) {
          own[i] = static_cast<float>(place + 1) * static_cast<float>(1 + i % 5);
        }
        CallRequest request;
        request.total = std::as_writable_bytes(std::span(own));
        request.own = request.total;
        const auto chunks = static_cast<int32_t>(1 + call / 8 % 70);
        request.way = call % 8 == 0   ? CallWay{"ring", 0, {}}
                      : call % 8 == 1 ? CallWay{"tree", chunks, {}}
                                      : CallWay{"direct", 0, {}};
        const auto started = group.start(request);
        ASSERT_TRUE(started.ok()) << started.error().message;
        calls.push_back(started.value());
      }
      for (size_t call = kCalls - kUnderWay; call < kCalls; ++call) look(call);
    });
  }
}

// The newest notes are kept.
TEST(Communicator, MoreNotesThanAreKept) {
  constexpr size_t kOld = 44;
  Wires wires(1);
  wires.run(plain_settings(), [&](Communicator& group, int32_t) {
    for (size_t i = 0; i < kOld + kMostNotes; ++i) {
      const Status status = reduce(group, 10, [&](CallRequest& it) {
        it.way = {"late-one", 3, {{i < kOld ? 7 : 0}}};
      });
      ASSERT_TRUE(status.ok());
    }
    const std::vector<std::string> notes = group.take_notes();
    ASSERT_EQ(notes.size(), kMostNotes);
    EXPECT_EQ(notes.front(), notes.back());
    EXPECT_EQ(notes.front().find("ring in place of late-one: "), 0U) << notes.front();
  });
}

// A group may end while a call is under way: its memory is free then, and the others get an error.
TEST(Communicator, EndsWithCallsUnderWay) {
  for (const auto kind : {Wires::Kind::Memory, Wires::Kind::Ucx}) {
    Wires wires(2, kind);
    std::vector<std::vector<float>> numbers(2, std::vector<float>(1 << 16));  // outlive the groups
    std::latch both_done(2);
    wires.run(plain_settings(), [&](Communicator& group, int32_t place) {
      CallRequest request;
      request.total = std::as_writable_bytes(std::span(numbers[static_cast<size_t>(place)]));
      request.own = request.total;
      const Status first = group.run(request);  // opens all links
      // What a member has sent may be lost when it ends before the other one has received it.
      both_done.arrive_and_wait();
      ASSERT_TRUE(first.ok()) << first.error().message;
      if (place == 0) {
        ASSERT_TRUE(group.start(request).ok());
        return;  // the group ends
      }
      const Status status = group.run(request);
      if (!status.ok()) {
        EXPECT_EQ(status.error().code, Code::Disconnected) << status.error().message;
      }
    });
  }
}

// Each member has its own clock and arrives at each call after a delay drawn from the seed. All
// hear exactly these delays, choose the same algorithms and write the same notes. Member 2 is late
// in the first calls, other members later.
TEST(Communicator, AutoChoosesAlikeByWhatAllTold) {
  constexpr int kCalls = kSanitized ? 60 : 300;
  const int32_t count = 5;
  for (const int32_t ahead : {1, 3}) {
    std::vector<HandClock> clocks(count);
    Wires wires(count, Wires::Kind::Memory, 0, &clocks);
    std::vector<std::vector<std::string>> notes(count);
    Findings findings;
    CommunicatorSettings settings;
    settings.link = AlphaBeta{std::chrono::microseconds(10), 1e9};
    settings.told_bytes = 1 << 10;
    settings.calls_ahead = ahead;
    wires.run(settings, [&](Communicator& group, int32_t place) {
      Random random(9);
      std::vector<float> numbers(1 << 18);
      for (int call = 0; call < kCalls; ++call) {
        std::vector<uint32_t> away(count);
        for (uint32_t& each : away) each = static_cast<uint32_t>(random.below(30));
        const auto late = call < 20 ? 2U : static_cast<uint32_t>(random.below(count));
        away[late] += 5000;
        clocks[static_cast<size_t>(place)].advance(
            std::chrono::microseconds(away[static_cast<size_t>(place)]));
        CallRequest request;
        request.total =
            std::as_writable_bytes(std::span(numbers)).first(call % 3 == 0 ? 512 : 1 << 20);
        request.own = request.total;
        const auto number = group.start(request);
        if (!number.ok()) return findings.fault(number.error().message);
        if (const Status status = group.wait(number.value()); !status.ok()) {
          return findings.fault(status.error().message);
        }
        const std::vector<uint32_t> heard = group.away_before(number.value());
        if (call % 3 == 0 && !heard.empty()) findings.fault("a small call tells");
        if (call % 3 != 0 && call > 0 && heard != away) findings.fault(cat("call ", call));
      }
      notes[static_cast<size_t>(place)] = group.take_notes();
    });
    EXPECT_EQ(findings.first(), "");
    bool waited = false;
    for (const std::string& note : notes[0]) {
      waited |= note.find("1048576 bytes: late-one, for") != std::string::npos;
    }
    EXPECT_TRUE(waited) << "of " << notes[0].size() << " choices none was late-one";
    for (int32_t m = 1; m < count; ++m) EXPECT_EQ(notes[static_cast<size_t>(m)], notes[0]);
  }
}

// In every call another member is late, so only the ready service can tell who it will be. The late
// member first waits until all others have come to the call, because on a busy machine any of them
// may be slow. Adds the group's sentences about members that were not waited for to `notes`.
void call_with_a_late_member(std::set<std::string>& notes) {
  const int32_t count = 5;
  const int calls = kSanitized ? 6 : 20;
  Wires wires(count, Wires::Kind::Memory, 3);
  ReadyThread ready(wires.network, wires.members, {99}, wires.members[1]);
  for (const auto& wire : wires.wires) ready.connect(*wire);
  CommunicatorSettings settings;
  settings.link = AlphaBeta{Duration(100), 1e8};
  settings.rules.least_chunk = {1 << 10};
  Findings findings;
  std::mutex mutex;
  std::latch there(count);
  std::vector<std::atomic<int32_t>> come(static_cast<size_t>(calls));
  wires.run(
      settings,
      [&](Communicator& group, int32_t place) {
        there.arrive_and_wait();
        for (int call = 0; call < calls; ++call) {
          std::atomic<int32_t>& others = come[static_cast<size_t>(call)];
          if (call % count == place) {
            const Duration limit = monotonic_clock().now() + std::chrono::seconds(60);
            while (others < count - 1 && monotonic_clock().now() < limit) {
              std::this_thread::yield();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          } else {
            ++others;
          }
          std::vector<int64_t> own(10'000), total(own.size());
          for (size_t i = 0; i < own.size(); ++i) own[i] = int64_t{place} << (i % 30);
          CallRequest request;
          request.element = Element::Int64;
          request.own = std::as_bytes(std::span(own));
          request.total = std::as_writable_bytes(std::span(total));
          const Status status = group.run(request);
          if (!status.ok()) return findings.fault(status.error().message);
          for (size_t i = 0; i < total.size(); ++i) {
            if (total[i] != int64_t{count * (count - 1) / 2} << (i % 30)) {
              return findings.fault(cat("call ", call, ": a wrong sum"));
            }
          }
          // Too small to ask the ready service: begins at once.
          request.own = request.own.first(8);
          request.total = request.total.first(8);
          if (Status end = group.run(request); !end.ok()) findings.fault(end.error().message);
        }
        const std::lock_guard lock(mutex);
        for (std::string& note : group.take_notes()) {
          if (note.find("late-one") != std::string::npos) notes.insert(std::move(note));
        }
      },
      &ready);
  EXPECT_EQ(findings.first(), "");
}

TEST(Communicator, AsksWhoIsLate) {
  std::set<std::string> notes;
  const auto is_told = [&](int32_t late) {
    return std::any_of(notes.begin(), notes.end(), [late](const std::string& note) {
      return note.find(cat("late-one, for worker ", late, " had not come")) != std::string::npos;
    });
  };
  // If the service wakes up as late as the late member, the calls are made again.
  const auto all_are_told = [&] {
    return is_told(3) && is_told(4) && is_told(5) && is_told(6) && is_told(7);
  };
  for (int round = 0; round < 20 && !all_are_told() && !HasFailure(); ++round) {
    call_with_a_late_member(notes);
  }
  for (int32_t late = 3; late < 8; ++late) {
    EXPECT_TRUE(is_told(late)) << "nobody waited for worker " << late;
  }
}

// Random concurrent calls, with members that arrive at random times.
TEST(Communicator, DrawnCallsWithAReadyService) {
  for (int32_t count = 3; count <= 7; ++count) {
    const uint64_t seed = 300 + static_cast<uint64_t>(count);
    Wires wires(count, Wires::Kind::Memory, 3);
    ReadyThread ready(wires.network, wires.members, {50}, wires.members[0]);
    for (const auto& wire : wires.wires) ready.connect(*wire);
    CommunicatorSettings settings = drawn_settings(seed);
    settings.link = AlphaBeta{Duration(10), 1e7};
    settings.rules.least_chunk = {64};
    Findings findings;
    const Script script{seed, kSanitized ? 6 : 30, 1, 1500, false};
    wires.run(
        settings,
        [&](Communicator& group, int32_t place) {
          play(group, place, wires.members, script, findings);
        },
        &ready);
    EXPECT_EQ(findings.first(), "") << count << " members, seed " << seed;
  }
}

// When the service is lost, so is the member whose process runs it.
TEST(Communicator, ALostReadyServiceIsNamed) {
  Wires wires(3);
  ReadyThread ready(wires.network, wires.members, {7}, wires.members[0]);
  for (const auto& wire : wires.wires) ready.connect(*wire);
  CommunicatorSettings settings;
  settings.link = AlphaBeta{Duration(10), 1e6};
  settings.rules.least_chunk = {64};
  std::latch lost(1);
  wires.run(
      settings,
      [&](Communicator& group, int32_t place) {
        std::vector<float> total(10'000);
        CallRequest request;
        request.total = std::as_writable_bytes(std::span(total));
        request.own = request.total;
        if (place == 0) {
          wires.network.lose({7});
          lost.count_down();
        }
        lost.wait();
        const Status status = group.run(request);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::Disconnected);
        EXPECT_NE(status.error().message.find(
                      "the ready service (worker 7 of the wire, in the process of worker 0)"),
                  std::string::npos)
            << status.error().message;
      },
      &ready);
}

TEST(Communicator, OtherSettingsOfAutoDoNotMatch) {
  Wires wires(3);
  std::vector<std::string> said(3);
  CommunicatorSettings settings;
  settings.link = AlphaBeta{std::chrono::microseconds(10), 1e9};
  std::vector<std::thread> threads;
  for (size_t m = 0; m < 3; ++m) {
    threads.emplace_back([&, m] {
      CommunicatorSettings mine = settings;
      mine.members = wires.members;
      mine.self = wires.members[m];
      if (m == 1) mine.calls_ahead = 2;
      auto made = Communicator::make({wires.wires[m].get(), wires.mailboxes[m].get()}, mine);
      ASSERT_TRUE(made.ok());
      const Status status = reduce(*made.value(), 100, [](CallRequest& it) { it.way = {}; });
      said[m] = status.ok() ? "" : status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string all = said[0] + said[1] + said[2];
  EXPECT_NE(all.find("same calls"), std::string::npos) << all;
}

TEST(Communicator, LinksAreMeasuredAlike) {
  for (const auto kind : {Wires::Kind::Memory, Wires::Kind::Ucx}) {
    Wires wires(3, kind);
    std::vector<AlphaBeta> links(3);
    wires.run({}, [&](Communicator& group, int32_t place) {
      ASSERT_TRUE(group.link().has_value());
      links[static_cast<size_t>(place)] = *group.link();
      EXPECT_TRUE(reduce(group, 50'000, [](CallRequest& it) { it.way = {}; }).ok());
    });
    EXPECT_GT(links[0].alpha.count(), 0);
    EXPECT_GT(links[0].bytes_per_second, 0);
    for (const AlphaBeta& link : links) {
      EXPECT_EQ(link.alpha, links[0].alpha);
      EXPECT_EQ(link.bytes_per_second, links[0].bytes_per_second);
    }
    std::printf("alpha %.1f us, %.0f MB/s\n", 1e3 * to_milliseconds(links[0].alpha),
                1e-6 * links[0].bytes_per_second);
  }
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Many random calls. TENUTO_WHOLE=1 runs 10,000 rounds of one to four calls.
TEST(Communicator, Soak) {
  const bool whole = std::getenv("TENUTO_WHOLE") != nullptr;
  const int rounds = whole ? 10'000 : kSanitized ? 60 : 300;
  const int32_t count = 5;
  Wires wires(count);
  Findings findings;
  CommunicatorSettings settings = drawn_settings(1);
  settings.slice_bytes = 1000;
  // The first part fills caches and pools; after it memory use must not grow.
  wires.run(settings, [&](Communicator& group, int32_t place) {
    play(group, place, wires.members, {7, rounds / 5, 1, 2000, false}, findings);
  });
  const int64_t before = resident_bytes();
  settings.number = 2;
  wires.run(settings, [&](Communicator& group, int32_t place) {
    play(group, place, wires.members, {8, rounds, 1, 2000, false}, findings);
  });
  const int64_t grown = resident_bytes() - before;
  EXPECT_EQ(findings.first(), "");
  std::printf("%d rounds of calls, %lld KiB more than after the first %d\n", rounds,
              static_cast<long long>(grown / 1024), rounds / 5);
  if (!kSanitized) {
    EXPECT_LT(grown, 16 << 20);
  }
}

}  // namespace
}  // namespace tenuto
