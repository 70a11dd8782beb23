// The certificates by which the coordinator and its workers identify each other, if TLS is on.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace tenuto {

// PEM texts of one end: the certificate of the authority that has signed all others, and this end's
// own certificate and key. A coordinator's certificate is for the name kCoordinatorName, so that no
// worker can pose as one.
struct Tls {
  std::string authority, certificate, key;
};

// The name in the coordinator's certificate.
inline constexpr const char* kCoordinatorName = "tenuto-coordinator";

// Reads ca.pem, cert.pem and key.pem of a folder; null without a folder.
//
// Errors: Invalid/Job  a file that is missing or not PEM
Result<std::shared_ptr<const Tls>> read_tls(const std::string& folder);

}  // namespace tenuto
