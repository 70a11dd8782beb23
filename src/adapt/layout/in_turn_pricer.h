// Makes plans whose holders take whole micro-batches in turn, and prices them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "adapt/layout/in_turn.h"
#include "sim/price.h"

namespace tenuto {

// How a layout becomes a plan.
struct InTurnForm {
  bool split_backward = false;
  int32_t ahead = 0;    // more micro-batches in flight than the round trip needs, for each holder
  bool listed = false;  // only with chunks: the workers run fixed lists
  int32_t chunks = 0;   // 0 = the holders of a stage share its micro-batches; else a plan of
                        // make_looped_plan() with this many stages on each worker
  bool operator==(const InTurnForm&) const = default;
};

// A layout whose plan has been priced.
struct InTurnCandidate {
  Layout layout;
  InTurnForm form;
  Plan plan;
  Duration step{};
};

// Prices layouts of a model on a cluster.
class InTurnPricer {
 public:
  // All arguments must outlive this.
  InTurnPricer(const Model& model, const Cluster& cluster, const InTurnSettings& settings,
               Watch* watch);

  // The best plan of a layout in all forms without chunks; no value if none fits.
  std::optional<InTurnCandidate> best_of(const Layout& layout);
  // Prices a layout in this form. If the step comes near `near`, the step to beat, also prices all
  // other forms with the same number of chunks. Without chunks, also tries recomputation in stages
  // that are short of memory. Returns the best plan; no value if none fits.
  std::optional<InTurnCandidate> near_form(const Layout& layout, InTurnForm form, Duration near);
  // A lower bound: no plan of the layout without chunks is faster. Cost: linear in its holders.
  Duration least_step(const Layout& layout) const;
  // A lower bound: no plan of the model on this cluster has a shorter step.
  Duration lower_bound() const;

  // The options with which plans are priced.
  PriceOptions pricing() const;
  // The model and cluster in the form that searches need.
  const LayoutProblem& problem() const { return problem_; }
  // The choices for split_backward that are tried: false, true or both.
  const std::vector<bool>& splits() const { return splits_; }
  // How many plans were priced.
  int64_t priced() const { return priced_; }
  // The total number of ops of these plans.
  double ops() const { return ops_; }

 private:
  struct Pace {
    double forward = 0, backward = 0;  // by the slowest holder
    double period = 0;                 // per micro-batch, by all holders together
  };
  struct Flight {
    std::vector<int32_t> count;  // micro-batches in flight at each stage
    std::vector<size_t> tight;   // stages whose memory is too small for the number that they want
    bool fits = true;            // each holder has memory for one micro-batch
  };
  Pace pace_of(const Stage& stage) const;
  double transfer(const Stage& from, const Stage& to) const;
  Flight in_flight(const Layout& layout, int32_t ahead) const;
  std::vector<int32_t> fitting_by_worker(const Layout& layout) const;
  int32_t fitting_micros(const Stage& stage) const;
  Layout frugal(const Layout& layout) const;
  std::vector<InTurnForm> forms(int32_t chunks) const;
  bool chunks_fit(const Plan& plan, const Layout& layout) const;
  std::optional<InTurnCandidate> near_form_as_is(const Layout& layout, InTurnForm form,
                                                 Duration near);
  std::optional<InTurnCandidate> priced_as(const Layout& layout, const InTurnForm& form);

  const Model& model_;
  const Cluster& cluster_;
  const InTurnSettings& settings_;
  const LayoutProblem problem_;
  Watch* watch_;
  std::vector<double> speed_;
  std::vector<bool> splits_;
  int64_t priced_ = 0;
  double ops_ = 0;
};

}  // namespace tenuto
