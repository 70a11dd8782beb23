#include "world/straggler_cause.h"

namespace tenuto {

namespace {

// A part that explains this share of the added time is its cause.
constexpr double kExplains = 0.5;

}  // namespace

std::string to_text(StragglerCause cause) {
  switch (cause) {
    case StragglerCause::Link:
      return "link";
    case StragglerCause::Cpu:
      return "cpu";
    case StragglerCause::Device:
      break;
  }
  return "device";
}

std::optional<StragglerCause> cause_of(const TimeParts& own, const TimeParts& best) {
  const double compute = own.compute - best.compute;
  if (own.transfer - best.transfer >= compute) return StragglerCause::Link;
  if (own.run_delay) {
    const double delay = *own.run_delay - best.run_delay.value_or(0);
    return delay >= kExplains * compute ? StragglerCause::Cpu : StragglerCause::Device;
  }
  if (!own.pressure) return std::nullopt;
  const double idle = compute - (own.cpu - best.cpu);
  const bool pressed = *own.pressure >= best.pressure.value_or(0) + kPressure;
  return pressed && idle >= kExplains * compute ? StragglerCause::Cpu : StragglerCause::Device;
}

}  // namespace tenuto
