// Which algorithm a group uses for a call: all members choose the same one, by the arrival times of
// earlier calls or by the answer of a ready service.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>

#include "communicator/communicator.h"
#include "played_calls.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Each member has its own clock and arrives at each call after a delay drawn from the seed. All
// hear exactly these delays, choose the same algorithms and write the same notes. Member 2 is late
// in the first calls, other members later.
TEST(Communicator, AutoChoosesTheSameAtAllMembers) {
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

TEST(Communicator, AReadyServiceNamesTheLateMember) {
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
    const CallScript script{seed, kSanitized ? 6 : 30, 1, 1500, false};
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

TEST(Communicator, DifferentAutoSettingsAreRefused) {
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

TEST(Communicator, AllMembersUseTheSameMeasuredLink) {
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

}  // namespace
}  // namespace tenuto
