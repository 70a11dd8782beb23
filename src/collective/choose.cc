#include "collective/choose.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Records are parts of a call's time, as fixed-point numbers: this is one whole call.
constexpr int64_t kWhole = int64_t{1} << 20;
// With each call a guess's record moves by 1/32 of the way to the result of the call. It begins at
// the credit, 1/50 of a call, and stays between minus the credit and twice the credit, so that
// recent calls decide. A guess whose record has fallen to 0 is not followed until the record is at
// the credit again. Otherwise, where the late member keeps changing, the guess would be followed
// only shortly before the next change.
constexpr int64_t kRecordCalls = 32;
constexpr int64_t kCredit = kWhole / 50;
// Savings are counted up to 18 minutes either way, so that sums of them do not overflow.
constexpr int64_t kMostSaving = int64_t{1} << 40;

std::string milliseconds(int64_t ns) {
  return cat(fixed(static_cast<double>(ns) / 1e6, ns < 1'000'000 ? 3 : 1), " ms");
}

}  // namespace

AlgorithmChooser::AlgorithmChooser(int32_t members, AlphaBeta link, ChooserRules rules)
    : members_(members), link_(link), rules_(rules) {
  CHECK(members >= 1, "a member at least");
  CHECK(rules.kept >= 1 && rules.kept <= static_cast<int32_t>(seen_.size()) &&
            rules.least_calls >= 1 && rules.least_calls <= rules.kept,
        "1 to 32 calls remembered, and as many needed at most");
  CHECK(rules.least_chunk.count >= 1, "chunks of a byte at least");
  for (Record& record : records_) record.won.fill(static_cast<int32_t>(kCredit));
  const CallCosts costs = costs_of(int64_t{1} << 30);
  fingerprint_ = mix(
      mix(static_cast<uint64_t>(members), static_cast<uint64_t>(costs.base_ns),
          static_cast<uint64_t>(costs.early_ns), static_cast<uint64_t>(costs.exchange_ns)),
      mix(static_cast<uint64_t>(rules.kept), static_cast<uint64_t>(rules.least_calls),
          static_cast<uint64_t>(rules.least_hits), static_cast<uint64_t>(rules.margin_thousandths)),
      static_cast<uint64_t>(rules.least_chunk.count), static_cast<uint64_t>(link.alpha.count()));
}

size_t AlgorithmChooser::class_of(int64_t bytes) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(bytes)));
}

int32_t AlgorithmChooser::known() const {
  return static_cast<int32_t>(std::min<int64_t>(calls_, rules_.kept));
}

// The newest call has age 0.
const AlgorithmChooser::Seen& AlgorithmChooser::seen(int32_t age) const {
  return seen_[static_cast<size_t>((calls_ - 1 - age) % rules_.kept)];
}

CallCosts AlgorithmChooser::costs_of(int64_t bytes) const {
  return call_costs(members_, {bytes}, link_, {rules_.margin_thousandths, rules_.least_chunk});
}

// What late-one would have saved in that call with `member` as the late one. If another member came
// last, the others' sums had to wait for that one, and late-one could only lose.
int64_t AlgorithmChooser::saving(const CallCosts& costs, int32_t member, const Seen& seen) {
  const int64_t hidden = seen.last == member ? std::min(seen.gap_ns, costs.early_ns) : 0;
  return std::clamp(hidden - costs.break_even_ns(), -kMostSaving, kMostSaving);
}

AlgorithmChooser::Guess AlgorithmChooser::judge(const CallCosts& costs, int32_t member,
                                                Sight sight) const {
  Guess guess;
  guess.member = member;
  int64_t weight = 1 << 16, weights = 0, sum = 0, gaps = 0;
  for (int32_t age = 0; age < known(); ++age) {
    const Seen& call = seen(age);
    const int64_t saved = saving(costs, member, call);
    sum += weight * saved;
    weights += weight;
    if (sight == kNear) weight = weight * 3 / 4;
    if (call.last != member || saved <= 0) continue;
    ++guess.hits;
    gaps += call.gap_ns;
  }
  guess.saving = sum / weights;
  guess.gap_ns = gaps / std::max(guess.hits, 1);
  return guess;
}

AlgorithmChooser::Guess AlgorithmChooser::guess(const CallCosts& costs, const Record& record,
                                                Sight sight) const {
  Guess best;
  const int64_t margin = costs.base_ns * rules_.margin_thousandths / 1000;
  int64_t best_score = 0;
  const int32_t followed = record.followed[sight];
  for (int32_t age = 0; age < known(); ++age) {
    const int32_t member = seen(age).last;
    if (member == best.member) continue;
    Guess one = judge(costs, member, sight);
    // The late member stays the same, unless it loses or another one is better by the margin.
    const int64_t score = one.saving + (member == followed ? margin : 0);
    one.worth = score > margin && one.hits >= rules_.least_hits;
    const auto rank = [](const Guess& of, int64_t its) { return std::pair(of.worth, its); };
    const bool better = best.member < 0 || rank(one, score) > rank(best, best_score) ||
                        (rank(one, score) == rank(best, best_score) && member < best.member);
    if (!better) continue;
    best = one;
    best_score = score;
  }
  return best;
}

