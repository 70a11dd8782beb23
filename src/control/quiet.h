// What gRPC writes to stderr by itself. Private to control/.
#pragma once

namespace tenuto {

// From now on gRPC's own lines are left out; whoever calls it says what went wrong. Only why an
// encrypted connection could not begin is known to gRPC alone: that is said in one sentence, once
// in the life of this process. With GRPC_VERBOSITY in the environment all stays as gRPC has it.
void quiet_grpc();

}  // namespace tenuto
