#include "protocol/addresses.h"

#include <algorithm>

namespace tenuto {

std::vector<std::string> addresses_in(const std::string& coordinator) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= coordinator.size();) {
    const size_t end = std::min(coordinator.find(',', begin), coordinator.size());
    all.push_back(coordinator.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

}  // namespace tenuto
