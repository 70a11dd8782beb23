// What a process shows with each call to the coordinator, before its first message: the metadata of
// the call. The coordinator reads no message of a process that it refuses.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/result.h"

namespace tenuto {

// Version of the conversation, this metadata included; both ends must have the same.
inline constexpr int32_t kProtocol = 12;

// The two things that show that a process belongs to a job.
struct Credentials {
  std::string job;
  std::string token;
};

// Adds the metadata to a call that has not begun. `worker` calls; < 0: a command of a user.
void show(const Credentials& credentials, WorkerId worker, grpc::ClientContext& context,
          int32_t protocol = kProtocol);

// Why the process that makes this call does not belong to the job, as a sentence that never shows
// the token; empty = it belongs to it.
std::string refusal_of(const grpc::ServerContext& context, const Credentials& expected);

// The status with which the coordinator ends the call of a process that may not take part.
// `for_now`: it may try again later. A status leaves even if the other end admits no message (a
// window of 0 in HTTP/2), so that a process that does not read cannot keep its call.
grpc::Status refusal_status(const std::string& sentence, bool for_now = false);
// The refusal that a call has ended with; none if it has ended otherwise.
//
// Errors: Invalid/Job, or Timeout/Job if it was for now; the sentence is the coordinator's
std::optional<Error> refusal_in(const grpc::Status& status);

}  // namespace tenuto
