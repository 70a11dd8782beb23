// One stage of a replica: reads the parameters of its work's version, range by range, and sends
// its gradient to the keepers.
//
// Idea:  the part has one work at a time, and its gradient until the decider gives it another one.
//        The decider does that only when all keepers have the gradient, or when the work is
//        dropped. After a change of members the part sends whatever the decider says is missing.
//        A part with a parent sends its gradient to that part, which passes it on to the keepers
//        at once and keeps nothing. If the parent is lost meanwhile, the members change.
#pragma once

#include <optional>
#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// The automaton: messages in, messages out; its caller computes.
//
// After each input the caller sends take_messages(). When is_ready(), it computes the gradient of
// work() with parameters() and gives it to offer().
class ReplicaPart {
 public:
  // The part `self` of this stage.
  ReplicaPart(PeerId self, StageId stage);

  // Takes a message in. One of another epoch, or of a peer that is no member, is refused: it
  // changes nothing but refused().
  //
  // Errors: Invalid/Call  a message that a part does not get; parameters of another version or
  //         size than asked for; other members than it belongs to; a parent that is not the part of
  //         its stage of another replica; a gradient to be passed on that is of another stage or
  //         size, or for others than the keepers of its range
  Status handle(const Message& message);

  // The gradient of the work with this serial is computed. If the part has other work by now, the
  // gradient is not needed, and nothing happens.
  //
  // Shapes: a payload for each range of the stage, of its size
  // Errors: Invalid/Call  not is_ready(); another number or size of payloads
  Status offer(int64_t serial, std::vector<Payload> gradients);

  // What is to be sent, in this order. Empty afterwards.
  std::vector<Message> take_messages();

  // What it computes, or has computed; none = it waits.
  const std::optional<Work>& work() const { return work_; }
  // It has the parameters of its work, and no gradient yet.
  bool is_ready() const { return work_ && read_ && gradients_.empty(); }
  // The parameters of each range of the stage; requires is_ready().
  const std::vector<Payload>& parameters() const { return parameters_; }
  // Messages that were refused.
  int64_t refused() const { return refused_; }

 private:
  Status enter(const Header& header, const Membership& membership);
  Status take_assignment(const Header& header, const Assign& assign);
  Status take_parameters(const Header& header, const Parameters& body);
  Status pass_on(const Header& header, const Relayed& relayed);
  bool is_other_part(PeerId peer) const;
  const KeptRange& kept(size_t range) const { return membership_.ranges[ranges_[range]]; }
  void send_gradients();
  template <class Body>
  void send(PeerId to, Version version, Body body);

  PeerId self_;
  StageId stage_;
  Membership membership_;
  std::vector<size_t> ranges_;  // of its stage, in the members
  std::optional<Work> work_;
  bool started_ = false;             // the decider has said what to do in this epoch
  bool read_ = false;                // all parameters of the work's version are here
  std::vector<Payload> parameters_;  // of each range; none = not here
  std::vector<Payload> gradients_;   // of each range; empty = not computed
  std::vector<PeerId> have_;         // keepers that need no gradient from here
  std::optional<PeerId> parent_;     // passes the gradient on; none = it goes to the keepers
  std::vector<Message> messages_;
  int64_t refused_ = 0;
};

}  // namespace tenuto::servers
