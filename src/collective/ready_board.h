// Decides which member is late in a call, once all the others have come: for groups in which a
// different member is late each time, so that earlier calls do not predict the next one.
//
// Each member says that it has come to a call, and asks how the call is to be made. When all have
// come, nobody is late. When all but one have come, the board waits for the last one, but no longer
// than the patience; after that this member is late, and the others begin without it. One board
// decides for all, so the members need not agree. It must not run where a late member would block
// it.
//
// Idea:   let d be the gap between the last two arrivals. Ring or halving ends a time base after
//         the last arrival. Late-one that is begun after a patience p ends max(p + early, d) - d +
//         exchange after the last arrival. So a patience above d* = early + exchange - base never
//         pays, and with any patience up to d* no call takes more than d* longer than with the
//         better of the two. Of the patiences up to d* the board takes the one that would have been
//         best for the gaps so far.
// Source: our own (docs/decisions/043). Karlin, Manasse, McGeoch, Owicki, "Competitive randomized
//         algorithms for nonuniform problems", 1994, for choosing how long to wait from earlier
//         waits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/unit.h"
#include "collective/cost.h"
#include "collective/member_set.h"

namespace tenuto {

// Whether it pays to ask who is late in a call: asking takes at most the margin (an alpha to the
// board and one back), and late-one can save more than the margin.
bool worth_asking(const CallCosts& costs, Duration alpha, int32_t margin_thousandths);

// How long to wait for the last member before it counts as late.
//
// Requires: gaps not below zero
Duration best_patience(std::span<const Duration> gaps, const CallCosts& costs);

// With fewer gaps than this the patience is d*.
inline constexpr size_t kLeastGaps = 3;

// What a member tells the board when it has come to a call; the same from all members.
struct ReadyMessage {
  int64_t generation = 0;  // of the group: grows when members die
  int64_t call = 0;
  CallCosts costs;    // of the call
  MemberSet members;  // that make it
};

// The board's answer to a member.
struct ReadyAnswer {
  // What the answer says.
  enum class Kind : int64_t {
    All,   // all are there
    Late,  // all but one are there
    Void,  // the group has a newer generation: ask again with that
  };
  int32_t place = 0;  // of the member that gets the answer
  int64_t generation = 0, call = 0;
  Kind kind = Kind::All;
  int32_t late = -1;    // Late: its place
  Duration patience{};  // Late: for how long the others have waited for it
};

// The board of one group. The first message of a member for a call gets exactly one answer, sooner
// or later.
class ReadyBoard {
 public:
  // A board of a group whose places are below `members`.
  explicit ReadyBoard(int32_t members) : members_(members) {}

  // A member has come to a call.
  //
  // Requires: 0 <= place < members; sets over as many members; `now` not below any before
  void arrive(int32_t place, const ReadyMessage& word, Duration now);
  // When the next patience ends, if nobody comes before; none = no call waits for its last member.
  std::optional<Duration> due() const;
  // The answers that are due at `now`, each returned once.
  std::vector<ReadyAnswer> take(Duration now);

 private:
  struct Open {
    ReadyMessage word;
    MemberSet there, told;
    std::optional<Duration> alone_at;  // when all but one were there
    Duration patience{};
    bool judged = false;  // the last member's gap will be noted
    std::optional<int32_t> late;
    bool all = false;
  };

  int32_t missing(const Open& open) const;
  bool awaited_before(int64_t call, int32_t place) const;
  void look(int64_t call, Open& open, Duration now);
  void note(Duration gap);
  void answer_void(int32_t place, const ReadyMessage& word);

  static constexpr size_t kKept = 32;  // gaps that are remembered

  int32_t members_;
  int64_t generation_ = -1;
  std::map<int64_t, Open> open_;  // by call
  std::vector<Duration> gaps_;    // the newest kKept, in a ring
  size_t next_gap_ = 0;
  std::vector<ReadyAnswer> answers_;
};

}  // namespace tenuto
