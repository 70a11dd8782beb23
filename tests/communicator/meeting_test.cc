// Joining: members find each other, and a member that does not fit in is told why.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/text.h"
#include "communicator/join.h"
#include "held_port.h"

namespace tenuto {
namespace {

// An address at which nobody listens. It is held until the program ends, because members may listen
// there after the test's own lines.
std::string free_address() {
  static std::vector<std::unique_ptr<HeldPort>> held;
  held.push_back(std::make_unique<HeldPort>());
  return held.back()->address();
}

JoinSettings place_of(const std::string& meeting, int32_t place, int32_t count) {
  JoinSettings settings;
  settings.token = "secret";
  settings.place = place;
  settings.count = count;
  settings.meeting = meeting;
  settings.limit = std::chrono::seconds(60);
  return settings;
}

// Leaving waits until all sent messages have left, which is soon. A wait for something that never
// comes lasts until this limit.
constexpr Duration kLeaveLimit = std::chrono::seconds(120);

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Joins with one thread in place of each process; returns what each was told. The last one joins
// after `refused_first` of the others have been refused.
std::vector<std::string> join_all(const std::vector<JoinSettings>& all, size_t refused_first = 0) {
  std::vector<std::string> said(all.size());
  std::atomic<size_t> at_the_call = 0, refused = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      const Duration limit = monotonic_clock().now() + all[i].limit;
      while (i + 1 == all.size() && refused < refused_first && monotonic_clock().now() < limit) {
        std::this_thread::yield();
      }
      auto joined = join(all[i]);
      said[i] = joined.ok() ? "joined" : joined.error().message;
      refused += !joined.ok();
      if (!joined.ok()) return;
      CommunicatorSettings settings = joined.value()->settings();
      if (all[i].ready_service) {
        settings.link = AlphaBeta{std::chrono::microseconds(1), 1e7};
        settings.rules.least_chunk = {1 << 10};
      } else {
        settings.way = {"ring"};
      }
      {
        auto group = Communicator::make(joined.value()->communicator(), settings);
        ASSERT_TRUE(group.ok()) << group.error().message;
        std::vector<int64_t> numbers(1000, all[i].place + 1);
        const bool late = all[i].ready_service && all[i].place == 0;
        // Late means that the others have been waiting in their calls for a while. On a busy
        // machine threads may reach their calls at any time, so member 0 first counts those that
        // have.
        const Duration end = monotonic_clock().now() + kLeaveLimit;
        while (late && at_the_call < all.size() - 1 && monotonic_clock().now() < end) {
          std::this_thread::yield();
        }
        if (late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (!late) ++at_the_call;
        CallRequest request;
        request.element = Element::Int64;
        request.total = std::as_writable_bytes(std::span(numbers));
        request.own = request.total;
        const Status status = group.value()->run(request);
        ASSERT_TRUE(status.ok()) << status.error().message;
        const int64_t count = all[i].count;
        EXPECT_EQ(numbers, std::vector<int64_t>(1000, count * (count + 1) / 2));
        if (all[i].ready_service && count >= 3) {
          const std::vector<std::string> notes = group.value()->take_notes();
          ASSERT_EQ(notes.size(), 1U);
          EXPECT_TRUE(has(notes[0], "late-one, for worker 0 had not come")) << notes[0];
        }
      }
      const Status left = joined.value()->leave(kLeaveLimit);
      EXPECT_TRUE(left.ok()) << left.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(Join, MembersMeetAndSum) {
  for (const int32_t count : {1, 2, 5}) {
    const std::string meeting = free_address();
    std::vector<JoinSettings> all;
    for (int32_t place = 0; place < count; ++place) {
      all.push_back(place_of(meeting, place, count));
    }
    EXPECT_EQ(join_all(all), std::vector<std::string>(static_cast<size_t>(count), "joined"));
  }
}

// Member 0 is late, and the ready service in its process reports it; then all leave at once.
TEST(Join, WithAReadyService) {
  for (const int32_t count : {1, 2, 5}) {
    const std::string meeting = free_address();
    std::vector<JoinSettings> all;
    for (int32_t place = 0; place < count; ++place) {
      all.push_back(place_of(meeting, place, count));
      all.back().ready_service = true;
    }
    const Duration begin = monotonic_clock().now();
    EXPECT_EQ(join_all(all), std::vector<std::string>(static_cast<size_t>(count), "joined"));
    EXPECT_LT(monotonic_clock().now() - begin, kLeaveLimit) << "somebody was waited for";
  }
}

// A member that is refused does not keep its place: the right one comes later and joins.
TEST(Join, AMemberWithAnotherReadyServiceSettingIsRefused) {
  const std::string meeting = free_address();
  std::vector<JoinSettings> all{place_of(meeting, 0, 2), place_of(meeting, 1, 2),
                                place_of(meeting, 1, 2)};
  all[1].ready_service = true;
  const auto said = join_all(all, 1);
  EXPECT_TRUE(has(said[1], "belongs to job 'group of 2 members with a ready service'")) << said[1];
  EXPECT_EQ(said[0], "joined");
  EXPECT_EQ(said[2], "joined");
}

TEST(Join, AnotherTokenOrCountIsRefused) {
  for (const bool token : {true, false}) {
    const std::string meeting = free_address();
    std::vector<JoinSettings> all{place_of(meeting, 0, 2), place_of(meeting, 1, 2),
                                  place_of(meeting, 1, 2)};
    if (token) all[1].token = "other";
    if (!token) all[1].count = 3;
    const auto said = join_all(all, 1);
    EXPECT_TRUE(has(said[1], token ? "has a wrong token" : "belongs to job 'group of 3 members'"))
        << said[1];
    EXPECT_FALSE(has(said[1], "secret"));
    EXPECT_EQ(said[0], "joined");
    EXPECT_EQ(said[2], "joined");
  }
}

TEST(Join, AnAddressThatIsTooLongIsRefused) {
  const std::string meeting = free_address();
  std::vector<JoinSettings> all{place_of(meeting, 0, 2), place_of(meeting, 1, 2),
                                place_of(meeting, 1, 2)};
  all[1].wire.advertised_host = std::string(280, 'h');
  const auto said = join_all(all, 1);
  EXPECT_TRUE(has(said[1], "the address 'hhhh")) << said[1];
  EXPECT_TRUE(has(said[1], "expected at most 259")) << said[1];
  EXPECT_LT(said[1].size(), 300U);
  EXPECT_EQ(said[0], "joined");
  EXPECT_EQ(said[2], "joined");
}

TEST(Join, APlaceIsTakenOnce) {
  const std::string meeting = free_address();
  // The third member comes last, so that both claimants of place 1 find the meeting open.
  const auto said = join_all({place_of(meeting, 0, 3), place_of(meeting, 1, 3),
                              place_of(meeting, 1, 3), place_of(meeting, 2, 3)},
                             1);
  EXPECT_EQ(said[0], "joined");
  EXPECT_EQ(said[3], "joined");
  const std::string& refused = said[1] == "joined" ? said[2] : said[1];
  EXPECT_NE(said[1] == "joined", said[2] == "joined") << said[1] << " | " << said[2];
  EXPECT_TRUE(has(refused, "already connected")) << refused;
  EXPECT_TRUE(has(refused, "one process at each place")) << refused;
}

TEST(Join, MissingMembersAreNamed) {
  JoinSettings alone = place_of(free_address(), 0, 3);
  alone.limit = std::chrono::milliseconds(300);
  const auto joined = join(alone);
  ASSERT_FALSE(joined.ok());
  EXPECT_TRUE(has(joined.error().message, "members 1, 2 of 3 have not sent its address"))
      << joined.error().message;
}

TEST(Join, InvalidSettingsAreRefused) {
  const auto said = [](const JoinSettings& settings) {
    const auto joined = join(settings);
    return joined.ok() ? std::string("joined") : joined.error().message;
  };
  EXPECT_TRUE(has(said(place_of("127.0.0.1:9", 3, 3)), "places from 0 to one less"));
  EXPECT_TRUE(has(said(place_of("127.0.0.1", 0, 2)), "expected host:port"));
  EXPECT_TRUE(has(said(place_of("127.0.0.1:x", 0, 2)), "expected host:port"));
  JoinSettings absent = place_of(free_address(), 1, 2);
  absent.limit = std::chrono::milliseconds(300);
  const std::string alone = said(absent);
  EXPECT_TRUE(has(alone, "could not reach worker 0 at 127.0.0.1:") ||
              has(alone, "member 0 of 2 has not answered"))
      << alone;
}

}  // namespace
}  // namespace tenuto
