// The files of the certificates by which the coordinator and its workers identify each other, if
// TLS is on.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/tls.h"

namespace tenuto {

// The name in the coordinator's certificate, so that no worker can pose as a coordinator.
inline constexpr const char* kCoordinatorName = "tenuto-coordinator";

// Reads ca.pem, cert.pem and key.pem of a folder; null without a folder.
//
// Errors: Invalid/Job  a file that is missing or not PEM
Result<std::shared_ptr<const Tls>> read_tls(const std::string& folder);

}  // namespace tenuto
