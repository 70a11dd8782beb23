// What gRPC writes to stderr by itself. Only protocol/ and control/ use this.
#pragma once

namespace tenuto {

// Suppresses gRPC's own log lines from now on; its callers say what went wrong. Only gRPC knows why
// an encrypted connection could not begin, so that is still written, as one sentence and once per
// process. With GRPC_VERBOSITY in the environment this does nothing.
void quiet_grpc();

}  // namespace tenuto
