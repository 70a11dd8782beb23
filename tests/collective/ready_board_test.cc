// The board that says which member is late: in drawn arrivals every arrival gets one answer, all
// members get the same answer about a call, and the board waits for the last member no longer than
// break-even.
#include "collective/ready_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

using std::chrono::microseconds;
using Kind = ReadyAnswer::Kind;

// ring 100 us; early sum 60, exchange 70: break-even at 60 + 70 - 100 = 30.
const CallCosts kCosts{false, 8, 100'000, 60'000, 70'000};

MemberSet all_of(int32_t members) {
  MemberSet set(members);
  for (int32_t place = 0; place < members; ++place) set.add(place);
  return set;
}

std::string text_of(const std::vector<ReadyAnswer>& answers) {
  std::string text;
  for (const ReadyAnswer& each : answers) {
    const char* const kind = each.kind == Kind::All    ? "all"
                             : each.kind == Kind::Late ? "late "
                                                       : "void";
    text += cat(text.empty() ? "" : ", ", each.place, "@", each.generation, ".", each.call, ": ",
                kind, each.kind == Kind::Late ? cat(each.late) : std::string());
  }
  return text;
}

class Board {
 public:
  explicit Board(int32_t members) : members_(members), board_(members) {}
  // The answers when a member arrives at this time.
  std::string at(int64_t us, int32_t place, int64_t call, int64_t generation = 0) {
    MemberSet those = members_set_ ? *members_set_ : all_of(members_);
    board_.arrive(place, {generation, call, kCosts, those}, microseconds(us));
    return text_of(board_.take(microseconds(us)));
  }
  std::string at(int64_t us) { return text_of(board_.take(microseconds(us))); }
  std::optional<Duration> due() const { return board_.due(); }
  // From now on the group has these members.
  void shrink(std::initializer_list<int32_t> places) {
    members_set_.emplace(members_);
    for (const int32_t place : places) members_set_->add(place);
  }

 private:
  int32_t members_;
  ReadyBoard board_;
  std::optional<MemberSet> members_set_;
};

TEST(ReadyBoard, AllAreThere) {
  Board board(3);
  EXPECT_EQ(board.at(0, 2, 0), "");
  EXPECT_EQ(board.due(), std::nullopt);
  EXPECT_EQ(board.at(5, 0, 0), "");
  EXPECT_EQ(board.due(), microseconds(35));
  EXPECT_EQ(board.at(30, 1, 0), "0@0.0: all, 1@0.0: all, 2@0.0: all");
  EXPECT_EQ(board.due(), std::nullopt);
}

TEST(ReadyBoard, OneIsLate) {
  Board board(3);
  board.at(0, 2, 4);
  board.at(5, 0, 4);
  EXPECT_EQ(board.at(34), "");
  EXPECT_EQ(board.at(35), "0@0.4: late 1, 2@0.4: late 1");
  EXPECT_EQ(board.at(36), "");
  EXPECT_EQ(board.at(90, 1, 4), "1@0.4: late 1");
}

TEST(ReadyBoard, TwoAreWaitedFor) {
  Board board(4);
  board.at(0, 2, 0);
  board.at(5, 0, 0);
  EXPECT_EQ(board.due(), std::nullopt);
  EXPECT_EQ(board.at(1000), "");
  board.at(1000, 3, 0);
  EXPECT_EQ(board.due(), microseconds(1030));
}

// Calls in flight at the same time: a member that is late in one must make it before the next, so
// it is late in both.
TEST(ReadyBoard, LateInOneIsLateInTheNext) {
  Board board(3);
  board.at(0, 0, 0);
  board.at(1, 0, 1);
  board.at(2, 2, 0);
  EXPECT_EQ(board.at(32), "0@0.0: late 1, 2@0.0: late 1");
  EXPECT_EQ(board.at(33, 2, 1), "0@0.1: late 1, 2@0.1: late 1");
  EXPECT_EQ(board.at(40, 0, 2), "");
  EXPECT_EQ(board.at(50, 1, 0), "1@0.0: late 1");
  EXPECT_EQ(board.at(51, 1, 1), "1@0.1: late 1");
  EXPECT_EQ(board.at(52, 1, 2), "");
  EXPECT_EQ(board.at(60, 2, 2), "0@0.2: all, 1@0.2: all, 2@0.2: all");
}

TEST(ReadyBoard, ArrivalsOfAnotherMembershipAreVoid) {
  Board board(4);
  board.at(0, 0, 7);
  board.at(1, 1, 7);
  board.shrink({0, 1, 2});
  EXPECT_EQ(board.at(2, 2, 7, 3), "0@0.7: void, 1@0.7: void");
  EXPECT_EQ(board.at(3, 1, 8, 0), "1@0.8: void") << "of a generation that is over";
  EXPECT_EQ(board.at(4, 3, 7, 3), "3@3.7: void") << "no member of this generation";
  EXPECT_EQ(board.at(5, 0, 7, 3), "");
  EXPECT_EQ(board.at(6, 1, 7, 3), "0@3.7: all, 1@3.7: all, 2@3.7: all");
}

// The patience is the best one for the gaps seen so far, plus a quarter, and at most break-even.
TEST(ReadyBoard, PatienceFollowsTheObservedGaps) {
  const auto gaps = [](std::initializer_list<int> us) {
    std::vector<Duration> made;
    for (const int each : us) made.emplace_back(microseconds(each));
    return made;
  };
  EXPECT_EQ(best_patience({}, kCosts), microseconds(30));
  EXPECT_EQ(best_patience(gaps({500, 500}), kCosts), microseconds(30)) << "too few";
  EXPECT_EQ(best_patience(gaps({500, 500, 500}), kCosts), microseconds(0));
  EXPECT_EQ(best_patience(gaps({1, 2, 1, 2}), kCosts), Duration(2500));
  EXPECT_EQ(best_patience(gaps({1, 2, 500, 2}), kCosts), Duration(2500));
  EXPECT_EQ(best_patience(gaps({29, 29, 29}), kCosts), microseconds(30)) << "break-even";
}

Duration time_of(Duration gap, Duration patience) {
  if (gap <= patience) return gap + microseconds(100);
  return std::max(patience + microseconds(60), gap) + microseconds(70);
}

TEST(ReadyBoard, PatienceIsNearTheBestInHindsight) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Duration> gaps(static_cast<size_t>(3 + random.below(10)));
    const int64_t wide = 1 + random.below(100);
    for (Duration& gap : gaps) gap = microseconds(random.below(wide));
    const auto sum = [&](Duration patience) {
      Duration all{};
      for (const Duration gap : gaps) all += time_of(gap, patience);
      return all;
    };
    const Duration taken = best_patience(gaps, kCosts);
    ASSERT_GE(taken, Duration::zero());
    ASSERT_LE(taken, microseconds(30));
    Duration least = Duration::max(), best{};
    for (const Duration gap : gaps) {
      best = std::max(best, std::min(gap, microseconds(30) + Duration::zero()));
    }
    for (Duration patience{}; patience <= microseconds(30); patience += Duration(250)) {
      least = std::min(least, sum(patience));
    }
    // The patience is up to a quarter longer than the best one: each call may cost that much more.
    ASSERT_LE(sum(taken), least + best / 4 * static_cast<int64_t>(gaps.size())) << round;
  }
}

