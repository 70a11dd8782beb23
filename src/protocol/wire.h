// Conversions between the plain values of report.h and the messages of message.proto. They are kept
// apart so that few files include protobuf.
#pragma once

#include <string>

#include "protocol/message.pb.h"
#include "protocol/report.h"

namespace tenuto {

// The report as it is sent: of `said` the first ones, kMostNumberedBytes at most.
wire::Report to_wire(const Report& report);
// And back. A value out of range becomes the nearest one in range: the stream was authenticated, so
// this is no reason to refuse the message.
Report from_wire(const wire::Report& message);

// The instruction as it is sent, without its plan, its rest and what is hosted.
wire::Instruction to_wire(const Instruction& instruction);
// And back, without its plan and its rest.
Instruction from_wire(const wire::Instruction& message);

// What is hosted for this worker's process, if anything: of the commands the first ones,
// kMostNumberedBytes at most.
void write_hosted(const std::vector<Hosted>& hosted, WorkerId worker, int32_t incarnation,
                  wire::Instruction* to);

// A worker's part of what is left of a step, without its plan.
void write_rest(const RestOfStep& rest, WorkerId worker, wire::Rest* to);
// And back: a part for this one worker.
RestOfStep from_wire(const wire::Rest& message);

}  // namespace tenuto
