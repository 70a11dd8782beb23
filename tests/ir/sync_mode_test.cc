// Sync modes as values: their text, and what is refused.
#include "ir/sync_mode.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "ir/random_mode.h"
#include "ir/update_rule.h"

namespace tenuto {
namespace {

TEST(SyncMode, TextIsReadBack) {
  for (const char* text :
       {"synchronous", "asynchronous", "x:4", "grace:4", "grace:4:12.5ms", "grace:4:1000000.5ms",
        "grace:4:100000ms", "groups", "groups:0,2/1,3", "ring:3", "ring:2:0,1,0,1", "backup:7",
        "rebalanced", "rebalanced:8,8,4,12", "bounded:3", "x:2+bounded:0", "synchronous+local:8",
        "grace:2:0.000001ms+bounded:5+local:16+outer:0.7,0.9"}) {
    const auto mode = sync_mode_from_text(text);
    ASSERT_TRUE(mode.ok()) << mode.error().message;
    EXPECT_EQ(to_text(mode.value()), text);
  }
  // Another way to write the same.
  EXPECT_EQ(to_text(sync_mode_from_text("asynchronous+bounded:3").value()), "bounded:3");
  EXPECT_EQ(to_text(sync_mode_from_text("groups:3,1/2,0").value()), "groups:0,2/1,3");
}

TEST(SyncMode, RandomModesAreReadBackAndAccepted) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    const auto replicas = static_cast<int32_t>(2 + random.below(20));
    const SyncMode mode = random_mode(random, replicas, 1 + random.below(9));
    const Status accepted = check(mode, replicas);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    EXPECT_TRUE(is_formed(mode));
    const auto read = sync_mode_from_text(to_text(mode));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value(), mode) << to_text(mode);
  }
}

// Random changes of the text of modes are refused with a sentence, or read as what they say.
TEST(SyncMode, DamagedTextIsRefusedOrReadAsWritten) {
  Random random(2);
  int refused = 0;
  constexpr std::string_view kLetters = "0123456789:,/+.-msxgraceouterlocal ";
  for (int round = 0; round < 20000; ++round) {
    const auto replicas = static_cast<int32_t>(2 + random.below(5));
    std::string text = to_text(random_mode(random, replicas, 4));
    for (int64_t change = random.below(3); change >= 0; --change) {
      const auto place = static_cast<size_t>(random.below(std::ssize(text) + 1));
      if (random.below(2) == 0 && place < text.size())
        text.erase(place, 1);
      else
        text.insert(place, 1, kLetters[static_cast<size_t>(random.below(kLetters.size()))]);
    }
    const auto read = sync_mode_from_text(text);
    if (!read.ok()) {
      ++refused;
      EXPECT_EQ(read.error().code, Code::Invalid);
      EXPECT_NE(read.error().message.find("expected"), std::string::npos) << text;
      continue;
    }
    const auto again = sync_mode_from_text(to_text(read.value()));
    ASSERT_TRUE(again.ok()) << text << ": " << again.error().message;
    EXPECT_EQ(again.value(), read.value()) << text;
    (void)check(read.value(), replicas).ok();  // any verdict, but no crash
  }
  EXPECT_GT(refused, 5000);
}

std::string refusal(const std::string& text, int32_t replicas) {
  const auto mode = sync_mode_from_text(text);
  if (!mode.ok()) return mode.error().message;
  const Status accepted = check(mode.value(), replicas);
  return accepted.ok() ? "" : accepted.error().message;
}

