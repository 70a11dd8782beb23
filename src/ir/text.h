// The schedule's text form, in and out (docs/formats-schedule.md). One worker a line:
//
//     stages 2 micros 2
//     w0: F0.0 >a0.0@1 F0.1 >a0.1@1 <g1.0@1 B0.0 W0.0 <g1.1@1 B0.1 W0.1 R0:0 <n1@1 M0 >v0@1 U0
//     w1: <a0.0@0 F1.0 B1.0 >g1.0@0 W1.0 <a0.1@0 F1.1 B1.1 >g1.1@0 W1.1 R1:1 M1 >n1@0 <v0@0 U1
//     group 0: stages 0 members 0 collective 0
//     group 1: stages 1 members 1 collective 1
//     collective 0: members 0 chunks 1
//     collective 1: members 1 chunks 1
//
// F B W E stage.micro; > and < a message with its kind (a activation, g gradient, n norm, v clip
// decision, t total), name and peer; R stage:group (R stage/part:group for a bucket); M measure; U
// update (Step); in a staggered step N MeasureAhead, A StepAhead, V Validate. A collective's rounds
// follow its line, indented, one a line: "from>to.chunk" puts, "from>to.chunk+" adds. Lists, groups
// and collectives are numbered in order from 0. Blank lines and what follows a # are ignored. A
// group that does not sum by the ring says so after its collective: "by late-one chunks 7 late 3".
// If Schedule::all_reduce is not "ring", it ends the first line: "sums auto".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// One op as its token.
std::string to_text(const Op& op);
// The letter of an op: the first of its token; for a message the letter of its value, a g n v t.
char letter_of(const Op& op);
// One value as it is named in messages: a0.3, stash 1.2, ...
std::string to_text(const Value& value);
// One move of a collective as its token.
std::string to_text(const Move& move);
// The schedule as text.
std::string to_text(const Schedule& schedule);
// Reads the text back: the same schedule. Only `check` says whether it is correct.
//
// Errors: Invalid/Call with `source`, line and column, what was expected and what was found.
Result<Schedule> schedule_from_text(std::string_view text, std::string_view source);
// Reads one op's token; Invalid/Call says what was expected.
Result<Op> op_from_text(std::string_view token);
// Reads one move's token.
Result<Move> move_from_text(std::string_view token);

// A plan for a schedule alone: a worker that lists an op of a stage holds the stage; one layer per
// stage, listed dispatch, split backward, no held-out pass.
//
// Errors: Invalid/Call when the schedule has no stages, or more of them than ops
Result<Plan> plan_of_schedule(Schedule schedule, std::string_view source);

// A place in a schedule that a report points at.
struct Mark {
  WorkerId worker;
  int32_t index = 0;  // into the worker's list; its length = behind the last op
};
// The marked workers' lists (the first `most` of them), one a line, with an arrow below each marked
// op; long lists are cut to what stands around the arrow.
std::string table(const Schedule& schedule, const std::vector<Mark>& marks, size_t most = 8);

// The whole plan as JSON, the form in which it is stored and sent; plan_from_json(to_json(p)) == p.
std::string to_json(const Plan& plan);
// Reads it back; Invalid/Call with `source` and the place of the fault. Refuses unknown, missing
// and duplicate fields.
Result<Plan> plan_from_json(std::string_view text, std::string_view source);

}  // namespace tenuto
