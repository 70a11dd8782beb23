// Decides whether the connection of two workers has become slower, since when, and which latency
// and rate plans should use for it.
//
// Only round trips are judged: the delays of both directions in one step, added, so that the
// difference of the two clocks cancels. A delay costs a pipeline the same in either direction, so
// the sum is all that a plan needs.
//
// Three sums are kept for every step: of the least, the median and the upper delays (75th
// percentile). Changes are sought in the medians. The least delays must have moved the same way;
// otherwise the first messages of a step are as fast as ever, and only jitter or the wait at a
// worker has grown. Where the kernels of both hosts tell what they know of the network, it must
// have become slower, too (network.h); while they have told nothing since the change, the verdict
// waits.
//
// Until a change is verified, plans use the healthy link. Then they use a higher estimate (`extra`)
// at once, but a lower one only after another 20 steps. A plan that expects a slower link costs
// nothing as long as memory allows; one that expects a healthy link costs time when the link soon
// becomes slow again. The verdict that a link is healed comes as soon as it is certain.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"
#include "monitor/change.h"
#include "monitor/network.h"
#include "monitor/verdict.h"
#include "world/cluster.h"
#include "world/sample.h"

namespace tenuto {

// What a slow link adds to the healthy one.
struct LinkExtra {
  Duration latency{};  // for each direction: half of the growth of the round trip
  // Bytes per second that are left, to the higher-numbered worker and back; 0 = as when healthy.
  // Known only from the kernel, or when messages of several sizes pass and large ones are delayed
  // more than small ones.
  std::array<double, 2> rate{};
  bool operator==(const LinkExtra&) const = default;
};

// How links are judged.
struct LinkOptions {
  ChangeOptions change;
  int32_t hold_steps = 20;    // how long plans keep the higher estimate
  double drift = 0.2;         // the share from which a slow drift counts as a change
  double least_moves = 0.05;  // the share by which the least delays must have moved, too
  // The least number of steps for which a verdict waits for figures of the kernel. Where these are
  // rarer, because steps are short, it waits for twice the mean gap between them.
  int32_t patience = 20;
};

// The connection of two workers. A value; memory is bounded.
class LinkWatch {
 public:
  explicit LinkWatch(LinkOptions options = {}) : options_(options) {}

  // Takes one direction's sample of `step`; the other direction's may come earlier or later, also
  // some steps later. `floor`: a round trip that has grown by less is not slow. Samples of steps
  // before the newest complete one, and duplicates, are ignored.
  std::optional<Verdict> add(const LinkSample& sample, int64_t step, Duration floor);
  // Takes what the kernel of the host of `worker`, one of the two, knows; to be called before the
  // messages of `step` are added, where it has come by then.
  void add(const NetworkSample& sample, WorkerId worker, int64_t step);

  // What plans add to the healthy link at `step`; see above.
  LinkExtra extra(int64_t step) const;
  // True from the verdict that the link is slow until the verdict that it is healed.
  bool slow() const { return slow_; }
  // The present round trip: the one of the last verdict, else the usual one.
  Duration round_trip() const;
  // What the kernel knows; no readings where it has told nothing.
  const NetworkHistory& network() const { return network_; }

 private:
  struct Half {
    int64_t step = 0;
    LinkSample sample;
  };
  // A slow moving average, to find drifts that no single step shows.
  struct Drift {
    int32_t readings = 0;
    Level level;
    int64_t left = 0;      // the step since which it has been outside without a break
    bool outside = false;  // it differs from the last level by over half of LinkOptions::drift
  };
  std::optional<Verdict> add_round_trip(const Reading& reading, double floor);
  std::optional<Verdict> follow_drift(const Reading& reading, double floor);
  std::optional<Verdict> weigh_change(Change change, int64_t step, double floor);
  std::optional<Verdict> report_change(const Change& change, double floor);
  bool is_above_usual(double value, double floor) const;
  bool is_below_usual(double value, double floor) const;
  bool is_seconded(const Reading& reading) const;
  int64_t patience() const;
  bool least_moved(const Level& before, const Level& after, double floor) const;
  LinkExtra extra_of(const Level& level, int64_t end) const;

  LinkOptions options_;
  std::array<std::vector<Half>, 2> waiting_;  // samples without the other direction's, by direction
  ChangeSeries series_;
  Level usual_;       // the link's level while it is not slow
  Level last_level_;  // the usual level, or the one of the last verdict
  Drift drift_;
  NetworkHistory network_;
  std::optional<Change> pending_;    // waits for figures of the kernel
  std::array<double, 2> largest_{};  // bytes of the largest message, each way
  int64_t newest_ = -1;
  bool slow_ = false;
  LinkExtra present_, held_;
  int64_t held_until_ = -1;
};

}  // namespace tenuto