// A drawn group: members arrive at several calls in flight, and some die. Every answer must be
// right.
class DrawnGroup {
 public:
  explicit DrawnGroup(uint64_t seed)
      : random_(seed),
        members_(static_cast<int32_t>(3 + random_.below(6))),
        board_(members_),
        next_(static_cast<size_t>(members_), 0),
        alive_(all_of(members_)),
        counts_{members_} {}

  void run() {
    while (!testing::Test::HasFatalFailure()) {
      if (random_.below(40) == 0 && alive_.count() > 3) lose_one();
      std::vector<int32_t> able;
      for (int32_t place = 0; place < members_; ++place) {
        if (alive_.has(place) && next_[static_cast<size_t>(place)] < kCalls) able.push_back(place);
      }
      if (able.empty()) break;
      arrive(able[static_cast<size_t>(random_.below(std::ssize(able)))]);
    }
    now_ += microseconds(1000);
    take();
    // A death gives the group a new generation. The first arrival in that generation answers all
    // earlier ones.
    for (const auto& [key, count] : owed_) {
      const auto [place, generation, call] = key;
      ASSERT_EQ(count, 1) << "place " << place << ", generation " << generation << ", call "
                          << call;
    }
    for (const auto& [key, call] : said_) ASSERT_LE(call.kinds.size(), 1U);
    EXPECT_EQ(board_.due(), std::nullopt);
  }

