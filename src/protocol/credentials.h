// What a process shows with each call to the coordinator, before its first message: the metadata of
// the call. The coordinator reads no message of a process that it refuses.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>

#include "base/id.h"

namespace tenuto {

// Version of the conversation, this metadata included; both ends must have the same.
inline constexpr int32_t kProtocol = 8;

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

}  // namespace tenuto
