#include "world/job.h"

#include <algorithm>
#include <charconv>

#include "base/contains.h"

namespace tenuto {

namespace {

// The numbers of a text in which spaces separate them. What is no number ends the list.
std::vector<WorkerId> workers_in(const std::string& text) {
  std::vector<WorkerId> workers;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    WorkerId worker;
    const auto [next, bad] = std::from_chars(at, end, worker.value);
    if (bad != std::errc()) break;
    workers.push_back(worker);
    at = next < end ? next + 1 : next;
  }
  return workers;
}

}  // namespace

Seats Job::seats() const {
  if (parallel.holders.empty()) return {parallel.stages};
  std::vector<std::vector<WorkerId>> places;
  for (const std::string& workers : parallel.holders) places.push_back(workers_in(workers));
  return Seats(std::move(places));
}

int32_t Job::worker_count() const {
  if (parallel.holders.empty()) return parallel.stages * parallel.pipelines;
  int32_t count = 0;
  for (const std::string& workers : parallel.holders) {
    for (const WorkerId worker : workers_in(workers)) count = std::max(count, worker.value + 1);
  }
  return count;
}

bool Job::traces(int64_t step) const {
  return step < trace_first || step >= steps - trace_last || contains(trace_steps, step);
}

bool Job::validates_after(int64_t steps_done) const {
  if (validate_micros == 0) return false;
  return steps_done == steps || (validate_every > 0 && steps_done % validate_every == 0);
}

int64_t Job::last_validation(int64_t steps_done) const {
  const int64_t done = std::min(steps_done, steps);
  if (validate_micros == 0) return 0;
  if (done == steps) return steps;
  return validate_every > 0 ? done - done % validate_every : 0;
}

}  // namespace tenuto
