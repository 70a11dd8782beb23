// A service that tells who is late: a peer on the wire, member of no group, that runs the board of
// collective/ready_board.h. Members ask it by messages, and it answers on its own thread and wire.
// So it also answers while the member in whose process it runs is computing.
//
// A member's questions are numbered over all groups of its wire. A member asks once for each call
// of a group, and each question gets one answer, under the same number. So no message stays in the
// wire, however the calls end; a question that is out of date gets the answer void.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "collective/ready_board.h"
#include "transport/transport.h"

namespace tenuto {

// A member's view of the service. One for each wire.
struct ReadyDesk {
  WorkerId service;               // under which name the wire reaches it
  WorkerId host;                  // the member whose process it is in: they are lost together
  std::vector<WorkerId> members;  // all that may ask; places in sets are places in here
  int64_t asked = 0;              // questions so far
};

// What the service runs on: a wire of its own, and its mailbox.
struct ReadyWire {
  Transport* transport = nullptr;
  Mailbox* mailbox = nullptr;
  const Clock* clock = &monotonic_clock();
};

// The service. Used by one thread; its wire must be gone before it is.
class ReadyService {
 public:
  ReadyService(const ReadyWire& wire, std::vector<WorkerId> members);
  ReadyService(const ReadyService&) = delete;
  ReadyService& operator=(const ReadyService&) = delete;

  // Takes one report, or waits until the next patience ends, `limit` at most; then sends the
  // answers that are due.
  void serve(Duration limit);

 private:
  struct PostedReceive {  // a receive that is posted
    int32_t place = 0;
    int64_t number = 0;  // of the member's question
    std::vector<int64_t> words;
  };
  // A question without an answer: member, group, the group's generation, call.
  using Asked = std::tuple<int32_t, int64_t, int64_t, int64_t>;

  void listen(int32_t place, int64_t number);
  void hear(const PostedReceive& posted);
  void answer();

  ReadyWire wire_;
  std::vector<WorkerId> members_;
  std::map<uint64_t, PostedReceive> receives_;
  std::map<uint64_t, std::vector<int64_t>> answers_sent_;  // answers in the wire's hands
  std::map<int64_t, ReadyBoard> boards_;                   // by group
  std::map<Asked, int64_t> asked_;                         // number of the member's question
};

// A member's side of the service, for one group: the questions that have no answer yet. Used by one
// thread; must live until quiet() is true or the wire is gone.
class ReadyAsker {
 public:
  ReadyAsker(Transport& transport, const Clock& clock, ReadyDesk& desk, int64_t group)
      : transport_(transport), clock_(clock), desk_(desk), group_(group) {}

  // Whether there is a service to ask; false after give_up(), which is also called when the member
  // whose process runs the service dies.
  bool in_force() const { return in_force_; }
  // Where it is.
  const ReadyDesk& desk() const { return desk_; }
  // The name of the service in errors.
  std::string name() const;
  // Tells the service that this member has come to a call of `members`, and asks who is late.
  // `generation` is the group's (ready_board.h).
  //
  // Errors: as the wire reports them
  Status ask(int64_t generation, int64_t call, const CallCosts& costs,
             std::span<const WorkerId> members);

  // The meaning of a report of the wire.
  struct Heard {
    bool mine = false;  // it was for this object
    std::optional<ReadyAnswer> answer;
    std::optional<Error> error;  // no answer will come
  };
  // Looks at a report of the wire.
  Heard handle(const Done& done);
  // Asks nothing more, and ends the messages that are under way with the service.
  void give_up();
  // Whether no message of this object is under way.
  bool quiet() const { return flights_.empty(); }

 private:
  struct Flight {
    bool send = false;
    std::vector<int64_t> words;
  };
  Status post(bool send, std::vector<int64_t> words);

  Transport& transport_;
  const Clock& clock_;
  ReadyDesk& desk_;
  int64_t group_;
  bool in_force_ = true;
  std::map<uint64_t, Flight> flights_;
};

}  // namespace tenuto
