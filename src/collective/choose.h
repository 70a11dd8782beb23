// Chooses the all-reduce algorithm of the next call by the members' arrival times at earlier calls.
//
// Every member has its own chooser. Calls also tell all members how long each of them had been away
// since the call before, so all choosers get the same numbers. They use integer arithmetic only, so
// all choose the same; equal fingerprints confirm it.
//
// Idea:   of each call the chooser records which member came last, and how long after all others.
//         From this the closed forms (cost.h) give what late-one would have saved or lost in the
//         call with each choice of the late member. Two guesses name a late member: the one that
//         was best in the most recent calls, and the one that was best in all remembered calls.
//         Each guess is scored by what it would have saved, also in the calls in which it was not
//         followed. The chooser follows the guess with the higher score, if that is positive. So if
//         another member becomes the late one, that costs a few wrong guesses.
// Source: closed forms: docs/decisions/038. Herbster, Warmuth, "Tracking the best expert", 1998,
//         for following the forecaster with the best record; the rule here is simpler, and in
//         integers.
// Not taken: a mean and a deviation of each member's lateness. They do not determine the saving:
//         a member that is 12 ms late in every other call saves nothing if break-even is at 13.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/unit.h"
#include "collective/cost.h"

namespace tenuto {

// What a call uses, and why.
struct Choice {
  std::string algorithm;
  int32_t chunks = 0;  // 0 = as the algorithm has them
  int32_t late = -1;   // place of the late member of late-one; -1 = none
  std::string reason;  // one sentence with the figures that decided
};

// The constants of a chooser. The same on all members.
struct ChooserRules {
  int32_t kept = 16;        // calls that are remembered, 32 at most
  int32_t least_calls = 3;  // calls to see before late-one is chosen
  int32_t least_hits = 3;   // remembered calls in which it must have paid
  // A change of choice must save at least this part of a call's time.
  int32_t margin_thousandths = CostRules{}.margin_thousandths;
  Bytes least_chunk = CostRules{}.least_chunk;
};

// One member's view; equal to all others' after equal calls.
class AlgorithmChooser {
 public:
  // A chooser that has seen no call. `link` is what most links are like.
  //
  // Requires: members >= 1; rules as their comments say
  AlgorithmChooser(int32_t members, AlphaBeta link, ChooserRules rules = {});

  // What a call of that size is to use. It changes nothing.
  //
  // Cost: below 20 microseconds, whatever the count of members (bench/all_reduce_bench.cc)
  Choice choose(int64_t bytes) const;

  // Records a call: how long each member was away, from its completion of the call before to its
  // arrival at this one. All members must pass the same numbers, in the same order of calls.
  //
  // Shapes:   waited_us by place in members
  // Requires: a number for each member
  void note(std::span<const uint32_t> waited_us, int64_t bytes);

  // A hash of all recorded calls and of their scores: equal on members that choose alike.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  // The member that came last in a call, and how long after the others.
  struct Seen {
    int32_t last = -1;
    int64_t gap_ns = 0;
  };
  // The best late member, its mean saving per call, and the calls that support it.
  struct Guess {
    int32_t member = -1;
    int64_t saving = 0;  // ns a call
    int32_t hits = 0;    // calls in which late-one would have paid
    int64_t gap_ns = 0;  // their mean gap
    bool worth = false;
  };
  // Which calls a guess rests on: mainly the most recent ones, or all remembered ones alike.
  enum Sight { kNear, kFar, kSights };
  // The record of both guesses for calls of about the same size.
  struct Record {
    std::array<int32_t, kSights> followed = {-1, -1};  // member that it named last; -1 = none
    std::array<int32_t, kSights> won = {};  // mean saving if followed, in 2^-20 of a call
    std::array<bool, kSights> trusted = {true, true};  // the chooser may follow it
  };

  CallCosts costs_of(int64_t bytes) const;
  static int64_t saving(const CallCosts& costs, int32_t member, const Seen& seen);
  Guess judge(const CallCosts& costs, int32_t member, Sight sight) const;
  Guess guess(const CallCosts& costs, const Record& record, Sight sight) const;
  std::string why_nobody(const CallCosts& costs, const std::array<Guess, kSights>& guesses,
                         const Record& record) const;
  const Seen& seen(int32_t age) const;
  int32_t known() const;
  static size_t class_of(int64_t bytes);

  int32_t members_;
  AlphaBeta link_;
  ChooserRules rules_;
  std::array<Seen, 32> seen_;
  int64_t calls_ = 0;
  std::array<Record, 64> records_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tenuto
