#include "protocol/prepare_grpc.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "protocol/tls.h"

namespace tenuto {
namespace {

void hear(gpr_log_func_args* line) {
  static std::atomic<bool> told{false};
  const std::string text = line->message == nullptr ? "" : line->message;
  if (line->severity != GPR_LOG_SEVERITY_ERROR) return;
  if (text.find("andshake failed") == std::string::npos || told.exchange(true)) return;
  const size_t colon = text.rfind(':');
  std::string cause = text.substr(colon == std::string::npos ? 0 : colon + 1);
  cause.erase(cause.find_last_not_of(". \n") + 1);
  std::fprintf(stderr,
               "tenuto: an encrypted connection could not be made (%s): both ends need "
               "certificates of one authority that are valid today, and the coordinator's must be "
               "for the name %s (coordinator.tls, --tls); this message is printed only "
               "once\n",
               cause.c_str(), kCoordinatorName);
}

}  // namespace

void prepare_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(hear);
  });
}

}  // namespace tenuto
