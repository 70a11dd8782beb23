// Is the connection between two workers slower than it was, since when, and what should be planned
// with?
//
// Only round trips are judged: the delays of both directions in one step, added, so that the
// difference of the two clocks falls out. A pipeline loses the same by either direction, so the sum
// is all that a plan needs.
//
// Of every step three sums are kept: of the least, the median and the upper delays. The series of
// medians is searched for changes; the leasts must have moved the same way, otherwise the first
// messages of a step are as fast as ever and what grew is jitter, or the waiting at a worker.
//
// What to plan with (`extra`): nothing beyond the nominal link until a change is verified; then the
// new estimate at once if it is higher; if it is lower, the old one for another 20 steps. A healed
// link that falls ill again costs more than one that is planned too slow, which costs nothing as
// long as memory allows. The verdict that a link is healed comes as soon as it is certain.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"
#include "monitor/change.h"
#include "monitor/sample.h"
#include "monitor/verdict.h"
#include "world/cluster.h"

namespace tenuto {

// What a slow link adds to the nominal one.
struct LinkExtra {
  Duration latency{};  // to each direction: half of what the round trip has gained
  // Bytes per second that are left, from `first` to `second` and back; 0 = as nominal. Known only
  // when messages of several sizes pass and the large ones have lost more than the small ones.
  std::array<double, 2> rate{};
  bool operator==(const LinkExtra&) const = default;
};

// How links are judged.
struct LinkOptions {
  ChangeOptions change;
  int32_t hold_steps = 20;    // how long the higher estimate is planned with
  double drift = 0.2;         // a slow drift counts when it has come this far
  double least_moves = 0.05;  // the share by which the least delays must have moved, too
};

// The connection of two workers. A value; memory is bounded.
class LinkWatch {
 public:
  explicit LinkWatch(LinkOptions options = {}) : options_(options) {}

  // Takes one direction's sample of `step`; the other one may have come earlier or come later, also
  // some steps later. `floor`: a round trip that has gained less is not slow. Samples of steps
  // before the newest complete one, and doubles, say nothing.
  std::optional<Verdict> add(const LinkSample& sample, int64_t step, Duration floor);

  // What to plan with at `step`, over the nominal link; see above.
  LinkExtra extra(int64_t step) const;
  // True from the verdict that it is slow until the one that it is healed.
  bool slow() const { return slow_; }
  // The round trip that is believed: the one of the last verdict, else the usual one.
  Duration round_trip() const;

 private:
  struct Half {
    int64_t step = 0;
    LinkSample sample;
  };
  // A slow average, to see drifts that no single step shows.
  struct Drift {
    int32_t readings = 0;
    Level level;
    int64_t left = 0;  // the first step at which it was outside of a tenth, without a break
    bool outside = false;
  };
  std::optional<Verdict> add_round_trip(const Reading& reading, double floor);
  std::optional<Verdict> follow_drift(const Reading& reading, double floor);
  std::optional<Verdict> believe(const Change& change, double floor);
  bool least_moved(const Level& before, const Level& after, double floor) const;
  LinkExtra extra_of(const Level& level) const;

  LinkOptions options_;
  std::array<std::vector<Half>, 2> waiting_;  // for the other direction's sample of the step
  ChangeSeries series_;
  Level usual_;     // how the link is when it is well
  Level believed_;  // the usual level, or the one of the last verdict
  Drift drift_;
  std::array<double, 2> largest_{};  // bytes of the largest message, each way
  int64_t newest_ = -1;
  bool slow_ = false;
  LinkExtra present_, held_;
  int64_t held_until_ = -1;
};

}  // namespace tenuto
