// Certificates for tests, made when they are needed.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/tls.h"
#include "transport/tcp/tls_context.h"

namespace tenuto {

// When a certificate is valid, relative to now, and for what ("" = anything).
struct Validity {
  std::chrono::seconds from{-3600}, until{3600};
  std::string use;
};

// Of certificates and signatures. Those of Ed25519 have the same length each time, so that a
// simulated network breaks at the same bytes each time.
enum class KeyKind { Ed25519, P256 };

// An authority that signs certificates; each has another key.
class TestAuthority {
 public:
  explicit TestAuthority(KeyKind kind = KeyKind::Ed25519, const std::string& name = "authority");
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;
  // The PEM texts of one end.
  Tls certify(const std::string& name, const Validity& validity = {}) const;

 private:
  struct Own;
  std::unique_ptr<Own> own_;
};

// The certificates of a worker, the same at each call.
std::shared_ptr<const Tls> test_tls();

// A context with these certificates that does not check whether others would accept them; without a
// certificate if its text is empty.
tcp::TlsContext unchecked_context(const Tls& certificates);

}  // namespace tenuto
