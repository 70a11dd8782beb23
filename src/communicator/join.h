// How processes form a group without a job (rendezvous): the member at place 0 listens at an
// address that all know; the others send it their own addresses and get the list of all; then every
// two connect.
//
// One limit covers all waits together. The wire's hello refuses a process that has another group,
// count or token, or that wants a place that is taken.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "communicator/communicator.h"
#include "communicator/ready_server.h"
#include "transport/process/process_wire.h"

namespace tenuto {

// The group and where it meets. Equal at all members, except `place`, `host` and `wire`.
struct JoinSettings {
  std::string group = "group", token;
  int32_t place = 0, count = 1;
  std::string meeting;  // "host:port" at which the member at place 0 is to listen
  std::string host;     // where this member listens; empty = the address from which the meeting is
                        // reached
  Duration limit = std::chrono::seconds(30);
  ProcessWireSettings wire;  // choice, device; the fields that say where it listens are overwritten
  // Calls by auto ask a service who is late (ready_service.h): a thread of the process at place 0.
  bool ready_service = false;
};

// A wire to all members: the worker at place p is worker p.
class Joined {
 public:
  // What a communicator runs on. The communicator must end before this does.
  CommunicatorWire communicator() {
    return {wire_.get(), &mailbox_, &monotonic_clock(), desk_ ? &*desk_ : nullptr};
  }
  // Settings for a communicator, with members and self filled in.
  const CommunicatorSettings& settings() const { return settings_; }
  // Waits until all that was sent has left, `limit` at most, and closes the wire. If a member ends
  // without this, its last messages may be lost.
  Status leave(Duration limit);

 private:
  friend Result<std::unique_ptr<Joined>> join(const JoinSettings& settings);
  QueueMailbox mailbox_;  // must outlive the wire
  std::unique_ptr<Transport> wire_;
  CommunicatorSettings settings_;
  std::unique_ptr<ReadyServer> server_;  // at place 0, if there is to be one
  std::optional<ReadyDesk> desk_;
};

// Joins the group; returns when every two members are connected.
//
// Errors: Invalid        place and count do not fit, the meeting is no address, or the process at
//                        the meeting refuses this one, with its reason
//         Timeout/Job    not all came within the limit; at place 0 the sentence names the missing
//         Disconnected   somebody was lost meanwhile, or nobody can listen there
Result<std::unique_ptr<Joined>> join(const JoinSettings& settings);

// Connects this member with all others over a transport that exists already. Worker p of the
// transport is the member at place p; the member at place 0 listens at its transport's address.
// Returns when every two members are connected. After an error `wire` is null. Does not read
// `group`, `token`, `host` and `wire` of the settings.
//
// Errors: as join
Status meet(const JoinSettings& settings, std::unique_ptr<Transport>& wire, Mailbox& mailbox);

}  // namespace tenuto
