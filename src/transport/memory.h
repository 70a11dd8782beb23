// The wire between threads of one process: for tests and rehearsals. Same contract as ucx.h.
#pragma once

#include <memory>

#include "base/clock.h"
#include "transport/transport.h"

namespace tenuto {

// The state that the transports of one process share. Any thread.
class MemoryNetwork {
 public:
  MemoryNetwork();
  ~MemoryNetwork();
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;
  // Kills the wire of `worker` as kill -9 would: each connected peer gets a report of the loss, the
  // worker's own calls end Disconnected and it can do nothing more.
  void lose(WorkerId worker);

  class State;

 private:
  friend std::unique_ptr<Transport> make_memory_transport(MemoryNetwork& network, Hello self,
                                                          Mailbox& mailbox, const Clock& clock);
  std::shared_ptr<State> state_;
};

// The wire of worker `self.self`, reached at "worker-N". The bytes of a message are copied once,
// from the sender's buffer into the receiver's, by the thread whose call completed the pair. A call
// that cannot be made (peer lost, tag already in use) is answered through its ticket; only a send
// or receive on a closed wire is refused at once (Cancelled/Call). connect() to an address where no
// worker listens ends Disconnected/Link. `clock` gives the moment of arrival. The mailbox must
// outlive the transport.
std::unique_ptr<Transport> make_memory_transport(MemoryNetwork& network, Hello self,
                                                 Mailbox& mailbox,
                                                 const Clock& clock = monotonic_clock());

}  // namespace tenuto
