// The choosers of sync modes behind one face: the look-ahead, the published heuristic, and the
// learned chooser that takes over from it.
#pragma once

#include <memory>
#include <span>

#include "sync/choose.h"
#include "sync/chooser_model.h"

namespace tenuto {

// The time between two decisions.
constexpr Duration kDecisionEvery = std::chrono::seconds(1);

// Chooses the mode of one run, again and again.
class Chooser {
 public:
  Chooser() = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  virtual ~Chooser() = default;
  // The mode with which the run begins, when no replica has been heard of. `times`: of replicas
  // that are all equally fast. `kappa`: what age costs
  virtual SyncMode first(std::span<const IterationTime> times, double kappa) const = 0;
  // The mode from now on. Errors: those of modes_to_compare (sync/choose.h), and as each chooser
  // says
  virtual Result<SyncChoice> choose(const ChooseInput& input) = 0;
  // Applied gradients per second since the last choice, above 0.
  virtual void achieved([[maybe_unused]] double gradients_per_second) {}
};

// choose_by_look_ahead, with its errors; begins with first_mode.
std::unique_ptr<Chooser> look_ahead_chooser();

// choose_by_heuristic whenever the set of stragglers has changed; begins with synchronous.
std::unique_ptr<Chooser> published_chooser();

// The heuristic leads until the model is surely better. That is so while two things are true: on
// the outcomes held out from its training, the model's promises of gradients per second were surely
// less wrong than the heuristic's; and on those of this run they are not surely more wrong. Only
// modes that the heuristic knows are compared. Whoever leads decides alone, each time. If the model
// leads from the beginning, the run begins with first_mode.
//
// Errors: those of choose_by_model
std::unique_ptr<Chooser> learned_chooser(const ChooserModel& model);

// choose_by_heuristic on the means of the samples, whatever was chosen before. The alternatives are
// those modes of modes_to_compare that the formula knows, with what it promises of them.
//
// Errors: those of modes_to_compare and choose_by_heuristic
Result<SyncChoice> choose_as_published(const ChooseInput& input);

}  // namespace tenuto
