// The folder of one run: locked while the run lasts, never overwritten silently.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// How a run begins.
enum class Beginning : uint8_t { Fresh, Resume, Overwrite };

// The folder RUNS/NAME, which this process holds the lock of.
class RunDirectory {
 public:
  // Makes the folder when there is none, and locks it; changes nothing else in it. If the holder of
  // the lock has just died, waits, for `limit` at most, until the system has released the lock.
  //
  // Errors: Invalid/Job  another process holds it; or it holds a run and `beginning` is Fresh; or
  //                      it holds no checkpoint and `beginning` is Resume; or it cannot be made
  //
  // `takes_up`: the run in the folder has begun and not ended, and goes on from where it is. Then
  // neither Fresh with a run in it nor Resume without a checkpoint is refused.
  static Result<RunDirectory> open(const std::string& path, Beginning beginning, Duration limit,
                                   bool takes_up = false);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) = delete;
  ~RunDirectory();

  // Absolute.
  const std::string& path() const { return path_; }
  // As it was opened.
  Beginning beginning() const { return beginning_; }
  // The first epoch of the run: if it resumes, one above the newest plan file; else 1.
  int64_t next_epoch() const;
  // Whether the run has begun: either it had begun when it was taken up, or clear() has been called
  // since, in this process or in one that it has forked.
  bool has_begun() const;
  // The steps of the checkpoints that this run may continue from, ascending; not those of an
  // earlier run that it is about to replace.
  std::vector<int64_t> checkpoints() const;
  // Whether metrics or checkpoints lie there.
  bool holds_run() const;
  // Whether the earlier run that this run was to replace is still here, untouched.
  bool spares_earlier_run() const;
  // Clears the way for the first step: Overwrite removes what the earlier run wrote (and nothing
  // else); Resume drops the metrics of steps from `first_step` on, which will be done again, and
  // what a checkpoint that was never finished left behind.
  Status clear(int64_t first_step) const;
  // Drops the metrics of steps from `first_step` on, and lines that are no metrics.
  Status drop_metrics(int64_t first_step) const;

 private:
  RunDirectory() = default;
  std::string path_;
  Beginning beginning_ = Beginning::Fresh;
  int lock_ = -1;
};

// The folder of a run that a user names: a path, or a name under `runs`. Absolute.
//
// Errors: Invalid/Call when there is no such folder, or when no run has worked in it
Result<std::string> find_run(const std::string& name);

// Whether the newest run in that folder has begun: its workers have been told to run.
bool has_begun_in(const std::string& run);

// Whether a process on any host holds the folder of a run, as far as its file system knows.
bool is_held(const std::string& run);

// The process that holds the folder of a run on this host; empty when none does.
std::string live_holder(const std::string& run);

}  // namespace tenuto
