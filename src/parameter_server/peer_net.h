// Messages of server shards between processes, over a transport.
//
// All messages from one process to another arrive in the order in which they were sent. When one of
// the two is lost or drops the other, what has not arrived by then never does. A process's number
// is used once: one that comes back has another, so that nothing that was meant for the process
// before reaches it.
//
// Wire form: the messages from one process to another are numbered from 0. Message i is a *notice*
// of kNoticeBytes: the length of the head as 4 bytes, and the head if it fits. If it does not, the
// head follows, then each payload, all under Tag{-3, i, part}: part 0 is the notice, 1 the head, 2
// and above are the payloads. The receive of notice i + 1 is posted when notice i is here, and the
// others when their sizes are known. So a process that does not wait() receives no more than one
// notice of each other process, and the sender keeps the rest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/mailbox.h"
#include "base/result.h"
#include "base/unit.h"
#include "parameter_server/message_bytes.h"
#include "sync/servers/message.h"
#include "transport/transport.h"

namespace tenuto::servers {

// The size of a notice, and of the longest head that is in its notice.
inline constexpr int64_t kNoticeBytes = 512;
inline constexpr int64_t kHeadInNotice = kNoticeBytes - 4;

// One process's end of its messages with all others. Calls come from one thread, which also makes
// the calls of the transport.
//
// The connections are made by the owner of the transport, with tickets below 2^63: the others are
// this object's. One that fails counts as the loss of that process.
class PeerNet {
 public:
  // A message, and the process that has sent it.
  struct Incoming {
    WorkerId from;
    Message message;
  };
  // What has come: messages in the order of arrival, and processes that were lost, each once.
  // Messages of a lost process are those that had arrived before.
  struct Arrivals {
    std::vector<Incoming> messages;
    std::vector<WorkerId> lost;
    std::vector<std::string> reasons;  // of each lost process, as a sentence
  };

  // The transport of process `self` posts to the mailbox, which nobody else reads. Others may post
  // reports without ticket and peer, to wake the reader. Both outlive this object.
  PeerNet(Transport& transport, Mailbox& mailbox, WorkerId self);
  // Drops all processes. To let what was sent to connected ones leave first, close the transport
  // before.
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // Begins to receive from this process. Before or after the connection is made; if before, then
  // its failure is noticed.
  //
  // Errors: Invalid/Call    a number below 0, this process itself, or one that was opened or
  //                         dropped before
  //         Cancelled/Call  the transport is closed
  Status open(WorkerId process);

  // Sends a message. One to this process itself comes with the next wait(). One to a process that
  // is lost or dropped is forgotten at once, and that is no error. Payloads are not copied, and are
  // kept until the transport has read them.
  //
  // Errors: Invalid/Call    a process that was not opened
  //         Exhausted/Call  a head of more than kLargestHead bytes; nothing was sent
  //         Cancelled/Call  the transport is closed
  Status send(WorkerId to, const Message& message);

  // Returns when something has come, somebody else has woken the mailbox, or `limit` is over; then
  // nothing may be in it.
  //
  // Errors: Corrupt/Worker  a process has sent what is no message
  //         Exhausted/Call  there is no memory for the payloads of a message
  //         Cancelled/Call  the transport is closed
  //         Except for the last, that process is dropped, and lost with the next wait().
  Result<Arrivals> wait(Duration limit);

  // Nothing more comes from this process or leaves for it, and it sees this process as lost. It
  // does not count as lost here.
  void drop(WorkerId process);

  // Bytes of gradients that have not been taken from here yet: those of small messages count as
  // taken when the transport has copied them. What keepers in this process send does not count, as
  // it says nothing about how long a gradient of this process is under way.
  Bytes unsent() const { return unsent_; }
  // Bytes that have left for each process since the last call, notices and heads included; of
  // processes for which none have left nothing is listed.
  std::map<WorkerId, int64_t> take_sent();
  // The moment, on the monotonic clock, at which unsent() became zero the last time; zero = never.
  Duration emptied() const { return emptied_; }

 private:
  // A message on its way here.
  struct Coming {
    Payload head;  // none = not here
    std::vector<Payload> payloads;
    size_t missing = 0;  // of them
  };
  // What this process knows of its messages with another one.
  struct Link {
    int64_t sent = 0;           // messages
    int64_t first = 0;          // the number of coming.front()
    std::deque<Coming> coming;  // in order; the first one is not complete
    bool is_over = false;       // it is lost or dropped
  };
  // A call of the transport that has not ended, with the memory that it uses.
  struct Call {
    WorkerId process;
    int64_t number = 0;  // of the message
    uint64_t part = 0;
    bool is_send = false;
    bool is_gradient = false;  // or a part of one, and counts in unsent()
    Payload bytes;
  };

  Status send_part(WorkerId to, int64_t number, uint64_t part, bool is_gradient, Payload bytes);
  Status expect_part(WorkerId from, int64_t number, uint64_t part, int64_t size);
  Status handle(const Done& done);
  Status take(const Call& call, Link& link);
  Status take_notice(const Call& call, Link& link);
  Status take_head(const Call& call, Payload head, Link& link);
  Status deliver(WorkerId from, Link& link);
  Call end_call(std::map<Ticket, Call>::iterator call);
  void end_link(WorkerId process, Link& link);
  void lose(WorkerId process, Link& link, const Error& why);

  Transport& transport_;
  Mailbox& mailbox_;
  WorkerId self_;
  std::map<WorkerId, Link> links_;
  std::map<Ticket, Call> calls_;
  uint64_t last_ticket_;
  Arrivals arrivals_;  // for the next wait()
  Bytes unsent_;
  std::map<WorkerId, int64_t> sent_;  // see take_sent()
  Duration emptied_{};
};

}  // namespace tenuto::servers
