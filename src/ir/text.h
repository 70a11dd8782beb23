// The schedule's text form, in and out (docs/formats.md). One worker a line:
//
//     stages 2 micros 2
//     w0: F0.0 >a0.0@1 F0.1 >a0.1@1 <g1.0@1 B0.0 W0.0 <g1.1@1 B0.1 W0.1 R0:0 M0 >n0@1 <v1@1 U0
//     w1: <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 <a0.1@0 F1.1 B1.1 >g1.1@0 W1.1 R1:1 <n0@0 M1 >v1@0 U1
//
// F B W E stage.micro; > and < a message with its kind (a activation, g gradient, n norm, v
// verdict), name and peer; R stage:group (R stage/part:group for a bucket); M measure; U update
// (Step).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// One op as its token.
std::string to_text(const Op& op);
// One value as it is named in messages: a0.3, stash 1.2, ...
std::string to_text(const Value& value);
// The schedule as text.
std::string to_text(const Schedule& schedule);
// Reads the text back.
//
// Errors: Invalid/Call with `source`, line and column, what was expected and what was found.
Result<Schedule> schedule_from_text(std::string_view text, std::string_view source);

// The whole plan as JSON, the form in which it is stored and sent; plan_from_json(to_json(p)) == p.
std::string to_json(const Plan& plan);
// Reads it back; Invalid/Call with `source` and the place of the fault.
Result<Plan> plan_from_json(std::string_view text, std::string_view source);

}  // namespace tenuto
