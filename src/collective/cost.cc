#include "collective/cost.h"

#include <algorithm>
#include <cmath>

#include "collective/algorithm.h"
#include "collective/late.h"

namespace tenuto {

namespace {

__extension__ using Wide = __int128;

// More chunks gain nothing, and the time to make greedy rounds grows with their square.
constexpr int64_t kMostBestChunks = 2048;
// The longest time: 36 years, so that sums of a few do not overflow.
constexpr int64_t kLongest = int64_t{1} << 60;
// Times of a call are counted up to 13 days, so that sums and shares of them do not overflow.
constexpr int64_t kMostTime = int64_t{1} << 50;

// The only place where a measured rate becomes an integer.
int64_t whole_rate(AlphaBeta link) {
  if (link.bytes_per_second <= 0) return 0;
  return std::llround(std::clamp(link.bytes_per_second, 1.0, 1e18));
}

// The largest root with root^2 <= square.
int64_t root_below(int64_t square) {
  int64_t root = 0;
  for (int64_t bit = int64_t{1} << 30; bit > 0; bit /= 2) {
    if ((root + bit) * (root + bit) <= square) root += bit;
  }
  return root;
}

}  // namespace

Duration closed_form(int64_t rounds, int64_t parts, int64_t of, Bytes size, AlphaBeta link) {
  Wide time = Wide{rounds} * link.alpha.count();
  if (const int64_t rate = whole_rate(link); rate > 0) {
    const Wide per = Wide{of} * rate;
    time += (Wide{size.count} * parts * 1'000'000'000 + per / 2) / per;
  }
  return Duration(static_cast<int64_t>(std::min<Wide>(time, kLongest)));
}

Duration ring_time(int32_t members, Bytes size, AlphaBeta link) {
  const int64_t steps = 2 * (int64_t{members} - 1);
  return closed_form(steps, steps, members, size, link);
}

Duration halving_time(int32_t members, Bytes size, AlphaBeta link) {
  return closed_form(2 * doublings(members), 2 * (int64_t{members} - 1), members, size, link);
}

Duration late_exchange_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link) {
  const int32_t made = late_chunks(members, chunks);
  const int32_t rounds = exchange_rounds(members, made);
  return closed_form(rounds, rounds, made, size, link);
}

Duration early_sum_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link) {
  const int32_t made = late_chunks(members, chunks);
  const RoundLength length = early_length(members, made);
  return closed_form(length.rounds, length.chunks, made, size, link);
}

int32_t best_chunks(int32_t members, Bytes size, AlphaBeta link) {
  if (members < 2) return 1;
  const auto most = std::clamp<int64_t>(kMostMoves / 2 / members, 1, kMostBestChunks);
  // Three members take a round more: the formula of best_chunks then has L instead of L - 1.
  const int64_t extra = doublings(members) - 1 + (members == 3 ? 1 : 0);
  const int64_t transfer = closed_form(0, extra, 1, size, link).count();
  const int64_t alpha = link.alpha.count();
  const int64_t near =
      alpha > 0 ? std::clamp<int64_t>(root_below(transfer / alpha), 1, most) : most;
  int32_t best = 1;
  Duration least = late_exchange_time(members, best, size, link);
  // For groups with a special scheme the best count may be a few chunks away.
  for (const int64_t first : {int64_t{1}, near - 5}) {
    for (int64_t k = std::max<int64_t>(first, 1); k <= std::min(first + 10, most); ++k) {
      const Duration time = late_exchange_time(members, static_cast<int32_t>(k), size, link);
      if (time >= least) continue;
      best = static_cast<int32_t>(k);
      least = time;
    }
  }
  return late_chunks(members, best);
}

int32_t best_slow_chunks(int32_t members, Bytes size, AlphaBeta link) {
  const int64_t others = std::max(members - 1, 1);
  const int64_t most = std::clamp<int64_t>(kMostMoves / 2 / members, 1, kMostBestChunks);
  const int64_t transfer = closed_form(0, 1, 2 * others, size, link).count();
  const int64_t alpha = link.alpha.count();
  const int64_t passes = alpha > 0 ? root_below(transfer / alpha) : most;
  const int64_t fit = std::max<int64_t>(most / others, 1);
  return static_cast<int32_t>(others * std::clamp<int64_t>(passes, 1, fit));
}

Duration break_even_delay(int32_t members, int32_t chunks, Bytes size, AlphaBeta link) {
  const Duration base = std::min(ring_time(members, size, link), halving_time(members, size, link));
  return early_sum_time(members, chunks, size, link) +
         late_exchange_time(members, chunks, size, link) - base;
}

CallCosts call_costs(int32_t members, Bytes size, AlphaBeta link, CostRules rules) {
  CallCosts costs;
  const auto whole = [](Duration time) { return std::min<int64_t>(time.count(), kMostTime); };
  const int64_t ring = whole(ring_time(members, size, link));
  const int64_t halving = whole(halving_time(members, size, link));
  // The closed forms ignore an advantage of the ring: only neighbours send to each other.
  costs.halving = (ring - halving) * 1000 > ring * rules.margin_thousandths;
  costs.base_ns = costs.halving ? halving : ring;
  if (members < 3) return costs;
  const auto most = static_cast<int32_t>(
      std::clamp<int64_t>(size.count / rules.least_chunk.count, 1, int64_t{1} << 20));
  const int32_t near = std::min(best_chunks(members, size, link), most);
  const int32_t owners = members - 1;
  // Owners with equally many chunks end their sums at the same time.
  for (int32_t chunks : {near, near / owners * owners, (near / owners + 1) * owners}) {
    while (late_chunks(members, chunks) > most) --chunks;
    if (chunks < 1 || (near < owners && chunks != near)) continue;
    chunks = late_chunks(members, chunks);
    const int64_t early = whole(early_sum_time(members, chunks, size, link));
    const int64_t exchange = whole(late_exchange_time(members, chunks, size, link));
    if (costs.chunks > 0 && early + exchange >= costs.early_ns + costs.exchange_ns) continue;
    costs.chunks = chunks;
    costs.early_ns = early;
    costs.exchange_ns = exchange;
  }
  // With small tensors and some counts of members late-one saves a round even if nobody is late;
  // that does not count here.
  costs.early_ns = std::max(costs.early_ns, costs.base_ns - costs.exchange_ns);
  return costs;
}

}  // namespace tenuto
