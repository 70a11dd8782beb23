// A ready service (ready_service.h) with a wire and a thread of its own, for a process with other
// work.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "communicator/ready_service.h"
#include "transport/transport.h"

namespace tenuto {

// The service; it runs from make() until end() or the destructor.
class ReadyServer {
 public:
  // Makes the service's wire over the given mailbox.
  using MakeWire = std::function<Result<std::unique_ptr<Transport>>(Mailbox& mailbox)>;

  // Serves `members`.
  //
  // Errors: those of `make_wire`
  static Result<std::unique_ptr<ReadyServer>> make(const MakeWire& make_wire,
                                                   std::vector<WorkerId> members);
  ReadyServer(const ReadyServer&) = delete;
  ReadyServer& operator=(const ReadyServer&) = delete;
  // Ends without waiting for anybody.
  ~ReadyServer();
  // Where it listens.
  Address address() const { return wire_->address(); }
  // Ends the service: answers under way have `limit` to leave, then the wire is closed. Returns at
  // once.
  void end(Duration limit);

 private:
  ReadyServer() = default;
  void run();

  QueueMailbox mailbox_;  // must outlive the wire
  std::unique_ptr<ReadyService> service_;
  std::unique_ptr<Transport> wire_;
  std::atomic<bool> ending_ = false;
  Duration linger_{};  // set before ending_
  std::thread thread_;
};

}  // namespace tenuto