TEST(SyncMode, RefusalsAreOneSentence) {
  const std::string names =
      "expected synchronous, asynchronous, x:K, grace:K, groups, ring:K, backup:K, rebalanced or "
      "bounded:S";
  EXPECT_EQ(refusal("synchronus", 4), "sync mode 'synchronus': " + names +
                                          " (did you mean 'synchronous'?), found 'synchronus'");
  EXPECT_EQ(refusal("", 4), "sync mode '': " + names + ", found ''");
  EXPECT_EQ(refusal("x", 4), "sync mode 'x': expected a number of replicas behind 'x:', found ''");
  EXPECT_EQ(refusal("x:9", 8),
            "sync mode x:9: expected a count from 1 to 8 with 8 replicas, found 9");
  EXPECT_EQ(refusal("backup:8", 8),
            "sync mode backup:8: expected a count from 1 to 7 with 8 replicas, found 8");
  EXPECT_EQ(refusal("asynchronous", 1),
            "sync mode asynchronous: one replica has no other one to wait for: use synchronous");
  EXPECT_EQ(refusal("groups:0,1/1,2", 3),
            "sync mode 'groups:0,1/1,2': expected each replica in one group, found '1 twice'");
  EXPECT_EQ(refusal("groups:0,1/3", 4),
            "sync mode 'groups:0,1/3': expected each of the 3 replicas once, found '3'");
  EXPECT_EQ(refusal("groups:0,1/2", 4),
            "sync mode groups:0,1/2: its groups have 3 replicas, but there are 4: name each "
            "replica in one group");
  EXPECT_EQ(refusal("ring:1:0,2,0", 3),
            "sync mode ring:1:0,2,0: the parent of replica 1 is 2, which is not a member of the "
            "ring (its own parent)");
  EXPECT_EQ(refusal("ring:1:0,1,0", 3),
            "sync mode ring:1:0,1,0: expected 1 members of the ring, found 2");
  EXPECT_EQ(refusal("rebalanced:1,2,0", 3),
            "sync mode 'rebalanced:1,2,0': expected a number of micro-batches, at least 1, found "
            "'0'");
  EXPECT_EQ(refusal("rebalanced:1,2", 3),
            "sync mode rebalanced:1,2: it has shares of 2 replicas, but there are 3: give one "
            "share per replica");
  EXPECT_EQ(refusal("grace:2:5", 3),
            "sync mode 'grace:2:5': expected a window in milliseconds, such as 12.5ms, found '5'");
  EXPECT_EQ(refusal("synchronous+outer:1,0.9", 3),
            "sync mode synchronous+outer:1,0.9: an outer step needs local steps: add +local:H with "
            "H of at least 2");
  EXPECT_EQ(refusal("synchronous+local:4+outer:1,1", 3),
            "sync mode synchronous+local:4+outer:1,1: expected an outer rate above 0 and up to "
            "1000, and an outer momentum of at least 0 and below 1");
  EXPECT_EQ(refusal("x:2+local:4+bounded:1", 3),
            "sync mode 'x:2+local:4+bounded:1': expected bounded, local and outer once each and in "
            "this order, found 'bounded:1'");
  EXPECT_EQ(refusal("bounded:1+bounded:2", 3),
            "sync mode 'bounded:1+bounded:2': expected bounded, local and outer once each and in "
            "this order, found 'bounded:2'");
  EXPECT_EQ(refusal("bounded", 3),
            "sync mode 'bounded': expected a bound, as in bounded:3, found 'bounded'");
  SyncMode mode = sync_mode_from_text("groups:0/1/2").value();
  mode.groups = {0, 2, 1};
  EXPECT_EQ(check(mode, 3).error().message,
            "sync mode groups: expected groups numbered from 0 by their lowest replica, found "
            "group 2 where 1 is the next new one");
}

TEST(SyncMode, AModeOfARunFitsItsReplicas) {
  const auto said = [](const std::string& text, int32_t replicas, int64_t micros) {
    const Status fits = check_mode_of_run(sync_mode_from_text(text).value(), replicas, micros);
    return fits.ok() ? std::string() : fits.error().message;
  };
  // What a mode leaves open is formed later.
  for (const char* text : {"synchronous", "x:4", "grace:2", "groups", "groups:0,1/2,3", "ring:2",
                           "rebalanced", "rebalanced:8,8,7,9", "bounded:3"}) {
    EXPECT_EQ(said(text, 4, 8), "") << text;
  }
  EXPECT_EQ(said("synchronous", 1, 1), "");
  EXPECT_EQ(said("x:5", 4, 8),
            "sync mode x:5: expected a count from 1 to 4 with 4 replicas, found 5");
  EXPECT_EQ(said("rebalanced:8,8,8,9", 4, 8),
            "sync mode rebalanced: expected shares that add up to 32 micro-batches, those of 4 "
            "replicas, found 33");
  EXPECT_EQ(said("synchronous", 4, 0), "expected 1 to 1000000 micro-batches per replica, found 0");
}

// Every field in every kind that has no use for it.
TEST(SyncMode, UnusedFieldsAreRefused) {
  const std::vector<std::pair<std::string, SyncKind>> fields = {{"window", SyncKind::Grace},
                                                                {"groups", SyncKind::Groups},
                                                                {"parents", SyncKind::Ring},
                                                                {"shares", SyncKind::Rebalanced}};
  for (const char* text : {"synchronous", "asynchronous", "x:2", "grace:2", "groups", "ring:2",
                           "backup:1", "rebalanced"}) {
    const SyncMode plain = sync_mode_from_text(text).value();
    ASSERT_TRUE(check(plain, 2).ok()) << text;
    for (const auto& [field, user] : fields) {
      if (plain.kind == user) continue;
      SyncMode mode = plain;
      if (field == "window") mode.window = Duration(1);
      if (field == "groups") mode.groups = {0, 0};
      if (field == "parents") mode.parents = {{0}, {1}};
      if (field == "shares") mode.shares = {1, 1};
      const Status status = check(mode, 2);
      ASSERT_FALSE(status.ok()) << text << " with " << field;
      EXPECT_NE(status.error().message.find(cat("expected no ", field)), std::string::npos)
          << status.error().message;
    }
    if (plain.count != 0) continue;
    SyncMode mode = plain;
    mode.count = 1;
    ASSERT_FALSE(check(mode, 2).ok()) << text;
  }
  SyncMode mode;
  mode.count = 3;
  EXPECT_EQ(check(mode, 4).error().message,
            "sync mode synchronous: expected no count, which this mode does not use, found some: "
            "leave it out");
}

TEST(SyncMode, TheRingIsThoseThatAreTheirOwnParents) {
  const auto ring = [](const char* text) { return ring_of(sync_mode_from_text(text).value()); };
  EXPECT_EQ(ring("ring:2:0,1,0,1"), (std::vector<ReplicaId>{{0}, {1}}));
  EXPECT_EQ(ring("ring:2:2,3,2,3"), (std::vector<ReplicaId>{{2}, {3}}));
  EXPECT_TRUE(ring("ring:2").empty()) << "it is not formed";
  EXPECT_TRUE(ring("synchronous").empty());
}

}  // namespace
}  // namespace tenuto
