#include "transport/tcp/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace tenuto::tcp {

namespace {

// AES first: OpenSSL does 16 KiB of the first one in 4 us where the processor has AES. 128 bits are
// a seventh faster than 256.
constexpr const char* kCiphers =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// The longest list of certificates of the other end, in bytes: it is kept before it is checked.
constexpr long kLongestCertificates = 32 << 10;

template <auto release>
struct Release {
  template <class T>
  void operator()(T* owned) const {
    release(owned);
  }
};
using Source = std::unique_ptr<BIO, Release<BIO_free>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using Verification = std::unique_ptr<X509_STORE_CTX, Release<X509_STORE_CTX_free>>;

// The passphrase of a key: there is none, and nobody is asked at a terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

Source source_of(const std::string& pem) {
  return Source(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::vector<Certificate> read_certificates(const std::string& pem) {
  const Source source = source_of(pem);
  std::vector<Certificate> found;
  while (X509* next = PEM_read_bio_X509(source.get(), nullptr, no_passphrase, nullptr)) {
    found.emplace_back(next);
  }
  return found;
}

std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  return tls_reason(code);
}

void set_rules(SSL_CTX* context) {
  CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1, "OpenSSL has no TLS 1.3");
  CHECK(SSL_CTX_set_ciphersuites(context, kCiphers) == 1, "OpenSSL lacks ciphers of TLS 1.3");
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION);
  // A new connection never goes on with the keys of an old one.
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // a quiet connection has none
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_max_cert_list(context, kLongestCertificates);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_purpose(context, X509_PURPOSE_SSL_CLIENT);
  SSL_CTX_set_trust(context, X509_TRUST_SSL_CLIENT);
  // What is in ca.pem is trusted, also if it was signed by somebody else.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN);
}

// Checks this end's own certificate as the other ends will do.
Status verify(SSL_CTX* context, X509* certificate) {
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  const Verification verification(X509_STORE_CTX_new());
  X509_STORE* trusted = SSL_CTX_get_cert_store(context);
  CHECK(X509_STORE_CTX_init(verification.get(), trusted, certificate, chain) == 1,
        "OpenSSL cannot begin to check a certificate");
  X509_STORE_CTX_set_purpose(verification.get(), X509_PURPOSE_SSL_CLIENT);
  if (X509_verify_cert(verification.get()) == 1) return ok();
  const int code = X509_STORE_CTX_get_error(verification.get());
  ERR_clear_error();
  return invalid(cat("other workers would not accept this worker's certificate (cert.pem): ",
                     X509_verify_cert_error_string(code),
                     "; expected one that is valid at present and signed by the authority of "
                     "ca.pem"));
}

}  // namespace

std::string tls_reason(unsigned long code) {
  const char* text = ERR_reason_error_string(code);
  return text != nullptr ? text : cat("error ", code, " of OpenSSL");
}

Result<TlsContext> make_tls_context(const Tls& certificates) {
  ERR_clear_error();
  const auto authority = read_certificates(certificates.authority);
  const auto own = read_certificates(certificates.certificate);
  const Source source = source_of(certificates.key);
  const Key key(PEM_read_bio_PrivateKey(source.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (authority.empty() || own.empty() || key == nullptr) {
    return invalid(cat(authority.empty() ? "the authority's certificate (ca.pem)"
                       : own.empty()     ? "this worker's certificate (cert.pem)"
                                         : "this worker's key (key.pem)",
                       " cannot be read: expected it as PEM, and the key without a passphrase"));
  }
  const TlsContext context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  CHECK(context != nullptr, "OpenSSL has no TLS");
  set_rules(context.get());
  for (const Certificate& each : authority) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), each.get());
  }
  if (SSL_CTX_use_certificate(context.get(), own.front().get()) != 1) {
    return invalid(cat("this worker's certificate (cert.pem) cannot be used: ", last_reason()));
  }
  for (size_t i = 1; i < own.size(); ++i) SSL_CTX_add1_chain_cert(context.get(), own[i].get());
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return invalid(
        cat("this worker's key (key.pem) does not belong to its certificate (cert.pem): ",
            last_reason()));
  }
  if (const Status status = verify(context.get(), own.front().get()); !status.ok()) {
    return status.error();
  }
  return context;
}

}  // namespace tenuto::tcp
