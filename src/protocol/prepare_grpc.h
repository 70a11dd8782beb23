// Settings of gRPC for the whole process. Only protocol/ and control/ use this.
#pragma once

namespace tenuto {

// Must be called before the process makes its first channel or server. Later calls do nothing.
//
// Suppresses gRPC's own log lines from now on; its callers say what went wrong. Only gRPC knows why
// an encrypted connection could not begin, so that is still written, as one sentence and once per
// process. With GRPC_VERBOSITY in the environment the lines are not suppressed.
//
// Abseil's mutexes no longer search for cycles among the locks of gRPC. In Debian's build they do,
// which took about 4 % of the coordinator's time.
void prepare_grpc();

}  // namespace tenuto
