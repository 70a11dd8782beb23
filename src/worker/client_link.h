// The connection of a process of a run with server shards to its host, the coordinator: commands
// come with the instructions of its worker, and reports go with the reports of its worker
// (protocol/report.h).
//
// Idea:  both directions are numbered from 1, repeated until the other end has acknowledged them,
//        and taken once, in order. So nothing is lost or done twice when a stream breaks and
//        another one is opened, or when a message is repeated.
// Right: tests/worker/client_link_test.cc
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "parameter_server/run_host.h"
#include "protocol/client.h"
#include "protocol/report.h"

namespace tenuto {

// A report has at most so many messages for the host; the others wait until these have come. So it
// stays far below the limits of a message of the protocol.
inline constexpr size_t kMostSaid = 256;

// Which process speaks.
struct LinkSelf {
  WorkerId worker;
  int32_t incarnation = 0;
  std::string host;  // the name of the machine
};

// The link. Calls come from one thread.
class ClientLink : public servers::HostLink {
 public:
  // `client` outlives the link, which alone reports through it.
  ClientLink(Client& client, LinkSelf self);

  // Says how many elements the part's stage has (Report::elements).
  void tell_elements(int64_t elements);
  // Waits until the coordinator has said which process of the run this is. None = the run has ended
  // before, which has_ended() says as well.
  //
  // Errors: those of next()
  Result<std::optional<WorkerId>> process();

  // The newest instruction; null before the first.
  const std::shared_ptr<const Told>& told() const { return told_; }
  // The run goes on without this process.
  bool is_left_out() const { return is_left_out_; }

  // This process cannot go on: next() and report() say so from now on. The first reason counts.
  void fail(const Error& why);
  // Tells the coordinator that this process cannot go on, and waits until it has said what follows,
  // `limit` at most.
  void tell_failure(const Error& why, Duration limit);

  // Errors: that of fail(); those of Client::state and decode_command
  //         Cancelled/Worker  this process is left out
  //         Corrupt/Job       a command that does not follow the one before; another number for
  //                           this process than before
  Result<std::optional<servers::HostCommand>> next(Duration limit) override;
  // The coordinator has told the workers to leave the run.
  bool has_ended() const override;
  // Errors: that of fail()
  Status report(const servers::HostReport& one) override;

 private:
  Status hear();
  Status take(const Hosted& hosted);
  Result<std::optional<servers::HostCommand>> take_command();
  void say_to_host(const servers::HostReport& one);
  void tell();

  Client& client_;
  const LinkSelf self_;
  Report report_;  // what the coordinator is told, without `said`
  std::shared_ptr<const Told> told_;
  std::optional<WorkerId> process_;
  std::deque<Numbered> said_;      // that are not acknowledged
  int64_t last_said_ = 0;          // serials
  std::deque<Numbered> commands_;  // that are not taken
  int64_t last_command_ = 0;       // that has come
  std::optional<Error> failure_;
  bool is_left_out_ = false;
  // A member, because g++ 12 warns of the fields of an empty optional that it moves.
  const std::optional<servers::HostCommand> none_;
};

}  // namespace tenuto
