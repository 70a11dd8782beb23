#include "base/host.h"

#include <unistd.h>

namespace tenuto {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

}  // namespace tenuto
