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
  bool listed = false;  // of a plan with chunks: by lists that do not change
  int32_t chunks = 0;  // 0 = holders of a stage share its micro-batches; else the layout is that of
                       // make_looped_plan() with so many stages of each worker
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

  // The best plan of a layout in all forms without chunks; nothing when none fits.
  std::optional<InTurnCandidate> best_of(const Layout& layout);
  // The best plan of a layout: in this form, and in all forms with as many chunks if that comes
  // near `near`, the step to beat. Without chunks, the stages that are short of memory may
  // recompute. Nothing when it does not fit.
  std::optional<InTurnCandidate> near_form(const Layout& layout, InTurnForm form, Duration near);
  // No plan of the layout without chunks has a shorter step. Cost: linear in its holders.
  Duration least_step(const Layout& layout) const;
  // No plan of the model on this cluster has a shorter step.
  Duration lower_bound() const;

  // How plans are priced.
  PriceOptions pricing() const;
  // The model and cluster in the form that searches need.
  const LayoutProblem& problem() const { return problem_; }
  // Whether backwards may be split, or must be.
  const std::vector<bool>& splits() const { return splits_; }
  // How many plans were priced.
  int64_t priced() const { return priced_; }
  // How many ops they have together.
  double ops() const { return ops_; }

 private:
  struct Pace {
    double forward = 0, backward = 0;  // by the slowest holder
    double period = 0;                 // of all holders together
  };
  struct Flight {
    std::vector<int32_t> count;  // micro-batches in flight at each stage
    std::vector<size_t> tight;   // the stages that have too little memory for those that they want
    bool fits = true;            // each holder has memory for one
  };
  Pace pace_of(const Stage& stage) const;
  double transfer(const Stage& from, const Stage& to) const;
  Flight in_flight(const Layout& layout, int32_t ahead) const;
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
