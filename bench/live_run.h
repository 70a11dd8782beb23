// A run of `tenuto train` that goes on while a benchmark does something to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/unit.h"

namespace tenuto {

// What one process has taken so far.
struct ProcessFigures {
  double processor = 0;   // seconds of processor time
  double memory_mib = 0;  // resident, the most at any time
};

// A run. Its processes end with this object, or when this process ends.
class LiveRun {
 public:
  // Starts `tenuto train` with the file that write_job() has written in `folder`.
  LiveRun(const std::string& tenuto, const std::filesystem::path& folder);
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;
  ~LiveRun();

  // The run's folder.
  const std::filesystem::path& folder() const { return folder_; }
  // Waits until `steps` steps have been committed; ends the program if the run ends before, or has
  // not come so far within the limit.
  void wait_for(int64_t steps, Duration limit);
  // How many steps have been committed.
  int64_t steps() const;
  // Waits for its end, which must be a good one.
  void finish(Duration limit);

  // The processes of its workers, and the other ones that it has started: its coordinator's.
  std::vector<pid_t> workers() const { return children(true); }
  std::vector<pid_t> coordinators() const { return children(false); }
  // Where a process listens, "127.0.0.1:port".
  static std::vector<std::string> ports_of(pid_t process);
  static ProcessFigures figures_of(pid_t process);
  // The lines in the logs of its workers and in what the program itself has said.
  int64_t log_lines() const;

 private:
  bool has_ended();
  std::vector<pid_t> children(bool workers) const;

  std::filesystem::path folder_, log_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace tenuto
