#include "transport/process/process_wire.h"

#include <utility>

namespace tenuto {
namespace {

// What the settings of both wires have in common.
template <class Settings>
Settings shared(const ProcessWireSettings& from) {
  Settings settings;
  settings.listen_host = from.listen_host;
  settings.listen_port = from.listen_port;
  settings.advertised_host = from.advertised_host;
  settings.sends_end_there = from.sends_end_there;
  settings.on_thread = from.on_thread;
  settings.connect_limit = from.connect_limit;
  settings.mend_limit = from.mend_limit;
  return settings;
}

// A wire of either kind as a Transport.
template <class Wire>
Result<std::unique_ptr<Transport>> as_transport(Result<std::unique_ptr<Wire>> made) {
  if (!made.ok()) return made.error();
  return std::unique_ptr<Transport>(std::move(made).value());
}

}  // namespace

WireChoice wire_choice(const std::string& name) {
  if (name == "tcp") return WireChoice::Tcp;
  return name == "ucx" ? WireChoice::Ucx : WireChoice::Automatic;
}

WireProgress wire_progress(const std::string& name) {
  if (name == "poll") return WireProgress::Poll;
  return name == "auto" ? WireProgress::Auto : WireProgress::Event;
}

WireChoice chosen_wire(WireChoice choice, bool device_memory) {
  if (choice != WireChoice::Automatic) return choice;
  return device_memory ? WireChoice::Ucx : WireChoice::Tcp;
}

Result<std::unique_ptr<Transport>> make_process_wire(const ProcessWireSettings& settings,
                                                     Hello self, Mailbox& mailbox) {
  if (chosen_wire(settings.choice, settings.device_memory) == WireChoice::Ucx) {
    auto ucx = shared<UcxSettings>(settings);
    ucx.device = settings.device;
    ucx.protocol = settings.protocol;
    ucx.device_memory = settings.device_memory;
    return as_transport(make_ucx_transport(ucx, std::move(self), mailbox));
  }
  if (settings.device_memory) return invalid("TCP does not reach an accelerator's memory: use UCX");
  auto tcp = shared<TcpSettings>(settings);
  tcp.allowed = settings.allowed;
  tcp.most_strangers = most_strangers_of(settings.workers);
  tcp.tls = settings.tls;
  tcp.progress = settings.progress;
  tcp.workers_here = settings.workers_here;
  tcp.pace = settings.pace;
  tcp.purpose_of = settings.purpose_of;
  return as_transport(make_tcp_transport(tcp, std::move(self), mailbox));
}

}  // namespace tenuto
