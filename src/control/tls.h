// With what both ends of the conversation show each other who they are, when they are asked to.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace tenuto {

// PEM texts of one end: the authority that has signed for all, and its own certificate and key.
// That of a coordinator is for the name kCoordinatorName, so that no worker can pass itself off as
// one.
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
