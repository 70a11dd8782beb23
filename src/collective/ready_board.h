// Who is late in a call, told by who is there: for members of whom each may be late, now one and
// now another one, so that the calls before say nothing of the next.
//
// Each member says that it has come to a call, and asks by what it is to be made. When all have,
// nobody is late. When all but one have, that one is given a while, its patience; then it is the
// late one of the call, and the others begin without it. One board decides, so that nobody has to
// agree; it may run anywhere, but not where a late member would hold it up.
//
// Idea:   with a gap d between the last two, ring or halving ends base after the last one, and
//         late-one, begun after a patience p, max(p + early, d) - d + exchange after it. So to wait
//         for more than d* = early + exchange - base is never right, and whatever is waited below
//         it, no call takes more than d* longer than by the better of both. Below it the gaps that
//         were seen decide: the patience that would have been best for them.
// Source: our own (docs/decisions/043). Karlin, Manasse, McGeoch, Owicki, "Competitive randomized
//         algorithms for nonuniform problems", 1994, for waiting by what was seen.
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

// Whether it pays to ask who is late in a call: the way there and back, an alpha each, is at most
// the margin of it, and late-one saves more than that.
bool worth_asking(const CallCosts& costs, Duration alpha, int32_t margin_thousandths);

// How long whoever comes last is waited for before it counts as late.
//
// Requires: gaps not below zero
Duration best_patience(std::span<const Duration> gaps, const CallCosts& costs);

// Fewer gaps than that say nothing: the patience is d*.
inline constexpr size_t kLeastGaps = 3;

// What a member says when it has come to a call. The same from all members, but for who says it.
struct ReadyWord {
  int64_t form = 0;  // of the group: larger after members have died
  int64_t call = 0;
  CallCosts costs;    // of the call
  MemberSet members;  // who makes it
};

// What it is told.
struct ReadyAnswer {
  // What is said.
  enum class Kind : int64_t {
    All,   // all are there
    Late,  // all but one are
    Void,  // the group has another form by now: ask again in that
  };
  int32_t place = 0;  // who is told
  int64_t form = 0, call = 0;
  Kind kind = Kind::All;
  int32_t late = -1;    // Late: its place
  Duration patience{};  // Late: for how long the others have waited for it
};

// The board of one group. Whoever says a word gets one answer to it, some time.
class ReadyBoard {
 public:
  // A board of a group whose places are below `members`.
  explicit ReadyBoard(int32_t members) : members_(members) {}

  // A member has come to a call.
  //
  // Requires: 0 <= place < members; sets over as many members; `now` not below any before
  void arrive(int32_t place, const ReadyWord& word, Duration now);
  // When a call's patience ends, if nobody comes before; none = nobody is waited for.
  std::optional<Duration> due() const;
  // The answers there are by now, each once.
  std::vector<ReadyAnswer> take(Duration now);

 private:
  struct Open {
    ReadyWord word;
    MemberSet there, told;
    std::optional<Duration> alone_at;  // when all but one were there
    Duration patience{};
    bool judged = false;  // its gap is one that was waited for
    std::optional<int32_t> late;
    bool all = false;
  };

  int32_t missing(const Open& open) const;
  bool awaited_before(int64_t call, int32_t place) const;
  void look(int64_t call, Open& open, Duration now);
  void note(Duration gap);
  void answer_void(int32_t place, const ReadyWord& word);

  static constexpr size_t kKept = 32;  // gaps that are remembered

  int32_t members_;
  int64_t form_ = -1;
  std::map<int64_t, Open> open_;  // by call
  std::vector<Duration> gaps_;    // the newest kKept, in a ring
  size_t next_gap_ = 0;
  std::vector<ReadyAnswer> answers_;
};

}  // namespace tenuto
