// The parameters that a keeper has, with an optimizer that takes updates by their mass: for real
// training with server shards (sync/servers/server_shard.h).
//
// Idea:  TrialStep (sync/trial_step.h) does it, and this file adds the protocol: payloads, and the
//        state for another keeper. Gradients are added in the order of an update's works, so all
//        keepers of a range have the same bits. Elements do not depend on each other, so ranges can
//        be cut anywhere.
// Limit: the norm of a mean gradient is that of the whole model. A keeper of a part of it does not
//        know it, so only the keeper of a whole model clips. For the same reason no keeper skips
//        updates whose gradients are not finite.
#pragma once

#include <cstdint>
#include <memory>
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

// The optimizer of a store. All keepers of a run have the same settings. If replicas make local
// steps, these are the settings of the outer step, which outer_settings() returns.
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
  Mass full;                 // of one iteration of all replicas; of all local steps of such works
  int32_t local_steps = 1;   // of every work
  bool whole_model = false;  // the range is the whole model; otherwise `clip` is 0
};

// The settings of the outer step of a mode with local steps. There a replica sends, in the place of
// a gradient, the difference between the parameters before and after its local steps, multiplied by
// its mass. The outer step takes the mean of these differences as its gradient.
//
// Requires: mode.local_steps above 1
// Units:    `full`: micro-batches of one iteration of all replicas
MassStoreSettings outer_settings(const SyncMode& mode, Mass full);

// The state of a range, cut out of the states of other ranges and joined: so a run may go on with
// other ranges than it had. The bits are those that the store of such a range would have saved. A
// store that loads it checks that it has the store's optimizer and full mass.
//
// Requires: a range with elements
// Errors:   Corrupt/Call  no state; bytes that save() has not made; states that differ in their
//           optimizer, full mass or mass before; a state without an element of the range; elements
//           that no state has, or that two have
Result<Payload> join_states(std::span<const Payload> states, const ElementRange& range);

// The parameters in a state of the range.
//
// Errors: Corrupt/Call  bytes that save() has not made; a state of another range
Result<std::vector<float>> parameters_in(const Payload& state, const ElementRange& range);

// The parameters of one range, their moments, and the mass that they have taken.
class MassStore : public ParameterStore {
 public:
  // Errors: Invalid/Call  a rate, factor, schedule, mass or number of local steps out of range;
  //         clipping of a part of a model, or of local steps; another optimizer for local steps
  //         than that of the outer step; a range without elements; another number of parameters
  static Result<std::unique_ptr<MassStore>> make(const MassStoreSettings& settings,
                                                 const ElementRange& range,
                                                 std::vector<float> initial);

  // Requires: what make() checks
  MassStore(const MassStoreSettings& settings, const ElementRange& range,
            std::vector<float> initial);

  // Takes an update. Requires: works of settings.local_steps local steps, a mass above 0, and a
  // gradient of the range's size for each work
  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override;
  // The parameters: fp32 numbers in this machine's order of bytes, as in gradients.
  Payload parameters() const override;
  // A head with optimizer, full mass, range, mass before and a checksum; parameters; moments.
  Payload save() const override;
  // Errors: Corrupt/Call  another size; a state of another optimizer, full mass or range; a
  //         changed byte; a mass before out of range. Nothing is changed then.
  Status load(const Payload& state) override;

  // The parameters in place.
  std::span<const float> elements() const { return elements_; }

 private:
  MassStoreSettings settings_;
  ElementRange range_;
  std::vector<float> elements_;
  TrialStep step_;
};

}  // namespace tenuto::servers
