// Finds when a series changed, and how sure that is. Online: it takes one reading at a time.
//
// Idea:   the series is a sequence of runs, each with a mean and a spread of its own. For every
//         reading at which the present run may have begun, keep how probable that is and the mean
//         and spread of the readings since. A change is reported when a recent run is nearly
//         certain, has three readings, and its mean differs from the one before by a tenth and by
//         more than a floor.
// Steps:  (1) take the logarithm of the reading, softened near zero; (2) keep a reading back if it
//         is far from the likeliest run: a single one is a spike and is forgotten, three that agree
//         are taken together; (3) multiply each run's probability by the Student-t density that it
//         gives the reading; a new run starts with the hazard; (4) drop improbable runs. Where
//         another measurement seconds the readings, two that agree are enough in (2), and a change
//         needs two.
// Source: Adams, MacKay, "Bayesian online changepoint detection", arXiv 0710.3742; normal-inverse-
//         gamma runs. Differs: the reading at which a run starts is weighed under the new run, not
//         under the old one. Otherwise the probability of a run of length 0 is always the hazard,
//         whatever the reading is.
// Not taken: comparing the means of a window before and of a window after. That finds a step of
//         15 % as soon, but gives no probability, and a person must choose a spread for every link.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tenuto {

// One reading of a series. Changes are sought in `value`; the numbers of `beside` are only averaged
// over the same runs.
struct Reading {
  int64_t at = 0;  // the step
  double value = 0;
  std::array<double, 4> beside{};
  bool seconded = false;  // another measurement shows the same distance from the present level
};

// The average of a run's readings: geometric for `value`, arithmetic for `beside`.
struct Level {
  int64_t since = 0;     // the step of the run's first reading
  int32_t readings = 0;  // how many
  double value = 0;
  std::array<double, 4> beside{};
};

// A verified change: the levels before and after it, the step at which it was found, and its
// probability.
struct Change {
  Level before, after;
  int64_t found = 0;
  double sure = 0;
};

// How a series is judged.
struct ChangeOptions {
  double soften = 50e3;       // added to a value before its logarithm is taken: 50 us in ns
  double hazard = 1.0 / 250;  // probability of a change at any reading
  double spread = 0.03;       // assumed for a new run, as a share of the value
  double resolution = 0.01;   // the least spread of any run, as a share of the value
  double surprise = 3.5;      // spreads from the likeliest run at which a reading is kept back
  double certain = 0.99;      // probability at which a change is reported
  double ratio = 0.1;         // means that differ by a smaller share count as the same
};

// One series. A value: copies are independent; memory is bounded.
class ChangeSeries {
 public:
  explicit ChangeSeries(ChangeOptions options = {}) : options_(options) {}

  // Takes the next reading (at a later step than those before). Returns the change that it
  // completes, if any. Means that differ by less than `floor` count as the same, too.
  //
  // Cost: O(runs kept), 27 at most
  std::optional<Change> add(const Reading& reading, double floor);

  // The level of the likeliest present run; it has no readings before the first add().
  Level level() const;
  // The spread of its readings, as a share of the value.
  double spread() const;
  // True when the last reading was far from the likeliest run and is kept back.
  bool kept_back() const { return !kept_.empty(); }
  // How many readings have been taken.
  int64_t readings() const { return readings_; }

 private:
  struct Run {
    int64_t born = 0;                                   // number of its first reading
    double mass = 0;                                    // probability that it is the present one
    double mean = 0, weight = 0, shape = 0, scale = 0;  // normal-inverse-gamma
    double gamma_ratio = 0;                             // gamma(shape + 1/2) / gamma(shape)
    int64_t since = 0;
    int32_t readings = 0, seconded = 0;  // seconded: of these readings
    std::array<double, 4> beside{};
    Level before;  // the likeliest run when this one was born
    double before_spread = 0;
  };
  double log_of(double value) const;
  Level level_of(const Run& run) const;
  double density(const Run& run, double x) const;
  double spread_of(const Run& run) const;
  Run fresh(int64_t at, double center) const;
  void join(Run& run, const Reading& reading, double x) const;
  void update(const Reading& reading);
  void drop_improbable();
  const Run& likeliest() const;
  size_t agreeing() const;
  std::optional<Change> judge(int64_t at, double floor);

  ChangeOptions options_;
  std::vector<Run> runs_;      // by age, oldest first
  std::vector<Reading> kept_;  // far from the likeliest run, in a row
  int64_t readings_ = 0;
  int64_t judged_ = 0;  // `born` of the newest run that was reported or judged to be no change
};

}  // namespace tenuto
