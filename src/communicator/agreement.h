// How the survivors of a group agree, without a coordinator, on who lives and on how each call that
// was under way ends.
//
// Idea:  in an attempt each member stops its calls and sends two lists to every member that it does
//        not know to be dead: the members that it knows to be dead, and what it has of each call.
//        When a member has received all of these, and all name the same dead, it works out how each
//        call ends; all others do so from the same reports. A member that hears of another death,
//        or of a different set of dead, begins the next attempt with all deaths that it knows of.
// Right: attempts are numbered, no member skips one, and a member that begins one executes no
//        earlier agreement any more. So what a member reports stays true until the attempt is
//        agreed or over. Members report the results of ended calls in all later attempts, so no
//        later attempt can contradict them. Two parts of a group that consider each other dead
//        cannot both agree if `least` is more than half of the group.
// Ends:  every new attempt has more dead, or follows a wait with a limit; docs/decisions/042.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/complete.h"
#include "transport/transport.h"

namespace tenuto {

// What a member reports of one call.
struct CallReport {
  int64_t number = 0;
  int64_t generation = 0;    // the attempt after which it was begun; -1 = it was not begun
  uint64_t fingerprint = 0;  // a hash of the call's arguments at this member
  int64_t elements = 0;
  int32_t chunks = 0;
  bool completes = false;  // it is an all-reduce: it can be completed
  bool intact = false;     // the input is unchanged, so the call can run again
  bool lost = false;       // final: the call ends with an error
  MemberHolding holding;
};

// A message that a member has handed to its wire and that has not ended.
struct OpenMessage {
  WorkerId peer;
  bool send = false;
  Tag tag;
  int64_t bytes = 0;
};

// What a member reports in an attempt.
struct MemberReport {
  int64_t next = 0;  // calls that it has started
  std::vector<CallReport> calls;
  std::vector<OpenMessage> messages;
};

// A report as words for the wire.
std::vector<int64_t> to_words(const MemberReport& report);
// And back. Sets are over `members`.
//
// Errors: Corrupt/Job   these are not the words of a report
Result<MemberReport> report_from_words(std::span<const int64_t> words, int32_t members);

// One member's side of the attempts. No I/O.
class Agreement {
 public:
  // Members have places 0 to `members` - 1. `least`: how many must survive.
  Agreement(int32_t members, int32_t self, int32_t least);

  // The number of the attempt; 0 before the first.
  int64_t attempt() const { return attempt_; }
  // Who is known to be dead.
  const MemberSet& dead() const { return dead_; }
  // Who takes part in the attempt: all that were not known to be dead when it began.
  const MemberSet& alive() const { return alive_; }
  // Members of alive() whose list of dead or whose report is still missing.
  MemberSet missing() const;
  // The reports received in the attempt, by place.
  const std::vector<MemberReport>& reports() const { return reports_; }

  // From now on the member at `place` is known to be dead.
  void lose(int32_t place) { dead_.add(place); }
  // How many must survive from now on.
  void set_least(int32_t least) { least_ = least; }
  // Begins the next attempt.
  void begin(MemberReport own);
  // Receives a message of member `from` in `attempt`; ignored unless this is the current attempt.
  void hear_dead(int64_t attempt, int32_t from, const MemberSet& dead);
  void hear_report(int64_t attempt, int32_t from, MemberReport report);

  // How the attempt stands.
  enum class Stand : uint8_t {
    Waits,    // messages are still missing
    Agreed,   // all live members have sent their reports, and the same dead
    Next,     // the dead differ: the next attempt has to begin
    Refused,  // too few live, or others consider this member dead
  };
  // How it stands now.
  Stand stand() const;
  // Why it is refused.
  std::string refusal() const;

 private:
  int32_t members_, self_, least_;
  int64_t attempt_ = 0;
  MemberSet dead_, alive_;
  MemberSet told_dead_, told_;  // in this attempt: whose list of dead has come, and whose report
  bool differs_ = false, taken_for_dead_ = false;
  std::vector<MemberReport> reports_;
};

// How a call ends.
struct CallOutcome {
  // The outcome in one word.
  enum class Kind : uint8_t {
    Complete,  // it is completed, by `completion`
    Again,     // the survivors run it again from its beginning
    Lost,      // it has no result: it ends with an error everywhere
  };
  Kind kind = Kind::Lost;
  Completion completion;
  std::string reason;
};

// How each call ends that is not over at every member.
struct CallOutcomes {
  std::map<int64_t, CallOutcome> calls;
  // Why the group cannot go on: some members have a result that the others cannot get.
  std::optional<std::string> broken;
};

// Derives how the calls end from the reports of all live members. Equal reports give equal
// outcomes.
CallOutcomes outcomes_of_calls(const std::vector<WorkerId>& members, const MemberSet& alive,
                               const std::vector<MemberReport>& reports);

}  // namespace tenuto
