// One attempt to connect, for callers that have other addresses to try. Only protocol/ and control/
// use this.
#pragma once

#include <grpcpp/grpcpp.h>

#include "base/unit.h"

namespace tenuto {

// True when the channel is connected; false as soon as a try has failed, or after `limit`: the
// other end may be a host that is gone.
bool connects(grpc::Channel& channel, Duration limit);

}  // namespace tenuto
