// Where the measured data lies that some tests compare with. It is not part of the project: such a
// test skips with a sentence where it is absent.
#pragma once

#include <cstdlib>
#include <string>

namespace tenuto {

// The path of one file: below TENUTO_DATA, or else in shared/data beside the project.
inline std::string shared_data(const std::string& name) {
  const char* place = std::getenv("TENUTO_DATA");
  return std::string(place == nullptr ? TENUTO_SOURCE_DIR "/../shared/data" : place) + "/" + name;
}

}  // namespace tenuto
