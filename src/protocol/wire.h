// Conversions between the plain values of report.h and the messages of message.proto. They are kept
// apart so that few files include protobuf.
#pragma once

#include <string>

#include "protocol/message.pb.h"
#include "protocol/report.h"

namespace tenuto {

// Version of message.proto; both ends must have the same.
inline constexpr int32_t kProtocol = 7;

// The fields that show that a message belongs to this job.
struct Credentials {
  std::string job;
  std::string token;
};

// The report as it is sent.
wire::Report to_wire(const Report& report, const Credentials& credentials);
// And back. A value out of range becomes the nearest one in range: the stream was authenticated, so
// this is no reason to refuse the message.
Report from_wire(const wire::Report& message);
// Why a message does not belong to this job, as a sentence that never shows the token; empty = it
// belongs to it.
std::string refusal_of(const wire::Report& message, const Credentials& expected,
                       int32_t worker_count);

// The instruction as it is sent, without its plan.
wire::Instruction to_wire(const Instruction& instruction);
// And back, without its plan and its rest.
Instruction from_wire(const wire::Instruction& message);

// A worker's part of what is left of a step, without its plan.
void write_rest(const RestOfStep& rest, WorkerId worker, wire::Rest* to);
// And back: a part for this one worker.
RestOfStep from_wire(const wire::Rest& message);

}  // namespace tenuto
