// Timelines for people: what workers measured as spans like those of a price, and a text picture of
// either. Traces for Chrome and Perfetto are in trace.h.
#pragma once

#include <string>
#include <vector>

#include "ir/plan.h"
#include "sim/price.h"
#include "world/event.h"

namespace tenuto {

// The events of one step as spans, by worker, then start; times count from the first start of all.
// A receive lasts from when its message was sent. If some message ends before it was sent, the
// clocks of workers differ: they are brought to that of worker 0, as far as messages in both
// directions join them (base/clock_offsets.h). Otherwise all clocks count as one.
std::vector<Span> spans_of(const std::vector<Event>& events);

// By worker, the stages that it holds, in the order of the model: chunk c of a worker is the c-th.
std::vector<std::vector<int32_t>> stages_by_worker(const Plan& plan);

// "w3 s1": the worker and the stages that it holds; of more than four, the first and the last one.
//
// Shapes: stages_of as stages_by_worker(plan)
std::string row_name(WorkerId worker, const std::vector<std::vector<int32_t>>& stages_of);

// The compute lanes, one row a worker, at most `width` columns wide. An op is named by letter and
// micro-batch where both fit (F B W E as in the text form, U the update), idle time is dots. If
// workers hold two stages, the second one has lower-case letters. If they hold more, every second
// one has lower-case letters, and a name is stage and micro-batch ("F5.4") where all of it fits.
//
// Shapes: spans as Timeline::spans
std::string gantt(const std::vector<Span>& spans, const Plan& plan, size_t width = 100);

// The op's name in a trace: "PP:2F0" = stage 2, forward, micro-batch 0. F forward, B the whole
// backward, I its input gradient and W its weight gradient when it is split, E held-out forward;
// messages SEND_ and RECV_ with F (activation), B (gradient), N (norm), V (clip decision), stage
// and micro-batch of the value's name; REDUCE, NORM, STEP, VALID (Validate).
std::string trace_name(const Op& op, bool split_backward);

}  // namespace tenuto
