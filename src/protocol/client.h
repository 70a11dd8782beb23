// A worker's end of the stream to the coordinator. Threads of its own repeat the worker's report,
// keep the newest instruction, and tell the worker's mailbox when a new one has come.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/mailbox.h"
#include "base/result.h"
#include "protocol/report.h"
#include "protocol/tls.h"

namespace tenuto {

// What a client is made with.
struct ClientSettings {
  std::string coordinator;  // one address or several, see protocol/addresses.h
  std::string job, token;
  WorkerId self;
  int32_t incarnation = 0;
  Duration connect_limit{};  // for the coordinator to answer
  Duration heartbeat{};      // between repeated reports
  Duration silence_limit{};  // of one stream without a message from the coordinator
  // How long, from the last message on, the worker waits for the coordinator or its successor; 0 =
  // not at all.
  Duration return_limit{};
  std::shared_ptr<const Tls> tls = nullptr;  // null: the conversation is not encrypted
};

// What the coordinator has told this worker.
struct Told {
  Instruction instruction;
  std::shared_ptr<const Plan> plan;             // of instruction.plan_serial
  std::shared_ptr<const RestOfStep> rest;       // the newest, with this worker's part alone
  std::shared_ptr<const std::string> job_toml;  // from the first message on
};

// Keeps one stream open for as long as the worker lives; when it breaks, opens another one to the
// same address, or to the next one at which a coordinator answers. Each stream begins with the last
// report. Of the instructions that arrive, the newest of the highest term counts.
class Client {
 public:
  // Closes the stream.
  virtual ~Client() = default;
  // Replaces the report that is repeated; fills in worker, incarnation and sequence.
  virtual void report(Report report) = 0;
  // Injects a partition: for `limit` nothing is sent and nothing is received.
  virtual void cut_off(Duration limit) = 0;
  // The newest instruction; null before the first.
  virtual std::shared_ptr<const Told> told() const = 0;
  // Why the conversation is over; ok while it is not.
  virtual Status state() const = 0;
};

// Connects and begins to report `first`. When a new instruction has come, posts a Done without
// ticket and peer to `mailbox`. When the conversation ends, posts a Done with the error, then calls
// `ended` with that error from the client's thread. The error is Invalid/Job when the coordinator
// has refused this worker for good, Timeout/Job when it has refused it for now, and
// Disconnected/Job when the coordinator is gone and no successor has come in time.
//
// Errors: Disconnected/Job  nobody answers within connect_limit
Result<std::unique_ptr<Client>> connect_client(const ClientSettings& settings, const Report& first,
                                               Mailbox& mailbox,
                                               std::function<void(const Error& error)> ended);

// Sends one question or request to the coordinator at `address`, which may be several (see
// protocol/addresses.h); returns the answer's text. Tries several times to connect, but sends the
// question only once.
//
// Errors: Disconnected/Job  nobody answers within the limit
//         Invalid/Call      the coordinator refused it; says why
Result<std::string> ask_coordinator(const std::string& address, const std::string& job,
                                    const std::string& token, const std::string& text,
                                    Duration limit, const Tls* tls = nullptr);

}  // namespace tenuto
