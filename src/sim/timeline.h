// Timelines for eyes: a text picture, and traces for Chrome and Perfetto. The same writer shows
// what a price promises and what workers measured.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "sim/price.h"
#include "world/event.h"

namespace tenuto {

// What workers did as spans, by worker, then start, counted from the first start of all. A receive
// lasts from the sending of its message. Times of different workers are taken as of one clock. The
// events are of one step.
std::vector<Span> spans_of(const std::vector<Event>& events);

// By worker, the stages that it holds, in the order of the model: chunk c of a worker is the c-th.
std::vector<std::vector<int32_t>> stages_by_worker(const Plan& plan);

// The compute lanes, one row a worker, at most `width` columns wide. An op is named by letter and
// micro-batch where both fit (F B W E as in the text form, U the update), idle time is dots. Where
// workers hold two stages, small letters are the second one's; where they hold more, small letters
// are every second one's and a name is stage and micro-batch ("F5.4") where all of it fits.
//
// Shapes: spans as Timeline::spans
std::string gantt(const std::vector<Span>& spans, const Plan& plan, size_t width = 100);

// The op's name in a trace: "PP:2F0" = stage 2, forward, micro-batch 0. F forward, B the whole
// backward, I its input gradient and W its weight gradient when it is split, E held-out forward;
// messages SEND_ and RECV_ with F (activation), B (gradient), N (norm), V (verdict), stage and
// micro-batch of the value's name; REDUCE, NORM, STEP.
std::string trace_name(const Op& op, bool split_backward);

// Writes a Chrome trace, event by event: a process for each worker, a thread for each of its lanes,
// an arrow from each send to its receive. Weight gradients that take no time are left out.
//
// Shapes: spans as Timeline::spans
// Units:  microseconds with three decimals, so that every nanosecond is kept
void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan);

}  // namespace tenuto
