#include "protocol/connect.h"

#include <chrono>

namespace tenuto {

bool connects(grpc::Channel& channel, Duration limit) {
  const auto end = std::chrono::system_clock::now() + limit;
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel.WaitForStateChange(state, end)) return false;
  }
}

}  // namespace tenuto
