#include "transport/tcp/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto::tcp {

namespace {

// The most bytes of the caller in one record.
constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
// What OpenSSL reads at a time once the handshake is over: four records.
constexpr size_t kReadBuffer = 4 * (SSL3_RT_MAX_PLAIN_LENGTH + 256);
// A handshake has 1 to 10 KiB in each direction, most of it certificates.
constexpr size_t kLongestHandshake = 64 << 10;
// One that asks for key updates and does not read the answers gets no further than this.
constexpr size_t kMostUnsent = 128 << 10;

TlsStream& stream_of(BIO* source) { return *static_cast<TlsStream*>(BIO_get_data(source)); }

int read_source(BIO* source, char* to, size_t size, size_t* count) {
  BIO_clear_retry_flags(source);
  *count = stream_of(source).pull(reinterpret_cast<std::byte*>(to), size);
  if (*count > 0) return 1;
  BIO_set_retry_read(source);
  return 0;
}

int write_source(BIO* source, const char* from, size_t size, size_t* count) {
  BIO_clear_retry_flags(source);
  stream_of(source).put({reinterpret_cast<const std::byte*>(from), size});
  *count = size;
  return 1;
}

long control_source(BIO*, int what, long, void*) { return what == BIO_CTRL_FLUSH ? 1 : 0; }

int create_source(BIO* source) {
  BIO_set_init(source, 1);
  return 1;
}

// OpenSSL's table of the functions above.
const BIO_METHOD* source_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tenuto socket");
    CHECK(made != nullptr, "OpenSSL makes no BIO");
    BIO_meth_set_read_ex(made, read_source);
    BIO_meth_set_write_ex(made, write_source);
    BIO_meth_set_ctrl(made, control_source);
    BIO_meth_set_create(made, create_source);
    return made;
  }();
  return method;
}

// Whether the other end has said that it does not accept this end's certificate.
bool rejects_certificate(int reason) {
  switch (reason - SSL_AD_REASON_OFFSET) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_DECRYPT_ERROR:  // signed by another authority of the same name
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

// What an error of OpenSSL means for the connection.
Io explain_error(const SSL* ssl, unsigned long error, bool shaken) {
  const int reason = ERR_GET_REASON(error);
  const std::string words = tls_reason(error);
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return {Io::Kind::Denied, 0, false, "it shows no certificate"};
  }
  if (const long verdict = SSL_get_verify_result(ssl); verdict != X509_V_OK) {
    return {Io::Kind::Denied, 0, false,
            cat("its certificate is not accepted: ", X509_verify_cert_error_string(verdict),
                "; expected one that is valid at present and signed by the authority of this "
                "worker's ca.pem")};
  }
  if (rejects_certificate(reason)) {
    return {Io::Kind::Denied, 0, false,
            cat("it does not accept this worker's certificate (", words,
                "): expected in cert.pem one that is valid at present and signed by the authority "
                "of its ca.pem")};
  }
  if (!shaken && reason < SSL_AD_REASON_OFFSET) {
    return {Io::Kind::Refused, 0, false,
            cat("it does not speak TLS 1.3 (", words, "): use TLS at both ends or at neither")};
  }
  return {Io::Kind::Failed, 0, false, cat("TLS has failed: ", words)};
}

}  // namespace

TlsStream::TlsStream(TlsShared& shared, SocketId socket, Side side)
    : shared_(shared), socket_(socket), side_(side), ssl_(SSL_new(shared.context.get()), SSL_free) {
  BIO* source = BIO_new(source_method());
  CHECK(ssl_ != nullptr && source != nullptr, "no memory for a connection with TLS");
  BIO_set_data(source, this);
  SSL_set_bio(ssl_.get(), source, source);
  side == Side::Dialler ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
}

size_t TlsStream::pull(std::byte* to, size_t size) {
  if (read_end_ || (drained_ && moved_ > 0)) return 0;
  const std::span<std::byte> space(to, size);
  Io io = shared_.inner->read(socket_, std::span(&space, 1));
  drained_ = !io.more;
  if (io.kind == Io::Kind::Blocked) return 0;
  if (io.kind != Io::Kind::Moved) {
    read_end_ = std::move(io);
    return 0;
  }
  if (!shaken_) handshake_bytes_ += io.count;
  if (!shaken_ && handshake_bytes_ > kLongestHandshake) {
    read_end_ = Io{Io::Kind::Failed, 0, false, "its TLS handshake is too long"};
    return 0;
  }
  return io.count;
}

void TlsStream::put(std::span<const std::byte> bytes) {
  if (unsent_.empty()) {
    while (!bytes.empty() && !write_end_) {
      Io io = shared_.inner->write(socket_, std::span(&bytes, 1));
      writable_ = io.more;
      if (io.kind == Io::Kind::Moved) {
        bytes = bytes.subspan(io.count);
      } else if (io.kind != Io::Kind::Blocked) {
        write_end_ = std::move(io);
      }
      if (!writable_) break;
    }
  }
  if (write_end_ || bytes.empty()) return;
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  if (unsent_.size() > kMostUnsent) {
    write_end_ = Io{Io::Kind::Failed, 0, false, "it does not read the answers of TLS"};
  }
}

// Writes what the socket has not taken. False if it still has not taken all.
bool TlsStream::flush() {
  writable_ = true;
  if (unsent_.empty()) return true;
  const std::vector<std::byte> bytes = std::exchange(unsent_, {});
  put(bytes);
  return unsent_.empty() && !write_end_;
}

