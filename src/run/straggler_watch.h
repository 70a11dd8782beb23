// Names the stragglers of a run with server shards, with their causes (sync/verdict.h).
//
// Idea:  the newest iterations of all replicas are compared whenever one has ended. A replica is
//        named when it was a straggler in most of its last iterations, for the same reason, and
//        once more when it was none in most of them. One late iteration says nothing.
// Right: tests/run/straggler_watch_test.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/unit.h"
#include "ir/sync_mode.h"
#include "sync/predict_record.h"
#include "world/straggler_cause.h"

namespace tenuto {

// A replica straggles, or does not any more.
struct StragglerNews {
  ReplicaId replica;
  bool straggles = true;
  StragglerCause cause = StragglerCause::Device;  // if it straggles
  std::string sentence;
};

// Iterations in, news out. It has no clock.
class StragglerWatch {
 public:
  // So many iterations of a replica are looked at, of which kMost must agree.
  static constexpr size_t kLast = 8, kMost = 5;
  // The least time between two pieces of news about one replica.
  static constexpr Duration kPause = std::chrono::seconds(30);

  // `replicas`: of the run.
  explicit StragglerWatch(int32_t replicas) : replicas_(static_cast<size_t>(replicas)) {}

  // The replicas that are in the run from now on. What was known of others is forgotten.
  void set_replicas(const std::set<ReplicaId>& present);

  // A replica has ended an iteration. One that is not in the run changes nothing.
  //
  // Units: `now`: on one clock in all calls, never going back
  std::optional<StragglerNews> add(ReplicaId replica, const IterationSample& sample, Duration now);

 private:
  // Why a replica straggled in an iteration, as a number of StragglerCause; kNot = it did not.
  static constexpr size_t kNot = kStragglerCauses;

  struct Replica {
    bool is_present = true;
    bool has_sample = false;
    IterationSample newest;
    std::deque<size_t> findings;  // of the last iterations
    size_t told = kNot;           // what the news said last
    bool was_told = false;        // there was any news
    Duration told_at{};           // when
    std::string sentence;         // on the newest iteration in which it straggled
  };

  bool may_compare() const;
  size_t find(size_t own);

  std::vector<Replica> replicas_;
};

}  // namespace tenuto
