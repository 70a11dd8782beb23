#include "test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/check.h"

namespace tenuto {

namespace {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

Key make_key(KeyKind kind) {
  EVP_PKEY* made =
      kind == KeyKind::P256 ? EVP_EC_gen("P-256") : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  CHECK(made != nullptr, "OpenSSL makes no key");
  return {made, EVP_PKEY_free};
}

void sign(X509* certificate, const Key& key, KeyKind kind) {
  const EVP_MD* digest = kind == KeyKind::P256 ? EVP_sha256() : nullptr;
  CHECK(X509_sign(certificate, key.get(), digest) > 0, "a certificate is not signed");
}

template <class Write>
std::string pem_of(const Write& write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> to(BIO_new(BIO_s_mem()), BIO_free);
  CHECK(write(to.get()) == 1, "a PEM text cannot be written");
  char* text = nullptr;
  const long size = BIO_get_mem_data(to.get(), &text);
  return {text, static_cast<size_t>(size)};
}

std::string pem_of(const Certificate& certificate) {
  return pem_of([&](BIO* to) { return PEM_write_bio_X509(to, certificate.get()); });
}

void extend(X509* certificate, int what, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
  CHECK(extension != nullptr, "a bad extension of a certificate");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate make_certificate(const std::string& name, const Key& key, const Validity& validity) {
  static int serial = 0;
  Certificate made(X509_new(), X509_free);
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), validity.from.count());
  X509_gmtime_adj(X509_getm_notAfter(made.get()), validity.until.count());
  X509_set_pubkey(made.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  if (!validity.use.empty()) extend(made.get(), NID_ext_key_usage, validity.use);
  return made;
}

}  // namespace

struct TestAuthority::Own {
  KeyKind kind;
  Key key;
  Certificate certificate;
};

TestAuthority::TestAuthority(KeyKind kind, const std::string& name)
    : own_(std::make_unique<Own>()) {
  own_->kind = kind;
  own_->key = make_key(kind);
  own_->certificate = make_certificate(name, own_->key, {});
  X509* certificate = own_->certificate.get();
  extend(certificate, NID_basic_constraints, "critical,CA:TRUE");
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  sign(certificate, own_->key, kind);
}

TestAuthority::~TestAuthority() = default;

Tls TestAuthority::certify(const std::string& name, const Validity& validity) const {
  const Key key = make_key(own_->kind);
  const Certificate made = make_certificate(name, key, validity);
  X509_set_issuer_name(made.get(), X509_get_subject_name(own_->certificate.get()));
  sign(made.get(), own_->key, own_->kind);
  const auto write_key = [&](BIO* to) {
    return PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  };
  return {pem_of(own_->certificate), pem_of(made), pem_of(write_key)};
}

std::shared_ptr<const Tls> test_tls() {
  static const auto made = std::make_shared<const Tls>(TestAuthority().certify("worker"));
  return made;
}

tcp::TlsContext unchecked_context(const Tls& certificates) {
  const auto read = [](const std::string& pem, auto* parse) {
    const std::unique_ptr<BIO, int (*)(BIO*)> from(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    return parse(from.get(), nullptr, nullptr, nullptr);
  };
  const Certificate authority(read(certificates.authority, PEM_read_bio_X509), X509_free);
  tcp::TlsContext made(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(made.get(), 0);
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_purpose(made.get(), X509_PURPOSE_SSL_CLIENT);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(made.get()), authority.get());
  if (certificates.certificate.empty()) return made;
  const Certificate own(read(certificates.certificate, PEM_read_bio_X509), X509_free);
  const Key key(read(certificates.key, PEM_read_bio_PrivateKey), EVP_PKEY_free);
  CHECK(SSL_CTX_use_certificate(made.get(), own.get()) == 1, "a certificate is not usable");
  CHECK(SSL_CTX_use_PrivateKey(made.get(), key.get()) == 1, "a key is not usable");
  return made;
}

}  // namespace tenuto
