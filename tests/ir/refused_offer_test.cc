// Offers that the caller of the update rule refuses: each is dropped by name, and its replica goes
// on at once, in every mode.
#include <gtest/gtest.h>

#include <iterator>
#include <map>

#include "base/text.h"
#include "ir/random_mode.h"
#include "ir/update_rule.h"

namespace tenuto {
namespace {

UpdateRule rule_of(const SyncMode& mode, int32_t replicas, int64_t micros) {
  auto rule = UpdateRule::make({mode, replicas, micros, {}, {}});
  EXPECT_TRUE(rule.ok()) << rule.error().message;
  return std::move(rule).value();
}

// Plays one rule with random offers, refusals, changes of mode and ends of windows.
class Play {
 public:
  explicit Play(uint64_t seed)
      : random_(seed),
        replicas_(static_cast<int32_t>(2 + random_.below(6))),
        micros_(1 + random_.below(5)),
        rule_(rule_of(random_mode(random_, replicas_, micros_), replicas_, micros_)) {
    follow(rule_.begin());
  }

  void step() {
    const int64_t choice = random_.below(20);
    if (choice == 0) {
      const auto changed = rule_.change(random_mode(random_, replicas_, micros_));
      ASSERT_TRUE(changed.ok()) << changed.error().message;
      follow(changed.value());
    } else if (choice == 1 || computing_.empty()) {
      follow(rule_.close(window_));
      ASSERT_FALSE(computing_.empty()) << "everybody waits";
    } else {
      auto one = computing_.begin();
      std::advance(one, random_.below(std::ssize(computing_)));
      const Release work = one->second;
      computing_.erase(one);
      if (random_.below(3) == 0) {
        refuse(work);
      } else {
        const auto decided = rule_.offer(work.offer);
        ASSERT_TRUE(decided.ok()) << decided.error().message;
        follow(decided.value());
      }
    }
    ASSERT_EQ(rule_.offered_mass(),
              rule_.applied_mass() + rule_.dropped_mass() + rule_.waiting_mass());
  }

  Mass refused() const { return refused_; }

 private:
  void refuse(const Release& work) {
    const Version version = rule_.version();
    const Mass dropped = rule_.dropped_mass();
    const auto decided = rule_.refuse(work.offer);
    ASSERT_TRUE(decided.ok()) << decided.error().message;
    const Decided& found = decided.value();
    const std::vector<Dropped> expected = {{work.offer, DropReason::Refused}};
    EXPECT_EQ(found.dropped, expected);
    EXPECT_TRUE(found.updates.empty());
    EXPECT_FALSE(found.window);
    ASSERT_EQ(found.released.size(), 1u);
    const Offer& next = found.released[0].offer;
    EXPECT_EQ(next.replica, work.offer.replica);
    EXPECT_EQ(next.iteration, work.offer.iteration + work.local_steps);
    EXPECT_EQ(next.version, version);
    EXPECT_EQ(rule_.version(), version);
    EXPECT_EQ(rule_.dropped_mass(), dropped + work.offer.mass);
    refused_ += work.offer.mass;
    follow(found);
  }

  void follow(const Decided& decided) {
    for (const Release& of : decided.released) computing_[of.offer.replica.value] = of;
    if (decided.window) window_ = decided.window->number;
  }

  Random random_;
  int32_t replicas_;
  int64_t micros_;
  UpdateRule rule_;
  std::map<int32_t, Release> computing_;
  int64_t window_ = -1;
  Mass refused_;
};

TEST(RefusedOffer, IsDroppedByNameAndItsReplicaGoesOn) {
  Mass refused;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Play play(seed);
    for (int i = 0; i < 200; ++i) {
      play.step();
      if (testing::Test::HasFailure()) return;
    }
    refused += play.refused();
  }
  EXPECT_GT(refused, Mass{1000});
}

// With a bound of 0, replica 0 waits for an offer of replica 1 that counts.
TEST(RefusedOffer, DoesNotCountForTheBound) {
  UpdateRule rule = rule_of(sync_mode_from_text("bounded:0").value(), 2, 1);
  const Decided begun = rule.begin();
  ASSERT_EQ(begun.released.size(), 2u);
  const auto first = rule.offer(begun.released[0].offer);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.value().updates.size(), 1u);
  EXPECT_TRUE(first.value().released.empty());
  Offer offer = begun.released[1].offer;
  for (int i = 0; i < 3; ++i) {
    const auto refused = rule.refuse(offer);
    ASSERT_TRUE(refused.ok());
    ASSERT_EQ(refused.value().released.size(), 1u);
    EXPECT_EQ(refused.value().released[0].offer.replica, ReplicaId{1});
    offer = refused.value().released[0].offer;
  }
  const auto counted = rule.offer(offer);
  ASSERT_TRUE(counted.ok());
  EXPECT_EQ(counted.value().released.size(), 2u);
}

// Nobody can have an offer refused that it may not make.
TEST(RefusedOffer, WrongOffersChangeNothing) {
  UpdateRule rule = rule_of(SyncMode{}, 2, 4);
  const Decided begun = rule.begin();
  ASSERT_TRUE(rule.offer(begun.released[0].offer).ok());
  const UpdateRule before = rule;
  const auto again = rule.refuse(begun.released[0].offer);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message,
            "replica 0 has offered iteration 0 before: an offer counts once");
  Offer heavy = begun.released[1].offer;
  heavy.mass.micros = 5;
  EXPECT_FALSE(rule.refuse(heavy).ok());
  heavy.replica = {2};
  EXPECT_FALSE(rule.refuse(heavy).ok());
  EXPECT_EQ(rule, before);
}

}  // namespace
}  // namespace tenuto
