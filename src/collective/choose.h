// Which all-reduce the next call uses, from when the members came to the calls before it.
//
// Every member asks a chooser of its own. Each call carries to all members how long everybody had
// been away, so all choosers take in the same numbers; they count in integers only, so all choose
// the same, and the fingerprint says so.
//
// Idea:   of a call it matters who came last and how long after all others: with that the closed
//         forms (cost.h) say what late-one would have saved in it, or lost, whoever it had waited
//         for. Two guesses are made: who was best to wait for in the calls just before, and who in
//         all that are remembered. Each guess is judged, from the first call on and whether it is
//         followed or not, by what it would have won; the one that has won more is followed, and
//         none while it has lost. So a late member that wanders costs a few wrong guesses.
// Source: closed forms: docs/decisions/038. Herbster, Warmuth, "Tracking the best expert", 1998,
//         for forecasters that are judged by their record; the rule here is simpler, and in
//         integers.
// Not taken: a mean and a deviation of each member's lateness. The saving is no function of means:
//         who is 12 ms late in every other call saves nothing where break-even is at 13.
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
  int32_t late = -1;   // place in members of who is waited for, -1 = nobody
  std::string reason;  // one sentence with the figures that decided
};

// What a chooser goes by. The same on all members.
struct ChooserRules {
  int32_t kept = 16;        // calls that are remembered, 32 at most
  int32_t least_calls = 3;  // calls to have seen before anybody is waited for
  int32_t least_hits = 3;   // of these, calls that waiting for that member would have paid in
  // Of a call that is to be saved, for which it is worth to change.
  int32_t margin_thousandths = CostRules{}.margin_thousandths;
  Bytes least_chunk = CostRules{}.least_chunk;
};

// One member's view; equal to all others' after equal calls.
class Chooser {
 public:
  // A chooser that has seen no call. `link` is what most links are like.
  //
  // Requires: members >= 1; rules as their comments say
  Chooser(int32_t members, AlphaBeta link, ChooserRules rules = {});

  // What a call of that size is to use. It changes nothing.
  //
  // Cost: below 20 microseconds, whatever the count of members (bench/all_reduce_bench.cc)
  Choice choose(int64_t bytes) const;

  // Takes in a call: how long each member was away from its completion of the call before to its
  // arrival at this one. All members give the same numbers in the same order of calls.
  //
  // Shapes:   waited_us by place in members
  // Requires: a number for each member
  void note(std::span<const uint32_t> waited_us, int64_t bytes);

  // Of all that was taken in and what became of it: equal on members that choose alike.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  // Of a call: who came last, and how long after the others.
  struct Seen {
    int32_t last = -1;
    int64_t gap_ns = 0;
  };
  // Who is best to wait for: its mean saving a call, and what that rests on.
  struct Guess {
    int32_t member = -1;
    int64_t saving = 0;  // ns a call
    int32_t hits = 0;    // calls in which it came last
    int64_t gap_ns = 0;  // their mean
    bool worth = false;
  };
  // How a guess is made: of the calls just before, or of all that are remembered.
  enum Sight { kNear, kFar, kSights };
  // What is known of the guesses for calls of about a size.
  struct Record {
    std::array<int32_t, kSights> followed = {-1, -1};
    std::array<int32_t, kSights> won = {};  // parts of a call, in 2^-20
    std::array<bool, kSights> trusted = {true, true};
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
