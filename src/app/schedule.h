// tenuto schedule: orders and schedules to look at and to check.
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/plan.h"

namespace CLI {
class App;
}

namespace tenuto {

// The flags of `show` and `check`.
struct ScheduleOptions {
  std::string file;  // a schedule's text or a plan's JSON
  std::string order = "1f1b";
  int32_t stages = 4, pipelines = 1, micros = 8;
  std::optional<std::string> dispatch, split_backward;
  std::string page;  // file for the HTML page
  bool json = false;
};

// A plan from a plan's JSON or a schedule's text. A text's stages have one layer each, held by the
// workers that list their ops; it is listed, and its backward is split.
//
// Errors: Invalid/Call with file, line and column
Result<Plan> plan_from_file(const std::string& path);

// `tenuto schedule list`: every known order.
int run_schedule_list(const ScheduleOptions& options, std::ostream& out = std::cout);
// `tenuto schedule show`: a schedule as text and as picture, each op one unit of time. Exit codes
// as run_schedule_check; 1 = the page cannot be written.
int run_schedule_show(const ScheduleOptions& options, std::ostream& out = std::cout,
                      std::ostream& errors = std::cerr);
// `tenuto schedule check`: 0 = right; 2 = unreadable; 3 = refused, with the sentence and the lists.
int run_schedule_check(const ScheduleOptions& options, std::ostream& out = std::cout,
                       std::ostream& errors = std::cerr);

// Adds `schedule` to the command line; `chosen` gets what it does, which returns the exit code.
void add_schedule_command(CLI::App& app, std::function<void(std::function<int()>)> chosen);

}  // namespace tenuto
