#include "run/saved_states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "run/checkpoint.h"

namespace tenuto {

namespace {

// What sentences call the keeper that has written this range.
std::string keeper_of(const servers::ElementRange& range) {
  return cat("the keeper of elements ", range.begin, " to ", range.end, " of stage ", range.stage);
}

}  // namespace

SavedStates::SavedStates(std::vector<servers::ElementRange> ranges, Mass step)
    : ranges_(std::move(ranges)), step_(step) {}

// Whether a later version of the same step has begun to write files of the same names.
bool SavedStates::is_overwritten(Version version, int64_t step) const {
  return std::any_of(saving_.upper_bound(version), saving_.end(), [&](const auto& later) {
    return later.second.mass.micros / step_.micros == step;
  });
}

std::optional<SavedVersion> SavedStates::add(const servers::SavedReport& report) {
  const auto range = std::find(ranges_.begin(), ranges_.end(), report.range);
  if (range == ranges_.end() || report.version <= complete_) return std::nullopt;
  newest_ = std::max(newest_, report.version);
  Saving& saving = saving_[report.version];
  saving.mass = report.mass;
  std::vector<servers::SavedFile>& files =
      saving.ranges[static_cast<size_t>(range - ranges_.begin())];
  files.clear();
  for (const servers::SavedFile& file : report.files) {
    // Whoever has the record writes it, with the same bytes.
    if (file.name == kRecordFile) {
      saving.record = file;
    } else {
      files.push_back(file);
    }
  }
  // A range that was written by two keepers has the tallies of both.
  saving.tallies.push_back({keeper_of(report.range), report.version, report.tally});
  if (report.has_record) saving.decided = report.decided;
  const int64_t step = report.mass.micros / step_.micros;
  const bool is_whole = saving.record && saving.ranges.size() == ranges_.size();
  if (!is_whole || is_overwritten(report.version, step)) return std::nullopt;
  SavedVersion whole{report.version, report.mass, step, {}};
  for (const auto& [index, saved] : saving.ranges) {
    whole.files.insert(whole.files.end(), saved.begin(), saved.end());
  }
  whole.files.push_back(*saving.record);
  whole.tallies = std::move(saving.tallies);
  whole.decided = saving.decided;
  complete_ = report.version;
  saving_.erase(saving_.begin(), saving_.upper_bound(complete_));
  return whole;
}

}  // namespace tenuto
