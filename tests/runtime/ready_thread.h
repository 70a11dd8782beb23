// A ready service over memory, in a thread of its own, for tests.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/ready_service.h"
#include "runtime/worker.h"
#include "transport/memory.h"

namespace tenuto {

class ReadyThread {
 public:
  // Reached by `members` as the worker `id`; lost together with `host`.
  ReadyThread(MemoryNetwork& network, const std::vector<WorkerId>& members, WorkerId id,
              WorkerId host)
      : desk{id, host, members},
        wire_(make_memory_transport(network, {"group", "token", kWireVersion, id, 0}, mailbox_)),
        service_(std::make_unique<ReadyService>(ReadyWire{wire_.get(), &mailbox_}, members)),
        thread_([this] {
          while (!over_) service_->serve(std::chrono::hours(1));
        }) {}
  ~ReadyThread() {
    over_ = true;
    mailbox_.post({});
    thread_.join();
    wire_.reset();
  }
  ReadyThread(const ReadyThread&) = delete;
  ReadyThread& operator=(const ReadyThread&) = delete;

  // Connects a member's wire to it.
  void connect(Transport& member) const {
    const Status status = member.connect(desk.service, wire_->address(), fresh_ticket());
    CHECK(status.ok(), status.error().message);
  }

  const ReadyDesk desk;  // each member has a copy of its own

 private:
  QueueMailbox mailbox_;
  std::unique_ptr<Transport> wire_;
  std::unique_ptr<ReadyService> service_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace tenuto
