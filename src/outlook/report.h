// What days of training in a cluster with troubles are worth with all remedies, without each of
// them, and with the rules that a run has by default; as text, as JSON and as a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "outlook/step_price.h"
#include "outlook/trouble.h"
#include "outlook/week.h"

namespace tenuto::outlook {

// A cluster, what it trains, and what happens to it.
struct Question {
  ClusterShape shape;
  StepSetup step;
  WeekSetup week;
  std::vector<Trouble> troubles;  // ordered by their begin
  Stepping stepping = Stepping::Changes;
};

// A set of remedies, and what the run gets done with it.
struct Row {
  std::string name;
  Remedies remedies;
  WeekResult result;
  double micros_per_second = 0;  // useful ones, over the whole time
  double share = 0;              // of what the undisturbed cluster does
};

// The answer to a Question.
struct Report {
  Question question;
  StepCost undisturbed;  // a step without troubles
  double undisturbed_micros_per_second = 0;
  std::vector<Row> rows;  // all remedies; today's defaults; all but one, for each; none
};

// The remedies of a run with default keys: resilience.dead_workers = "continue", slow_links =
// "adapt", slow_workers = "observe", layers = "off", restarts = 0.
inline constexpr Remedies kTodaysRemedies{true, false, true, false, false};

// Runs the days for every row.
Report report_of(const Question& question);

// A table for people.
std::string to_text(const Report& report);

// Everything, with the shares over time.
nlohmann::ordered_json to_json(const Report& report);

// An SVG file: the goodput over time with all remedies, with today's rules and with none.
std::string picture_of(const Report& report);

}  // namespace tenuto::outlook
