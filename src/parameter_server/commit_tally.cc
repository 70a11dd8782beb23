#include "parameter_server/commit_tally.h"

#include <algorithm>

namespace tenuto::servers {

void CommitTally::look(const Record& record) {
  if (!applied_) {
    applied_.emplace(record.version);
    next_ = record.version;
  }
  newest_.version = record.committed;
  newest_.applied = record.applied;
  newest_.dropped = record.dropped;
  newest_.mode = record.mode;
  for (const DecidedUpdate& one : record.updates) {
    const Mass mass = mass_of(one.update);
    newest_.applied = newest_.applied - mass;
    if (one.update.version < next_) continue;
    for (const Offer& member : one.update.members) {
      age_sum_ += applied_->age_of(member, mass) * static_cast<double>(member.mass.micros);
      measured_ += member.mass;
      ++newest_.works;
    }
    applied_->add(mass);
    next_ = one.update.version + 1;
  }
  Version oldest = record.version;
  for (const OpenWork& open : record.open) oldest = std::min(oldest, open.work.offer.version);
  applied_->forget_before(oldest);
}

void CommitTally::note_filled(int64_t epoch) { newest_.filled = std::max(newest_.filled, epoch); }

std::optional<CommittedReport> CommitTally::take() {
  const bool has_committed = newest_.version > said_;
  if (!has_committed && newest_.filled <= said_filled_) return std::nullopt;
  said_ = std::max(said_, newest_.version);
  said_filled_ = newest_.filled;
  CommittedReport report = newest_;
  if (!has_committed) {
    report.works = 0;
    return report;
  }
  if (measured_ > Mass{}) {
    report.age =
        age_sum_ / static_cast<double>(measured_.micros) / static_cast<double>(iteration_.micros);
  }
  newest_.works = 0;
  age_sum_ = 0;
  measured_ = {};
  return report;
}

}  // namespace tenuto::servers
