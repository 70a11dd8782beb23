#include "base/host.h"

#include <unistd.h>

namespace tenuto {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace tenuto
