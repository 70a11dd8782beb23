// A ready service over memory, for tests.
#pragma once

#include <memory>
#include <vector>

#include "base/check.h"
#include "communicator/ready_server.h"
#include "runtime/worker.h"
#include "transport/memory.h"

namespace tenuto {

class ReadyThread {
 public:
  // The members reach the service as worker `id`; it is lost together with worker `host`.
  ReadyThread(MemoryNetwork& network, const std::vector<WorkerId>& members, WorkerId id,
              WorkerId host)
      : desk{id, host, members} {
    const auto make_wire = [&](Mailbox& mailbox) -> Result<std::unique_ptr<Transport>> {
      return make_memory_transport(network, {"group", "token", kWireVersion, id, 0}, mailbox);
    };
    server_ = ReadyServer::make(make_wire, members).value();
  }

  // Connects a member's wire to the service.
  void connect(Transport& member) const {
    const Status status = member.connect(desk.service, server_->address(), fresh_ticket());
    CHECK(status.ok(), status.error().message);
  }

  const ReadyDesk desk;  // each member has a copy of its own

 private:
  std::unique_ptr<ReadyServer> server_;
};

}  // namespace tenuto
