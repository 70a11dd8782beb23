// Communicators: for all calls and any order of messages and members, all members end with the
// same, correct bits; whatever goes wrong, calls end with an error.
#include "communicator/communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <latch>

#include "played_calls.h"
#include "sanitized.h"

namespace tenuto {
namespace {

TEST(Communicator, DrawnCallsAreRightAndRepeatBitForBit) {
  const int most = kSanitized ? 8 : 16;
  for (int32_t count = 1; count <= most; ++count) {
    const uint64_t seed = 100 + static_cast<uint64_t>(count);
    Wires wires(count, Wires::Kind::Memory, 3);
    Findings findings;
    const CallScript script{seed, kSanitized ? 6 : 15, 2, 1500, true};
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
TEST(Communicator, SignedZerosAndNansAreTheSameAtAllMembers) {
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
    const CallScript script{seed, kSanitized ? 4 : 10, 2, 40'000, true};
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

TEST(Communicator, ASilentMemberIsNamed) {
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

TEST(Communicator, InvalidCallsAreRefused) {
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
TEST(Communicator, UsesTheRingIfAnAlgorithmDoesNotFit) {
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

TEST(Communicator, PendingCallsAreLimited) {
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
TEST(Communicator, EvictedCacheEntriesAreMadeAgain) {
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
TEST(Communicator, OnlyTheNewestNotesAreKept) {
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
