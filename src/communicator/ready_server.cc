#include "communicator/ready_server.h"

#include <utility>

namespace tenuto {

Result<std::unique_ptr<ReadyServer>> ReadyServer::make(const MakeWire& make_wire,
                                                       std::vector<WorkerId> members) {
  std::unique_ptr<ReadyServer> server(new ReadyServer);
  auto wire = make_wire(server->mailbox_);
  if (!wire.ok()) return wire.error();
  server->wire_ = std::move(wire).value();
  const ReadyWire over{server->wire_.get(), &server->mailbox_};
  server->service_ = std::make_unique<ReadyService>(over, std::move(members));
  server->thread_ = std::thread([server = server.get()] { server->run(); });
  return server;
}

void ReadyServer::run() {
  constexpr Duration kLong = std::chrono::hours(1);
  while (!ending_) service_->serve(kLong);
  if (linger_ == Duration::zero()) return;
  [[maybe_unused]] const Status status = wire_->close(linger_);
}

void ReadyServer::end(Duration limit) {
  linger_ = limit;
  ending_ = true;
  mailbox_.post({});
}

ReadyServer::~ReadyServer() {
  if (thread_.joinable()) {
    if (!ending_) end(Duration::zero());
    thread_.join();
  }
  wire_.reset();  // before the memory that its receives write to
}

}  // namespace tenuto
