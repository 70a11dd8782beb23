// The kernel's TCP sockets behind sockets.h: non-blocking, watched by epoll, which tells of each
// change once (edge-triggered).
#pragma once

#include <memory>

#include "transport/tcp/sockets.h"

namespace tenuto::tcp {

// `patience`: about how long the other end's host may answer nothing while no bytes are on their
// way to it; then the connection fails.
//
// Errors: Exhausted  no more file descriptors
Result<std::unique_ptr<Sockets>> make_epoll_sockets(Duration patience);

}  // namespace tenuto::tcp
