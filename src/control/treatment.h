// What a run does about each kind of trouble. The job says it, and a user may change it while the
// run goes on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "world/job.h"

namespace tenuto {

// What is done about one kind of trouble. Off: it is not looked for. Observe: the run only tells
// what would be done; the plan stays.
enum class Treatment : uint8_t { Off, Observe, Adapt };

// What a treatment is of: a key of [resilience]. Mode is of all the others: they are acted upon
// only if it is Adapt.
enum class TreatmentKey : uint8_t { Mode, SlowLinks, SlowWorkers, Layers };
inline constexpr std::array<TreatmentKey, 4> kTreatmentKeys = {
    TreatmentKey::Mode, TreatmentKey::SlowLinks, TreatmentKey::SlowWorkers, TreatmentKey::Layers};

// The name of the key in the section [resilience]: mode, slow_links, slow_workers or layers.
const char* name_of(TreatmentKey key);
// The member of the job with this key.
std::string ResilienceSettings::*setting_of(TreatmentKey key);

// The name of a treatment as a value of the key: off, observe or adapt; in the place of adapt, act
// as a value of `mode`.
const char* name_of(TreatmentKey key, Treatment how);
// A clause that says the setting: resilience.mode is "act".
std::string setting_text(TreatmentKey key, Treatment how);
// The treatment with that name; none if the key has no such value.
std::optional<Treatment> treatment_from(TreatmentKey key, std::string_view name);

// The treatments of a run.
struct Treatments {
  Treatment mode = Treatment::Adapt;
  Treatment slow_links = Treatment::Observe;
  Treatment slow_workers = Treatment::Observe;  // Adapt: micro-batches may go to other workers
  Treatment layers = Treatment::Off;            // moves of layers, after slowness or losses

  // The treatment of what `key` names.
  Treatment of(TreatmentKey key) const;
  // Changes it.
  void set(TreatmentKey key, Treatment how);
  // True when slow workers and slow links are looked for at all.
  bool watch() const { return mode != Treatment::Off && slow_links != Treatment::Off; }
  // True when plans may change because of them.
  bool act() const { return mode == Treatment::Adapt && slow_links == Treatment::Adapt; }
  auto operator<=>(const Treatments&) const = default;
};

// Those that a job begins with.
//
// Requires: the job has been loaded, so each key has one of its values
Treatments treatments_of(const ResilienceSettings& settings);

}  // namespace tenuto