Choice AlgorithmChooser::choose(int64_t bytes) const {
  CHECK(bytes >= 0, "a size");
  const CallCosts costs = costs_of(bytes);
  const Record& record = records_[class_of(bytes)];
  Choice choice;
  choice.algorithm = costs.halving ? "halving" : "ring";
  if (members_ < 3 || calls_ < rules_.least_calls) {
    choice.reason = members_ < 3
                        ? cat("with ", members_, " members no two can add up while one is late")
                        : cat("the first ", rules_.least_calls, " calls measure who is late, ",
                              calls_, " are done");
    return choice;
  }
  const std::array<Guess, kSights> guesses = {guess(costs, record, kNear),
                                              guess(costs, record, kFar)};
  const auto trusted = [&](Sight sight) { return guesses[sight].worth && record.trusted[sight]; };
  Sight sight = kNear;
  if (trusted(kFar) && (!trusted(kNear) || record.won[kFar] > record.won[kNear])) sight = kFar;
  const Guess& best = guesses[sight];
  if (!trusted(sight)) {
    choice.reason = why_nobody(costs, guesses, record);
    return choice;
  }
  choice.algorithm = "late-one";
  choice.chunks = costs.chunks;
  choice.late = best.member;
  choice.reason =
      cat("member ", best.member, " came ", milliseconds(best.gap_ns), " after the others in ",
          best.hits, " of ", known(), " calls; late-one saves ", milliseconds(best.saving), " of ",
          milliseconds(costs.base_ns), " a call");
  return choice;
}

std::string AlgorithmChooser::why_nobody(const CallCosts& costs,
                                         const std::array<Guess, kSights>& guesses,
                                         const Record& record) const {
  for (const Sight sight : {kNear, kFar}) {
    if (!guesses[sight].worth) continue;
    return cat("member ", guesses[sight].member, " seems late, but such choices cost ",
               fixed(-100.0 * record.won[sight] / static_cast<double>(kWhole), 1),
               " % of a call on average");
  }
  const Guess& best = guesses[kFar];
  int32_t last = 0;
  int64_t gaps = 0;
  for (int32_t age = 0; age < known(); ++age) {
    if (seen(age).last != best.member) continue;
    ++last;
    gaps += seen(age).gap_ns;
  }
  return cat("member ", best.member, " came ", milliseconds(gaps / std::max(last, 1)),
             " after the others in ", last, " of ", known(), " calls; late-one would ",
             best.saving < 0 ? "lose " : "save no more than ", milliseconds(std::abs(best.saving)),
             " of ", milliseconds(costs.base_ns), " a call");
}

void AlgorithmChooser::note(std::span<const uint32_t> waited_us, int64_t bytes) {
  CHECK(waited_us.size() == static_cast<size_t>(members_), "a number for each member");
  CHECK(bytes >= 0, "a size");
  Seen call{0, 0};
  int64_t latest = waited_us[0], second = -1;
  for (size_t i = 1; i < waited_us.size(); ++i) {
    const int64_t waited = waited_us[i];
    if (waited <= latest) {
      second = std::max(second, waited);
      continue;
    }
    second = latest;
    latest = waited;
    call.last = static_cast<int32_t>(i);
  }
  call.gap_ns = second < 0 ? 0 : (latest - second) * 1000;

  Record& record = records_[class_of(bytes)];
  if (members_ >= 3 && calls_ >= rules_.least_calls) {
    const CallCosts costs = costs_of(bytes);
    for (const Sight sight : {kNear, kFar}) {
      const Guess made = guess(costs, record, sight);
      record.followed[sight] = made.worth ? made.member : -1;
      if (!made.worth) continue;
      const int64_t part =
          saving(costs, made.member, call) * kWhole / std::max<int64_t>(costs.base_ns, 1);
      int64_t won = record.won[sight];
      won += (std::clamp(part, -kWhole, kWhole) - won) / kRecordCalls;
      won = std::clamp(won, -kCredit, 2 * kCredit);
      record.won[sight] = static_cast<int32_t>(won);
      record.trusted[sight] = won >= kCredit || (won > 0 && record.trusted[sight]);
    }
  }
  seen_[static_cast<size_t>(calls_ % rules_.kept)] = call;
  ++calls_;
  const auto word = [](int64_t number) { return static_cast<uint64_t>(number); };
  const uint64_t numbers = crc32c(std::as_bytes(waited_us));
  const uint64_t after = mix(word(record.won[kNear]), word(record.won[kFar]),
                             word(record.followed[kNear]), word(record.followed[kFar]));
  const uint64_t trust = (record.trusted[kNear] ? 1 : 0) + (record.trusted[kFar] ? 2 : 0);
  fingerprint_ = mix(fingerprint_, word(bytes), numbers << 2 | trust, after);
}

}  // namespace tenuto