Io TlsStream::shake() {
  moved_ = 0;
  ERR_clear_error();
  const int code = SSL_do_handshake(ssl_.get());
  if (code != 1) {
    Io io = verdict(code);
    const bool stuck = io.kind == Io::Kind::Blocked && write_end_;
    return stuck ? *write_end_ : io;
  }
  shaken_ = true;
  SSL_set_default_read_buffer_len(ssl_.get(), kReadBuffer);
  return {Io::Kind::Moved, 0, true, {}};
}

// Why OpenSSL has not done what it was asked.
Io TlsStream::verdict(int code) {
  const int error = SSL_get_error(ssl_.get(), code);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    if (!read_end_) return {};
    verdict_ = explain_end();
  } else if (error == SSL_ERROR_ZERO_RETURN) {
    verdict_ = Io{Io::Kind::Ended, 0, false, {}};
  } else {
    verdict_ = explain_error(ssl_.get(), ERR_peek_error(), shaken_);
  }
  ERR_clear_error();
  return *verdict_;
}

// What the end of the socket means for the connection.
Io TlsStream::explain_end() const {
  if (read_end_->kind != Io::Kind::Ended) return *read_end_;
  if (!shaken_) return write_end_ ? *write_end_ : *read_end_;
  return {Io::Kind::Failed, 0, false, "its connection was cut off (it ends without TLS's notice)"};
}

Io TlsStream::read(std::span<const std::span<std::byte>> to) {
  if (verdict_) return *verdict_;
  // Later only write() does, which otherwise would wait for an event that does not come.
  if (!used_) flush();
  if (!shaken_) {
    if (Io io = shake(); io.kind != Io::Kind::Moved) return io;
  }
  moved_ = 0;
  drained_ = false;
  for (std::span<std::byte> space : to) {
    while (!space.empty()) {
      size_t count = 0;
      ERR_clear_error();
      const int code = SSL_read_ex(ssl_.get(), space.data(), space.size(), &count);
      if (code != 1) {
        Io io = verdict(code);
        if (moved_ == 0) return io;
        return {Io::Kind::Moved, moved_, io.kind != Io::Kind::Blocked, {}};
      }
      used_ = true;
      moved_ += count;
      space = space.subspan(count);
    }
  }
  return {Io::Kind::Moved, moved_, true, {}};
}

Io TlsStream::write(std::span<const std::span<const std::byte>> from) {
  const bool flushed = flush();
  if (write_end_) return *write_end_;
  if (!flushed) return {};
  if (!shaken_) {
    Io io = verdict_ ? *verdict_ : shake();
    if (io.kind == Io::Kind::Blocked) return io;
    if (io.kind != Io::Kind::Moved) return {Io::Kind::Failed, 0, false, std::move(io.why)};
  }
  size_t total = std::exchange(encrypted_, 0);
  while (writable_) {
    const std::span<const std::byte> record = next_record(from, total);
    if (record.empty()) break;
    renew_key();
    size_t count = 0;
    ERR_clear_error();
    const int code = SSL_write_ex(ssl_.get(), record.data(), record.size(), &count);
    if (code != 1) {
      const Io io = verdict(code);
      if (io.kind == Io::Kind::Blocked) break;
      return {Io::Kind::Failed, 0, false, io.why};
    }
    if (write_end_) return *write_end_;
    used_ = true;
    if (!unsent_.empty()) {
      encrypted_ = count;
      break;
    }
    total += count;
  }
  if (total == 0) return {};
  return {Io::Kind::Moved, total, writable_, {}};
}

// The caller's next bytes that go into one record: where they lie, or gathered if they do not lie
// in one place.
std::span<const std::byte> TlsStream::next_record(std::span<const std::span<const std::byte>> from,
                                                  size_t skip) const {
  while (!from.empty() && skip >= from.front().size()) {
    skip -= from.front().size();
    from = from.subspan(1);
  }
  if (from.empty()) return {};
  const std::span<const std::byte> first = from.front().subspan(skip);
  if (first.size() >= kRecord || from.size() == 1)
    return first.first(std::min(first.size(), kRecord));
  std::vector<std::byte>& record = shared_.record;
  record.clear();
  for (const auto& each : from) {
    const auto rest = record.empty() ? first : each;
    const auto part = rest.first(std::min(rest.size(), kRecord - record.size()));
    record.insert(record.end(), part.begin(), part.end());
  }
  return record;
}

// Asks OpenSSL for a new key ahead of the next record if the present one has encrypted many.
void TlsStream::renew_key() {
  if (records_++ < shared_.records_for_a_key) return;
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) records_ = 1;
}

void TlsStream::end() {
  if (!shaken_ || verdict_ || write_end_ || !unsent_.empty()) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

std::string TlsStream::binding() const {
  static constexpr std::string_view kLabel = "EXPORTER-tenuto-wire";
  std::string secret(32, '\0');
  const bool made = shaken_ && SSL_export_keying_material(
                                   ssl_.get(), reinterpret_cast<unsigned char*>(secret.data()),
                                   secret.size(), kLabel.data(), kLabel.size(), nullptr, 0, 0) == 1;
  CHECK(made, "a connection without a handshake has no binding");
  return secret;
}

bool TlsStream::mixes_directions() const { return !used_ || SSL_in_init(ssl_.get()) != 0; }

}  // namespace tenuto::tcp
