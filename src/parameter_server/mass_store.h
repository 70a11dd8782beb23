// The parameters that a keeper has, with an optimizer that takes updates by their mass: for real
// training with server shards (sync/servers/server_shard.h).
//
// Idea:  TrialStep (sync/trial_step.h) does it, and this file adds the protocol: payloads, and the
//        state for another keeper. Gradients are added in the order of an update's works, so all
//        keepers of a range have the same bits. Elements do not depend on each other, so ranges can
//        be cut anywhere.
//        A work with several local steps brings no gradient, but how far its steps have moved the
//        parameters: old - new, times its mass. The outer step takes the mean of such changes as
//        its gradient. It is an optimizer of its own: Nesterov's method with the rate and momentum
//        of the work, and a velocity that only outer steps change. The other optimizer's moments
//        stay as they are meanwhile.
// Limit: the norm of a mean gradient is that of the whole model. A keeper of a part of it does not
//        know it, so only the keeper of a whole model clips. For the same reason no keeper skips
//        updates whose gradients are not finite.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/mass.h"
#include "ir/mass_step.h"
#include "ir/sync_mode.h"
#include "sync/servers/server_shard.h"
#include "sync/trial_step.h"

namespace tenuto::servers {

// The largest mass of updates before a state that load() takes: far from an overflow.
inline constexpr int64_t kMostMassBefore = int64_t{1} << 53;

// The optimizer of a store, which takes gradients. All keepers of a run have the same settings.
struct MassStoreSettings {
  TrialOptimizer optimizer = TrialOptimizer::Sgd;
  double rate = 0;         // of an update of full mass, above 0; the highest one of the schedule
  double momentum = 0.9;   // Momentum, Nesterov
  double clip = 0;         // the longest mean gradient of an update; 0 = no clipping
  double clip_margin = 0;  // of clip_factor()
  AdamSettings adam = StepSetting{}.adam;  // AdamW; it has the rate above, not its own one
  double weight_decay = 0;                 // of all but AdamW: part of the clipped gradient
  int64_t decayed = kAllElements;          // weight decay is for the first so many of the range
  RateSchedule schedule = {};
  Mass full;                 // of one iteration of all replicas
  bool whole_model = false;  // the range is the whole model; otherwise `clip` is 0
};

// How this optimizer steps. Replicas have the same one for their local steps.
StepSetting step_setting_of(const MassStoreSettings& settings);

// The state of a range, cut out of the states of other ranges and joined: so a run may go on with
// other ranges than it had. The bits are those that the store of such a range would have saved. A
// store that loads it checks that it has the store's optimizer and full mass.
//
// Requires: a range with elements
// Errors:   Corrupt/Call  no state; bytes that save() has not made; states that differ in their
//           optimizer, full mass or masses before; a state without an element of the range;
//           elements that no state has, or that two have
Result<Payload> join_states(std::span<const Payload> states, const ElementRange& range);

// The parameters in a state of the range.
//
// Errors: Corrupt/Call  bytes that save() has not made; a state of another range
Result<std::vector<float>> parameters_in(const Payload& state, const ElementRange& range);

// The parameters of one range, their moments, and the masses that they have taken.
class MassStore : public ParameterStore {
 public:
  // Errors: Invalid/Call  a rate, factor, schedule or mass out of range; clipping of a part of a
  //         model; a range without elements; another number of parameters
  static Result<std::unique_ptr<MassStore>> make(const MassStoreSettings& settings,
                                                 const ElementRange& range,
                                                 std::vector<float> initial);

  // Requires: what make() checks
  MassStore(const MassStoreSettings& settings, const ElementRange& range,
            std::vector<float> initial);

  // Takes an update. After a change of the mode it may have works with different local steps. It is
  // then taken in parts: first the gradients, then the changes, those of fewer local steps first;
  // works with another outer step are a part of their own. Each part counts with its own mass. The
  // full mass of changes is that of all their local steps. The schedule of the rate goes by the
  // mass of gradients and changes together.
  //
  // Requires: a member for each work, each with a mass above 0, and a gradient or a change of the
  //           range's size for each
  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override;
  // The parameters: fp32 numbers in this machine's order of bytes, as in gradients.
  Payload parameters() const override;
  // A head with optimizer, full mass, range, the masses before of gradients and of changes, and a
  // checksum; parameters; moments; the velocity of the outer step, if there was one.
  Payload save() const override;
  // Errors: Corrupt/Call  another size; a state of another optimizer, full mass or range; a
  //         changed byte; a mass before out of range. Nothing is changed then.
  Status load(const Payload& state) override;

  // The parameters in place.
  std::span<const float> elements() const { return elements_; }

 private:
  // The works of an update that are taken together.
  struct Part {
    int32_t local_steps = 1;
    OuterStep outer;
    Mass mass;
    std::vector<std::span<const float>> values;  // gradients or changes, in the order of the works
  };

  static std::vector<Part> parts_of(const DecidedUpdate& update, std::span<const Payload> payloads);
  void take_gradients(const Part& part);
  void take_changes(const Part& part);
  void set_outer(const OuterStep& outer);
  Mass changed() const { return outer_ ? outer_->state().before : Mass{}; }

  MassStoreSettings settings_;
  ElementRange range_;
  std::vector<float> elements_;
  TrialStep step_;
  std::optional<TrialStep> outer_;  // none = there was no change yet
  OuterStep outer_step_;            // that outer_ takes
};

}  // namespace tenuto::servers
