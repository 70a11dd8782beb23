// The wires between processes, for tests of all of them.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tcp_party.h"

namespace tenuto {

// A wire between processes: who turns the loop of TCP's or whether it is encrypted, and how UCX's
// sends.
enum class WireKind { Tcp, TcpEvent, TcpPoll, TcpTls, UcxAutomatic, UcxEager, UcxRendezvous };

inline std::string name_of_kind(const testing::TestParamInfo<WireKind>& info) {
  const char* names[] = {"Tcp",          "TcpEvent", "TcpPoll",      "TcpTls",
                         "UcxAutomatic", "UcxEager", "UcxRendezvous"};
  return names[static_cast<size_t>(info.param)];
}

// The settings that these wires share; empty = as the wire has it.
struct WireOptions {
  std::optional<Duration> mend_limit, connect_limit;
  std::optional<size_t> most_awaited;
  uint16_t listen_port = 0;
  bool sends_end_there = false;

  template <class Settings>
  Settings apply_to(Settings settings) const {
    if (mend_limit) settings.mend_limit = *mend_limit;
    if (connect_limit) settings.connect_limit = *connect_limit;
    if (most_awaited) settings.most_awaited = *most_awaited;
    settings.listen_port = listen_port;
    settings.sends_end_there = sends_end_there;
    return settings;
  }
};

inline Party::Make make_wire(WireKind kind, const WireOptions& options = {}) {
  if (kind == WireKind::TcpTls) return make_tcp(options.apply_to(tls_settings()));
  if (kind <= WireKind::TcpPoll) {
    TcpSettings settings;
    settings.progress = kind == WireKind::Tcp        ? WireProgress::Thread
                        : kind == WireKind::TcpEvent ? WireProgress::Event
                                                     : WireProgress::Poll;
    return make_tcp(options.apply_to(std::move(settings)));
  }
  const UcxProtocol protocol = kind == WireKind::UcxAutomatic ? UcxProtocol::Automatic
                               : kind == WireKind::UcxEager   ? UcxProtocol::Eager
                                                              : UcxProtocol::Rendezvous;
  return make_ucx(options.apply_to(ucx_settings(protocol)));
}

}  // namespace tenuto
