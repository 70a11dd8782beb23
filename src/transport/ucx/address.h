// Devices and sockets of the UCX wire. Private to its files.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "transport/address.h"

namespace tenuto {

// The network device that owns `host`. Errors: Invalid when none does.
Result<std::string> device_of(const std::string& host);

// Takes this process's sockets at a port away from UCX's own thread: when this returns, that thread
// accepts and reads nothing there any more. Listeners are taken away first; after that no
// connection is accepted any more, so none is missed. The other ends see their connections end.
void silence(uint16_t port);

}  // namespace tenuto
