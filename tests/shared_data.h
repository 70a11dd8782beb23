// Finds the measured data that some tests compare with. It is not part of the project: if it is
// absent, such a test says so and skips.
#pragma once

#include <cstdlib>
#include <string>

#include "source_tree.h"

namespace tenuto {

// The path of one file: below TENUTO_DATA, or else in shared/data beside the project.
inline std::string shared_data(const std::string& name) {
  const char* place = std::getenv("TENUTO_DATA");
  return std::string(place == nullptr ? source_tree() + "/../shared/data" : place) + "/" + name;
}

}  // namespace tenuto
