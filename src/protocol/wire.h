// Conversions between the plain values of report.h and the messages of message.proto. They are kept
// apart so that few files include protobuf.
#pragma once

#include <string>

#include "protocol/message.pb.h"
#include "protocol/report.h"

namespace tenuto {

// The report as it is sent.
wire::Report to_wire(const Report& report);
// And back. A value out of range becomes the nearest one in range: the stream was authenticated, so
// this is no reason to refuse the message.
Report from_wire(const wire::Report& message);

// The instruction as it is sent, without its plan.
wire::Instruction to_wire(const Instruction& instruction);
// And back, without its plan and its rest.
Instruction from_wire(const wire::Instruction& message);

// A worker's part of what is left of a step, without its plan.
void write_rest(const RestOfStep& rest, WorkerId worker, wire::Rest* to);
// And back: a part for this one worker.
RestOfStep from_wire(const wire::Rest& message);

}  // namespace tenuto
