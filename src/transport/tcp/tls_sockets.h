// Sockets whose connections are encrypted, over sockets whose connections are not. The engine of
// the wire does not know which of them it uses (docs/decisions/077-tls-on-the-tcp-wire.md).
#pragma once

#include <cstdint>
#include <memory>

#include "transport/tcp/sockets.h"
#include "transport/tcp/tls_context.h"

namespace tenuto::tcp {

// With AES-GCM a key should encrypt no more than 2^24.5 records of 16 KiB (RFC 8446, 5.5), which at
// 1 GB/s have passed after 7 minutes.
inline constexpr uint64_t kRecordsForAKey = 1 << 22;

// TLS over `inner`. After `records_for_a_key` records an end of a connection takes a new key.
std::unique_ptr<Sockets> make_tls_sockets(std::unique_ptr<Sockets> inner, TlsContext context,
                                          uint64_t records_for_a_key = kRecordsForAKey);

}  // namespace tenuto::tcp
