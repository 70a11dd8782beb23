#include "monitor/network.h"

#include <algorithm>

#include "base/longest_time.h"
#include "base/quantile.h"

namespace tenuto {

namespace {

constexpr size_t kEntries = 64;    // steps with figures that are kept
constexpr size_t kPresent = 8;     // those of them that make the present level
constexpr int32_t kFewest = 3;     // steps with figures, before and after, that say something
constexpr double kAccounts = 0.5;  // the share of a growth that the figures must account for
constexpr double kLossy = 0.5;     // packets sent again by step: the round trip tells too little
constexpr double kMebibyte = 1 << 20;

template <class Figures>
Duration steady_part(const Figures& of) {
  return std::max(of.round_trip - of.variation, Duration::zero());
}

Duration scaled(Duration time, double factor) {
  return from_nanoseconds(static_cast<double>(time.count()) * factor);
}

}  // namespace

void NetworkHistory::add(const NetworkSample& sample, size_t way, int64_t step) {
  if (sample.round_trip <= Duration::zero()) return;
  auto at = std::lower_bound(entries_.begin(), entries_.end(), step,
                             [](const Entry& entry, int64_t of) { return entry.step < of; });
  if (at == entries_.end() || at->step != step) {
    // One that is older than all that are kept has come too late.
    if (entries_.size() == kEntries && at == entries_.begin()) return;
    at = entries_.insert(at, Entry{step, sample.round_trip, sample.variation, {}, 0});
  } else if (steady_part(sample) < steady_part(*at)) {
    at->round_trip = sample.round_trip;
    at->variation = sample.variation;
  }
  if (sample.bytes_per_second > 0) {
    at->mebibyte[way] = from_nanoseconds(kMebibyte / sample.bytes_per_second * 1e9);
  }
  at->repeated += sample.repeated;
  repeated_ += sample.repeated;
  if (entries_.size() > kEntries) entries_.erase(entries_.begin());
}

NetworkLevel NetworkHistory::level_of(const std::vector<const Entry*>& entries) {
  NetworkLevel level;
  std::vector<Duration> round_trips, variations, steady;
  std::array<std::vector<Duration>, 2> mebibytes;
  for (const Entry* entry : entries) {
    round_trips.push_back(entry->round_trip);
    variations.push_back(entry->variation);
    steady.push_back(steady_part(*entry));
    for (size_t way = 0; way < 2; ++way) {
      if (entry->mebibyte[way] > Duration::zero()) mebibytes[way].push_back(entry->mebibyte[way]);
    }
    level.repeated += static_cast<double>(entry->repeated) / static_cast<double>(entries.size());
  }
  level.readings = static_cast<int32_t>(entries.size());
  level.round_trip = quantile(round_trips, 0.5);
  level.variation = quantile(variations, 0.5);
  level.steady = quantile(steady, 0.5);
  for (size_t way = 0; way < 2; ++way) level.mebibyte[way] = quantile(mebibytes[way], 0.5);
  return level;
}

NetworkLevel NetworkHistory::between(int64_t first, int64_t end) const {
  std::vector<const Entry*> chosen;
  for (const Entry& entry : entries_) {
    if (entry.step >= first && entry.step < end) chosen.push_back(&entry);
  }
  return level_of(chosen);
}

NetworkLevel NetworkHistory::newest() const {
  std::vector<const Entry*> chosen;
  const size_t first = entries_.size() - std::min(entries_.size(), kPresent);
  for (size_t i = first; i < entries_.size(); ++i) chosen.push_back(&entries_[i]);
  return level_of(chosen);
}

double NetworkHistory::mean_gap() const {
  if (entries_.size() < 2) return 0;
  return static_cast<double>(entries_.back().step - entries_.front().step) /
         static_cast<double>(entries_.size() - 1);
}

Witness judge_growth(const NetworkLevel& before, const NetworkLevel& after, Duration growth,
                     const std::array<double, 2>& bytes) {
  if (before.readings == 0 || after.readings == 0) return Witness::Unknown;
  if (before.readings + after.readings < kFewest) return Witness::Unknown;
  const Duration wanted = scaled(growth, kAccounts);
  Duration accounted = std::max(after.steady - before.steady, Duration::zero());
  Duration possible{};  // by a rate that was not known before
  bool fell = false;
  for (size_t way = 0; way < 2; ++way) {
    const Duration was = before.mebibyte[way], is = after.mebibyte[way];
    const Duration slower = scaled(std::max(is - was, Duration::zero()), bytes[way] / kMebibyte);
    (was > Duration::zero() ? accounted : possible) += slower;
    // Where a message takes longer than the time between two, the growth is that of several.
    fell |= was > Duration::zero() && is >= 2 * was && 3 * slower >= wanted;
  }
  if (accounted >= wanted) return Witness::Slower;
  const bool lossy = after.repeated >= kLossy && after.repeated > 2 * before.repeated;
  return lossy || fell || accounted + possible >= wanted ? Witness::Unknown : Witness::Unchanged;
}

}  // namespace tenuto
