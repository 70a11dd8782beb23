// How long the keepers of a process take to apply an update: a choice of the sync mode has to know
// how busy they are.
//
// Limit: a process knows its own keepers alone. Servers keep about equally much, so those of the
//        process with the decider stand for all. If it keeps nothing, nothing is measured.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "base/unit.h"
#include "ir/version.h"

namespace tenuto::servers {

// The last updates of one process.
class ApplyTimes {
 public:
  // The mean is over so many updates; older ones say nothing about now.
  static constexpr size_t kRecent = 16;

  // A keeper has applied the update of this version.
  void add(Version version, Duration took);

  // The mean time of an update, all keepers of the process together. The newest update does not
  // count, because some of them may not have applied it yet. None = there is no other one.
  std::optional<Duration> mean() const;

 private:
  std::map<Version, Duration> updates_;  // the newest ones
};

}  // namespace tenuto::servers
