// A process that takes resources of its host away from the workers there: the faults "cpu-hog" and
// "bandwidth-hog" (world/fault.h). The launcher starts it (run/launch.h), and it ends with the
// launcher.
//
// Right: tests/app/hog_test.py, with real processes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// What a hog takes, and for how long.
struct HogSettings {
  int32_t threads = 0;              // that compute; 0 = none, it sends bytes instead
  std::string device = "lo";        // the network device with the address to which it sends
  double megabytes_per_second = 0;  // of these bytes; 0 = as much as it can
  double for_ms = 0;                // how long, in real time; 0 = until somebody ends the process
  int like = 0;  // process on whose processors it computes; 0 = on all that this process may use
};

// Computes or sends, and returns when the time is over. Nothing of this process should run beside
// it.
//
// Errors: Invalid/Job  there is no such process, or the device has no address;
//         Exhausted/Job  the system has no socket to give, or the connection broke
Status run_hog(const HogSettings& settings);

}  // namespace tenuto
