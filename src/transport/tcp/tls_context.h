// What all encrypted connections of one wire share: the certificates and the rules of TLS.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/tls.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tenuto::tcp {

// OpenSSL's context, for connections of both directions.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// TLS 1.3 in which both ends show a certificate that the authority has signed, whatever name is in
// it. It must be one for clients, at both ends: by it a worker is a client of the coordinator, too.
//
// Errors: Invalid  a text that is not PEM, a key of another certificate, a certificate that the
//                  authority has not signed or that is not valid at present
Result<TlsContext> make_tls_context(const Tls& certificates);

// OpenSSL's words for one of its error codes.
std::string tls_reason(unsigned long code);

}  // namespace tenuto::tcp
