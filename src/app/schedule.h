// tenuto schedule: orders and schedules to look at and to check.
#pragma once

#include <cstdint>
#include <iostream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/plan_file.h"
#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

// The flags of `show`, `check` and `convert`.
struct ScheduleOptions {
  std::string file;  // a schedule's text or a plan's JSON
  std::string order = "1f1b";
  int32_t stages = 4, pipelines = 1, micros = 8, chunks = 0;
  std::vector<double> holders, layers;  // of each stage, for stages with unequal holders
  std::optional<std::string> dispatch, split_backward;
  std::string page;       // file for the HTML page
  std::string to, out;    // convert: the form to write, the file to write to
  int32_t pipeline = -1;  // convert to CSV: which one
  bool json = false;
};

// The plan that the flags ask for: a file's, or an order's of the given shape.
//
// Errors: plan_from_file's, make_plan's; Invalid/Call for a flag
Result<PlanFile> plan_of_options(const ScheduleOptions& options);

// What Tenuto and PyTorch would do with a file for which `torch` is known, as JSON: {"tenuto":
// {"runs", "sentence"}, "pytorch": {...}}. `refused`: why Tenuto refuses it; empty = it runs it.
nlohmann::ordered_json runtimes_json(const TorchRun& torch, const std::string& refused);

// Writes the error to `errors`; returns exit_code_of_command(error).
int refuse_schedule(const Error& error, std::ostream& errors);

// `tenuto schedule list`: every known order with what is known of it (OrderCard), and the price of
// 8 micro-batches on 4 workers whose forward, input and weight gradient last 1 ms each, over links
// without delay.
int run_schedule_list(const ScheduleOptions& options, std::ostream& out = std::cout);
// `tenuto schedule show`: a schedule as text and as picture, each op one unit of time. Exit codes
// as run_schedule_check; 1 = the page cannot be written.
int run_schedule_show(const ScheduleOptions& options, std::ostream& out = std::cout,
                      std::ostream& errors = std::cerr);
// `tenuto schedule check`: 0 = right; 2 = unreadable; 3 = refused, with the sentence and the lists.
int run_schedule_check(const ScheduleOptions& options, std::ostream& out = std::cout,
                       std::ostream& errors = std::cerr);

// `tenuto schedule convert`: the plan in another form. Exit codes as run_schedule_check; 1 = the
// file cannot be written.
int run_schedule_convert(const ScheduleOptions& options, std::ostream& out = std::cout,
                         std::ostream& errors = std::cerr);

}  // namespace tenuto
