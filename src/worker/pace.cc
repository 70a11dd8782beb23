#include "worker/pace.h"

#include <cstdint>

namespace tenuto {

Duration pause_for(Duration cpu, Duration elapsed, double cores) {
  if (!(cores > 0)) return Duration{};
  const double needed = static_cast<double>(cpu.count()) / cores;  // nanoseconds
  const double pause = needed - static_cast<double>(elapsed.count());
  if (!(pause > 0)) return Duration{};
  if (pause >= static_cast<double>(kMostPause.count())) return kMostPause;
  return Duration(static_cast<int64_t>(pause));
}

}  // namespace tenuto