 private:
  static constexpr int64_t kCalls = 12;
  struct Said {
    std::set<std::pair<Kind, int32_t>> kinds;
    std::map<int32_t, Duration> came;
  };

  // One member dies. All go back to the first call that some had not come to, or to the last call.
  void lose_one() {
    std::vector<int32_t> places;
    for (int32_t place = 0; place < members_; ++place) {
      if (alive_.has(place)) places.push_back(place);
    }
    alive_.remove(places[static_cast<size_t>(random_.below(std::ssize(places)))]);
    ++generation_;
    counts_.push_back(alive_.count());
    const int64_t least = *std::min_element(next_.begin(), next_.end());
    std::fill(next_.begin(), next_.end(), std::min(least, kCalls - 1));
  }

  void arrive(int32_t place) {
    const Duration step = microseconds(random_.below(20));
    // Like the service, look at each time that the board says is due, also between two arrivals.
    while (board_.due() && *board_.due() <= now_ + step) {
      now_ = std::max(now_, *board_.due());
      take();
    }
    now_ += step;
    const int64_t call = next_[static_cast<size_t>(place)]++;
    owed_[{place, generation_, call}] = 0;
    said_[{generation_, call}].came[place] = now_;
    board_.arrive(place, {generation_, call, kCosts, alive_}, now_);
    take();
  }

  void take() {
    for (const ReadyAnswer& each : board_.take(now_)) {
      const auto key = std::tuple(each.place, each.generation, each.call);
      ASSERT_EQ(owed_.count(key), 1U);
      ASSERT_EQ(++owed_[key], 1) << "answered twice";
      Said& call = said_[{each.generation, each.call}];
      if (each.kind == Kind::Void) {
        ASSERT_LT(each.generation, generation_);
        continue;
      }
      call.kinds.insert({each.kind, each.late});
      const auto came = static_cast<int32_t>(call.came.size());
      const int32_t all = counts_[static_cast<size_t>(each.generation)];
      if (each.kind == Kind::All) {
        ASSERT_EQ(came, all);
      } else if (each.place != each.late) {
        ASSERT_EQ(came + (call.came.count(each.late) != 0 ? 0 : 1), all);
        ASSERT_LE(each.patience, microseconds(30));
      }
    }
  }

  Random random_;
  int32_t members_;
  ReadyBoard board_;
  std::vector<int64_t> next_;  // the call that a member comes to next
  MemberSet alive_;
  std::vector<int32_t> counts_;  // of live members, by generation
  int64_t generation_ = 0;
  Duration now_{};
  std::map<std::tuple<int32_t, int64_t, int64_t>, int>
      owed_;                                          // answers, by place, generation, call
  std::map<std::pair<int64_t, int64_t>, Said> said_;  // by generation and call
};

TEST(ReadyBoard, DrawnArrivals) {
  const int rounds = kSanitized ? 200 : 2000;
  for (int round = 0; round < rounds; ++round) {
    DrawnGroup(mix(17, static_cast<uint64_t>(round))).run();
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace tenuto
