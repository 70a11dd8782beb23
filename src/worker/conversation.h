// A worker's conversation with the coordinator, from its first report to the end of its process.
#pragma once

#include <memory>

#include "base/mailbox.h"
#include "base/result.h"
#include "protocol/client.h"
#include "worker/worker_run.h"

namespace tenuto {

// How long the coordinator has to answer, and then to send its first instruction.
inline constexpr Duration kAnswerLimit = std::chrono::seconds(20);

// The stream to the coordinator, and the mailbox that its news wakes. The rest of the process may
// use this mailbox as well.
struct Conversation {
  QueueMailbox mailbox;            // outlives all that posts to it
  std::shared_ptr<const Tls> tls;  // of this host; null = none
  Duration begun{};                // when the coordinator had answered
  std::unique_ptr<Client> client;
};

// Connects to the coordinator and begins to report. When the conversation is over, the process ends
// within a second, even in the middle of a long op; its exit code is that of exit_code_of().
//
// Errors: those of read_tls and connect_client
Status begin_conversation(const WorkerSettings& settings, Conversation& conversation);

// Waits for the first instruction. Null: the conversation is over, or kAnswerLimit is.
//
// Requires: a conversation that has begun, and nobody else that reads its mailbox
std::shared_ptr<const Told> first_told(Conversation& conversation);

}  // namespace tenuto
