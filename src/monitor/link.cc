#include "monitor/link.h"

#include <algorithm>
#include <cmath>

#include "base/longest_time.h"

namespace tenuto {

namespace {

constexpr int32_t kUsual = 20;          // first readings, which set the usual level
constexpr int32_t kFewest = 3;          // of them that make a level
constexpr int32_t kJudged = 9;          // of a run that is no change: change.cc has judged it
constexpr double kNear = 0.3;           // a run whose level differs by less may be the same
constexpr int32_t kDriftReadings = 10;  // that the slow average needs before it is used
constexpr double kDriftShare = 0.1;     // weight of one reading in the slow average
constexpr size_t kWaiting = 4;          // the most samples that wait for the other direction
constexpr double kPatientGaps = 2;      // between figures, for which a verdict waits for one
constexpr double kRateGrows = 1.25;     // growth of the time per byte that counts as a lower rate

// Places in Reading::beside.
enum Beside : size_t { kLeast, kUpper, kForth, kBack };

// Nanoseconds that one more byte costs, from two sizes that differ at least twofold; 0 = not known.
double time_per_byte(const LinkSample& sample) {
  if (sample.largest.count < 2 * sample.smallest.count || sample.smallest.count <= 0) return 0;
  const auto bytes = static_cast<double>((sample.largest - sample.smallest).count);
  return std::max(static_cast<double>((sample.of_largest - sample.of_smallest).count()), 0.0) /
         bytes;
}

double per_byte(Duration mebibyte) {
  return static_cast<double>(mebibyte.count()) / (int64_t{1} << 20);
}

double sum(Duration forth, Duration back) { return static_cast<double>((forth + back).count()); }

Duration duration(double nanoseconds) { return from_nanoseconds(nanoseconds); }

// The growth of the round trip that plans use: that of the upper delays, but at least that of the
// medians and at most twice that, because anything more is waiting in a queue.
double gain_of(const Level& usual, const Level& level) {
  const double median = level.value - usual.value;
  const double upper = level.beside[kUpper] - usual.beside[kUpper];
  return std::max(0.0, median > 0 ? std::clamp(upper, median, 2 * median) : 0.0);
}

LinkExtra higher(const LinkExtra& left, const LinkExtra& right) {
  LinkExtra extra;
  extra.latency = std::max(left.latency, right.latency);
  for (size_t i = 0; i < 2; ++i) {
    // 0 is the healthy rate, which is the highest.
    const double a = left.rate[i], b = right.rate[i];
    extra.rate[i] = a == 0 ? b : b == 0 ? a : std::min(a, b);
  }
  return extra;
}

}  // namespace

void LinkWatch::add(const NetworkSample& sample, WorkerId worker, int64_t step) {
  network_.add(sample, worker < sample.peer ? 0 : 1, step);
}

std::optional<Verdict> LinkWatch::add(const LinkSample& sample, int64_t step, Duration floor) {
  if (step <= newest_) return std::nullopt;
  const size_t way = sample.from < sample.to ? 0 : 1;
  auto& other = waiting_[1 - way];
  const auto found =
      std::find_if(other.begin(), other.end(), [&](const Half& half) { return half.step == step; });
  if (found == other.end()) {
    auto& mine = waiting_[way];
    for (const Half& half : mine) {
      if (half.step == step) return std::nullopt;
    }
    mine.push_back({step, sample});
    if (mine.size() > kWaiting) {
      mine.erase(std::min_element(mine.begin(), mine.end(),
                                  [](const Half& a, const Half& b) { return a.step < b.step; }));
    }
    return std::nullopt;
  }
  const LinkSample& forth = way == 0 ? sample : found->sample;
  const LinkSample& back = way == 0 ? found->sample : sample;
  Reading reading;
  reading.at = step;
  reading.value = sum(forth.median, back.median);
  reading.beside[kLeast] = sum(forth.least, back.least);
  reading.beside[kUpper] = sum(forth.upper, back.upper);
  reading.beside[kForth] = time_per_byte(forth);
  reading.beside[kBack] = time_per_byte(back);
  largest_ = {static_cast<double>(forth.largest.count), static_cast<double>(back.largest.count)};
  reading.seconded = is_seconded(reading);
  newest_ = step;
  for (auto& halves : waiting_) {
    std::erase_if(halves, [&](const Half& half) { return half.step <= step; });
  }
  return add_round_trip(reading, static_cast<double>(floor.count()));
}

std::optional<Verdict> LinkWatch::add_round_trip(const Reading& reading, double floor) {
  const std::optional<Change> change = series_.add(reading, floor);
  if (change) {
    drift_ = {};
    pending_.reset();
    if (!least_moved(change->before, change->after, floor)) return std::nullopt;
    return weigh_change(*change, reading.at, floor);
  }
  if (pending_) return weigh_change(*pending_, reading.at, floor);
  if (series_.kept_back()) return std::nullopt;
  if (!slow_ && (series_.readings() <= kUsual || usual_.readings == 0)) {
    // A new run that is far off may be the beginning of a change until it has lasted without being
    // one.
    const Level level = series_.level();
    const double gap = std::abs(level.value - usual_.value);
    const bool near = gap <= kNear * std::min(level.value, usual_.value);
    const bool same = near || level.since == usual_.since || level.readings >= kJudged;
    if (same || usual_.readings < kFewest) usual_ = last_level_ = level;
    return std::nullopt;
  }
  return follow_drift(reading, floor);
}

// True when the network shows the same distance from the present level as the reading does.
bool LinkWatch::is_seconded(const Reading& reading) const {
  const Level level = series_.level();
  if (level.readings == 0) return false;
  const NetworkLevel usual = network_.between(level.since, reading.at);
  const NetworkLevel now = network_.between(reading.at, reading.at + 1);
  const double growth = reading.value - level.value;
  if (std::abs(growth) < 1) return false;
  const Witness witness = growth > 0 ? judge_growth(usual, now, duration(growth), largest_)
                                     : judge_growth(now, usual, duration(-growth), largest_);
  return witness == Witness::Slower;
}

bool LinkWatch::is_above_usual(double value, double floor) const {
  return value - usual_.value > std::max(options_.change.ratio * usual_.value, floor);
}

bool LinkWatch::is_below_usual(double value, double floor) const {
  return usual_.value - value > std::max(options_.change.ratio * value, floor);
}

// Figures come some times a second, however short the steps are. Both ends may tell at about the
// same step, so the longest gap is up to twice the mean.
int64_t LinkWatch::patience() const {
  const auto gaps = static_cast<int64_t>(std::ceil(kPatientGaps * network_.mean_gap()));
  return std::max<int64_t>(options_.patience, gaps);
}

// Reports a change, unless the network denies that the link has become slow, or that it was slow
// when it was first measured. Waits for figures if there were some before the change. That a slow
// link becomes faster is not doubted.
std::optional<Verdict> LinkWatch::weigh_change(Change change, int64_t step, double floor) {
  pending_.reset();
  const double growth = change.after.value - change.before.value;
  const bool slower = growth > 0;
  if (slower ? is_above_usual(change.after.value, floor) : !slow_) {
    const NetworkLevel before = network_.between(change.before.since, change.after.since);
    const NetworkLevel after = network_.between(change.after.since, step + 1);
    const bool waits = before.readings > 0 && after.readings == 0;
    if (waits && step < change.found + patience()) {
      pending_ = change;
      return std::nullopt;
    }
    const Witness witness = slower ? judge_growth(before, after, duration(growth), largest_)
                                   : judge_growth(after, before, duration(-growth), largest_);
    // The kernel's round trip is an average over some acknowledgements, so it follows later.
    const bool moving = slower && after.round_trip - before.round_trip >= duration(growth / 2);
    if (witness == Witness::Unchanged && moving && step < change.found + patience()) {
      pending_ = change;
      return std::nullopt;
    }
    if (witness == Witness::Unchanged) {
      if (is_below_usual(change.after.value, floor)) usual_ = last_level_ = change.after;
      return std::nullopt;
    }
    // Two measurements agree, but they are not independent.
    if (witness == Witness::Slower) change.sure = 1 - (1 - change.sure) / 2;
  }
  change.found = step;
  return report_change(change, floor);
}

bool LinkWatch::least_moved(const Level& before, const Level& after, double floor) const {
  const double moved = after.beside[kLeast] - before.beside[kLeast];
  if ((moved > 0) != (after.value > before.value)) return false;
  const double small = std::min(before.beside[kLeast], after.beside[kLeast]);
  return std::abs(moved) >= std::max(options_.least_moves * small, floor / 2);
}

// Reports a change when the slow average has left the level of the last verdict and stays away, or
// has come back to the usual level.
std::optional<Verdict> LinkWatch::follow_drift(const Reading& reading, double floor) {
  Drift& drift = drift_;
  drift.readings = std::min(drift.readings + 1, 1 << 20);
  const double share = std::max(kDriftShare, 1.0 / drift.readings);
  drift.level.value += (reading.value - drift.level.value) * share;
  for (size_t i = 0; i < reading.beside.size(); ++i) {
    drift.level.beside[i] += (reading.beside[i] - drift.level.beside[i]) * share;
  }
  drift.level.readings = std::min(drift.readings, kUsual);
  const double gap = drift.level.value - last_level_.value;
  const bool outside = std::abs(gap) > std::max(options_.drift / 2 * last_level_.value, floor / 2);
  if (!outside) drift.outside = false;
  if (outside && !drift.outside) {
    drift.outside = true;
    drift.left = reading.at;
  }
  // The average of a noisy series wanders, so its drift must also exceed the spread. Coming back to
  // the usual level takes half the drift that leaving it takes.
  const double ratio =
      std::max(slow_ && gap < 0 ? options_.drift / 2 : options_.drift, series_.spread());
  if (drift.readings < kDriftReadings || !outside || std::abs(gap) <= floor ||
      std::abs(gap) < ratio * std::min(last_level_.value, drift.level.value) ||
      !least_moved(last_level_, drift.level, floor)) {
    return std::nullopt;
  }
  drift.level.since = drift.left;
  const Change change{last_level_, drift.level, reading.at, 0.99};
  drift_ = {};
  return weigh_change(change, reading.at, floor);
}

std::optional<Verdict> LinkWatch::report_change(const Change& change, double floor) {
  const bool slow = is_above_usual(change.after.value, floor);
  // Faster than the usual level: the link was slow already when it was first measured.
  const bool better = is_below_usual(change.after.value, floor);
  if (!slow && !slow_ && !better) return std::nullopt;  // still the usual level
  const Level before = change.before;
  last_level_ = change.after;
  if (better) usual_ = change.after;
  slow_ = slow;
  const LinkExtra next = slow ? extra_of(change.after, change.found + 1) : LinkExtra{};
  if (higher(next, present_) != next) {
    held_ = change.found < held_until_ ? higher(held_, present_) : present_;
    held_until_ = change.found + options_.hold_steps;
  }
  present_ = next;
  Verdict verdict;
  verdict.kind = slow ? VerdictKind::SlowLink : VerdictKind::LinkHealed;
  verdict.since_step = change.after.since;
  verdict.found_step = change.found;
  verdict.before = duration(before.value);
  verdict.after = duration(change.after.value);
  verdict.factor = change.after.value / std::max(before.value, 1.0);
  verdict.sure = change.sure;
  return verdict;
}

// `end`: one step behind those of the level.
LinkExtra LinkWatch::extra_of(const Level& level, int64_t end) const {
  LinkExtra extra;
  const double gain = gain_of(usual_, level);
  const NetworkLevel before = network_.between(usual_.since, level.since);
  const NetworkLevel after = network_.between(level.since, end);
  // Nanoseconds: of a byte, twice, and of the largest message.
  std::array<double, 2> usual{}, slopes{}, by_rate{};
  for (size_t way = 0; way < 2; ++way) {
    double slope = level.beside[kForth + way];
    usual[way] = usual_.beside[kForth + way];
    if (after.mebibyte[way] > Duration::zero()) {
      slope = per_byte(after.mebibyte[way]);
      // If it was not known before, it was at most what all of the usual round trip would mean.
      usual[way] = before.mebibyte[way] > Duration::zero()
                       ? per_byte(before.mebibyte[way])
                       : usual_.value / std::max(largest_[0] + largest_[1], 1.0);
    }
    if (slope <= 0 || slope <= kRateGrows * usual[way]) continue;
    slopes[way] = slope;
    by_rate[way] = (slope - usual[way]) * largest_[way];
  }
  // A rate that would mean more than messages have shown is not as low as that.
  const double share = std::min(1.0, gain / std::max(by_rate[0] + by_rate[1], 1.0));
  double left = gain;
  for (size_t way = 0; way < 2; ++way) {
    by_rate[way] *= share;
    if (by_rate[way] <= 0 || by_rate[way] < 0.1 * gain) continue;
    extra.rate[way] = 1e9 / (share < 1 ? usual[way] + by_rate[way] / largest_[way] : slopes[way]);
    left -= by_rate[way];
  }
  extra.latency = duration(left / 2);
  return extra;
}

LinkExtra LinkWatch::extra(int64_t step) const {
  return step < held_until_ ? higher(present_, held_) : present_;
}

Duration LinkWatch::round_trip() const { return duration(last_level_.value); }

}  // namespace tenuto
