// Holds the processes of a job to a number of cores, by a control group of their own: cpu.max of
// version 2, or cpu.cfs_quota_us of version 1. Both need the right to make groups. Without it the
// caller has the replicas pause between their works (worker/pace.h), which needs none.
//
// Neither a niceness nor a choice of processors is used: a process without privileges cannot lower
// its niceness again, and jobs that each choose processors by themselves choose the same ones.
//
// A group is removed when its job ends. One that a killed job has left is removed by the next job:
// its name has the number and the start of the job's process.
//
// Right: tests/run/governor_test.cc, with a folder in place of the kernel's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sync/ledger.h"

namespace tenuto {

// Where groups are made, and for whom.
struct GovernorSettings {
  std::string groups = "/sys/fs/cgroup";  // where the kernel shows its control groups
  std::string own = "/proc/self/cgroup";  // the groups of this process
  HostJob job;                            // the number of its process
  int64_t started = 0;                    // when that was started (base/process_stat.h)
  // When the process of a job was started; none = it has ended.
  std::function<std::optional<int64_t>(HostJob)> started_of;
  // Removes the folder of a group, whose files are the kernel's.
  std::function<void(const std::string&)> remove_folder;
};

// The groups of this host, for the job of this process.
GovernorSettings governor_here(HostJob job, int64_t started,
                               std::function<std::optional<int64_t>(HostJob)> started_of);

// The governor. It makes its group when it has to limit something for the first time.
class Governor {
 public:
  // Removes the groups that killed jobs have left.
  explicit Governor(GovernorSettings settings);
  // As remove().
  ~Governor();
  Governor(const Governor&) = delete;
  Governor& operator=(const Governor&) = delete;

  // From now on these processes together use at most so many cores; 0 = as many as they can.
  // Processes that are named once stay in the group.
  //
  // Returns: whether it took effect
  bool hold(double cores, const std::vector<int32_t>& processes);
  // What the first limit came to, as a sentence: by which group jobs are held, or why by none.
  // Empty before.
  const std::string& outcome() const { return outcome_; }
  // Takes the processes out of the group, and removes it. A group that still has processes stays,
  // for the next job to remove.
  void remove();

 private:
  // A folder in which the group may be made, and how the group is limited there.
  struct Place {
    std::string folder;
    bool is_second = false;  // version 2
  };
  std::vector<Place> places() const;
  void remove_left_behind(const std::vector<Place>& all) const;
  bool open();
  bool limit(const Place& place, double cores) const;
  std::string group_of(const Place& place) const;

  const GovernorSettings settings_;
  bool was_tried_ = false;
  std::optional<Place> place_;  // of the group; none = there is no group
  std::set<int32_t> moved_;     // the processes in the group
  double cores_ = 0;            // its present limit
  std::string outcome_;
};

}  // namespace tenuto
