// The coordinator's end of the streams: gRPC around decide. It keeps the newest report of each
// worker and repeats the newest instruction to all; it does not interpret them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "control/decide.h"
#include "protocol/report.h"
#include "protocol/tls.h"

namespace tenuto {

// What a server is made with.
struct ServerSettings {
  std::string listen;  // host:port; port 0 = any free one
  std::string job, token;
  int32_t worker_count = 0;
  std::string job_toml;                      // effective settings, sent once on each stream
  std::shared_ptr<const Tls> tls = nullptr;  // null: the conversation is not encrypted
};

// A question or request of a client that is not a worker; see docs/formats-run.md.
struct Question {
  int64_t id = 0;
  std::string text;
};

// One stream per worker. Bounded: keeps one report and has one message on its way per worker.
class Server {
 public:
  virtual ~Server() = default;
  // Where workers reach it, host:port.
  virtual const std::string& address() const = 0;
  // The newest report of each worker that has reported since the last call, and the streams that
  // have ended since. A worker's report comes before the end of its stream.
  virtual std::vector<std::variant<Report, StreamEnded>> take() = 0;
  // The questions since the last call; each wants one answer.
  virtual std::vector<Question> take_questions() = 0;
  // Answers a question. `failure`: one sentence; empty = `text` is the answer.
  virtual void answer(int64_t question, const std::string& text, const std::string& failure) = 0;
  // Tells every worker, now and at the start of each later stream. `plan`: the JSON of the plan of
  // instruction.plan_serial when that is a new one, sent once on each stream; empty = as before.
  // Of `rest` and `hosted` each worker's process receives its own.
  virtual void tell(const Instruction& instruction, const std::string& plan = {}) = 0;
  // Sends the newest instruction again, which shows that the coordinator is alive, unless one has
  // been sent within the last `quiet`.
  virtual void repeat(Duration quiet) = 0;
};

// Starts listening; `wake` is called from the server's thread whenever take() has something.
//
// Errors: Invalid/Call when the address cannot be listened on.
Result<std::unique_ptr<Server>> start_server(const ServerSettings& settings,
                                             std::function<void()> wake);

}  // namespace tenuto
