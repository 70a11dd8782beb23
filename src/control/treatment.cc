#include "control/treatment.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {
namespace {

// A key, and the names of its values in the order of Treatment; null = it has no such value.
struct KeyRow {
  const char* name;
  std::string ResilienceSettings::*setting;
  Treatment Treatments::*member;
  std::array<const char*, 3> values;
};
constexpr std::array<KeyRow, 4> kRows = {{
    {"mode", &ResilienceSettings::mode, &Treatments::mode, {"off", "observe", "act"}},
    {"slow_links",
     &ResilienceSettings::slow_links,
     &Treatments::slow_links,
     {"off", "observe", "adapt"}},
    {"slow_workers",
     &ResilienceSettings::slow_workers,
     &Treatments::slow_workers,
     {nullptr, "observe", "adapt"}},
    {"layers", &ResilienceSettings::layers, &Treatments::layers, {"off", "observe", "adapt"}},
}};

const KeyRow& row_of(TreatmentKey key) { return kRows[static_cast<size_t>(key)]; }

}  // namespace

const char* name_of(TreatmentKey key) { return row_of(key).name; }

std::string ResilienceSettings::*setting_of(TreatmentKey key) { return row_of(key).setting; }

const char* name_of(TreatmentKey key, Treatment how) {
  const char* name = row_of(key).values[static_cast<size_t>(how)];
  CHECK(name != nullptr, "a key has only treatments that it has a name for");
  return name;
}

std::string setting_text(TreatmentKey key, Treatment how) {
  return cat("resilience.", name_of(key), " is \"", name_of(key, how), "\"");
}

std::optional<Treatment> treatment_from(TreatmentKey key, std::string_view name) {
  const std::array<const char*, 3>& values = row_of(key).values;
  const auto* const found = std::find_if(values.begin(), values.end(), [&](const char* value) {
    return value != nullptr && name == value;
  });
  if (found == values.end()) return std::nullopt;
  return static_cast<Treatment>(found - values.begin());
}

Treatment Treatments::of(TreatmentKey key) const { return this->*row_of(key).member; }

void Treatments::set(TreatmentKey key, Treatment how) { this->*row_of(key).member = how; }

Treatments treatments_of(const ResilienceSettings& settings) {
  Treatments all;
  for (const TreatmentKey key : kTreatmentKeys) {
    const std::optional<Treatment> how = treatment_from(key, settings.*setting_of(key));
    CHECK(how, "a job that was loaded has one of the names");
    all.set(key, *how);
  }
  return all;
}

}  // namespace tenuto
