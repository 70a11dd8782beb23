#include "transport/tcp/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace tenuto::tcp {

Proof sign(const std::string& key, std::span<const std::byte> bytes) {
  Proof proof{};
  unsigned size = 0;
  const auto* message = reinterpret_cast<const unsigned char*>(bytes.data());
  auto* result = reinterpret_cast<unsigned char*>(proof.data());
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message,
                          bytes.size(), result, &size);
  CHECK(made != nullptr && size == proof.size(), "OpenSSL makes no HMAC-SHA-256");
  return proof;
}

bool same_proof(const Proof& left, const Proof& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  auto* to = reinterpret_cast<unsigned char*>(bytes.data());
  CHECK(RAND_bytes(to, static_cast<int>(bytes.size())) == 1, "OpenSSL has no random bytes");
}

}  // namespace tenuto::tcp
