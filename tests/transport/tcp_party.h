// Workers on a wire over TCP, for the tests of every wire.
#pragma once

#include <memory>
#include <utility>

#include "party.h"
#include "test_certificates.h"
#include "transport/tcp/tcp.h"

namespace tenuto {

// The settings of a wire whose connections are encrypted.
inline TcpSettings tls_settings() {
  TcpSettings settings;
  settings.tls = test_tls();
  return settings;
}

inline Party::Make make_tcp(TcpSettings settings = {}) {
  return [settings](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
    auto made = make_tcp_transport(settings, std::move(hello), mailbox);
    CHECK(made.ok(), made.error().message);
    return std::move(made).value();
  };
}

// Whose worker turns the loop.
inline Party::Make make_driven_tcp(WireProgress progress) {
  TcpSettings settings;
  settings.progress = progress;
  return make_tcp(std::move(settings));
}

}  // namespace tenuto
