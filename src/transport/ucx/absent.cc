// The functions of ucx.h in a build without UCX.
#include "transport/ucx/ucx.h"

namespace tenuto {

Result<std::unique_ptr<UcxTransport>> make_ucx_transport(const UcxSettings&, Hello, Mailbox&) {
  return invalid(
      "this build has no UCX: use network.wire = \"tcp\", or install libucx-dev and build with "
      "-DTENUTO_UCX=ON");
}

bool ucx_device_memory() { return false; }

std::string ucx_version() { return ""; }

std::set<std::string> ucx_transports() { return {}; }

}  // namespace tenuto
