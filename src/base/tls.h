// The certificates by which the ends of an encrypted connection identify each other.
#pragma once

#include <string>

namespace tenuto {

// PEM texts of one end: the certificate of the authority that has signed all others, and this end's
// own certificate and key.
struct Tls {
  std::string authority, certificate, key;
};

}  // namespace tenuto
