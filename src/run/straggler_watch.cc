#include "run/straggler_watch.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "sync/verdict.h"

namespace tenuto {

void StragglerWatch::set_replicas(const std::set<ReplicaId>& present) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const bool is_present = present.count(ReplicaId{static_cast<int32_t>(i)}) > 0;
    if (!is_present && replicas_[i].is_present) replicas_[i] = Replica{};
    replicas_[i].is_present = is_present;
  }
}

// Two or more are in the run, and each of them has ended an iteration.
bool StragglerWatch::may_compare() const {
  int64_t count = 0;
  for (const Replica& one : replicas_) {
    if (one.is_present && !one.has_sample) return false;
    count += one.is_present ? 1 : 0;
  }
  return count > 1;
}

// Why this replica straggled in its newest iteration.
size_t StragglerWatch::find(size_t own) {
  std::vector<IterationSample> present;
  for (const Replica& one : replicas_) {
    if (one.is_present) present.push_back(one.newest);
  }
  const IterationSample fastest = *std::min_element(
      present.begin(), present.end(),
      [](const auto& left, const auto& right) { return whole_time(left) < whole_time(right); });
  // Verdicts name replicas by their place. One that is not in the run counts as fast.
  std::vector<IterationSample> all;
  for (const Replica& one : replicas_) all.push_back(one.is_present ? one.newest : fastest);
  size_t finding = kNot;
  for (const StragglerVerdict& verdict : find_stragglers(all)) {
    if (verdict.replica.value != static_cast<int32_t>(own)) continue;
    finding = static_cast<size_t>(verdict.cause);
    replicas_[own].sentence = verdict.sentence;
  }
  return finding;
}

std::optional<StragglerNews> StragglerWatch::add(ReplicaId replica, const IterationSample& sample,
                                                 Duration now) {
  const bool is_known = replica.value >= 0 && replica.value < std::ssize(replicas_);
  if (!is_known || !replicas_[static_cast<size_t>(replica.value)].is_present) return std::nullopt;
  const auto index = static_cast<size_t>(replica.value);
  Replica& own = replicas_[index];
  own.newest = sample;
  own.has_sample = true;
  if (!may_compare()) return std::nullopt;
  // Only what its newest iteration says as well can be the news.
  const size_t finding = find(index);
  own.findings.push_back(finding);
  if (own.findings.size() > kLast) own.findings.pop_front();
  const auto agreeing = std::count(own.findings.begin(), own.findings.end(), finding);
  if (finding == own.told || agreeing < static_cast<int64_t>(kMost)) return std::nullopt;
  if (own.was_told && now - own.told_at < kPause) return std::nullopt;
  own.told = finding;
  own.was_told = true;
  own.told_at = now;
  const std::string often =
      cat("in ", agreeing, " of its last ", own.findings.size(), " iterations");
  StragglerNews news;
  news.replica = replica;
  news.straggles = finding != kNot;
  if (news.straggles) news.cause = static_cast<StragglerCause>(finding);
  news.sentence = news.straggles ? cat(own.sentence, ", ", often)
                                 : cat("replica ", replica, " is no straggler any more: ", often,
                                       " it was not late");
  return news;
}

}  // namespace tenuto
