// How good choosers are, measured on recorded decisions: errors of what they promise of each mode,
// and the progress of the modes that they choose.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sync/chooser_model.h"

namespace tenuto {

// A way to choose, whose alternatives say what it promises: progress per second is their score.
using Choose = std::function<Result<SyncChoice>(const ChooseInput&)>;

// Promises for every mode the same progress, which is the mean of what the modes of `training`
// achieved, and so never leaves the mode in force: what every other chooser has to beat.
//
// Requires: a record
Choose constant_chooser(std::span<const DecisionRecord> training);

// What a chooser did on recorded decisions.
struct ChooserErrors {
  std::string name;
  // Sums of |log(promised / achieved progress)|: of all modes that it promises something of, and of
  // those among them that the published heuristic knows.
  int64_t promises = 0, known_promises = 0;
  double error = 0, known_error = 0;
  // Of each choice: its achieved progress as a share of the best mode's.
  int64_t choices = 0;
  double progress = 0, least_progress = 1;  // sum, minimum
  // Adds what a chooser of the same name did on other records.
  ChooserErrors& operator+=(const ChooserErrors& more);
};

// Lets the chooser decide at each record.
//
// Errors: those of `choose`
Result<ChooserErrors> chooser_errors(const std::string& name, const Choose& choose,
                                     std::span<const DecisionRecord> records);

// The errors as a table for people: factors between promise and outcome (geometric means), and the
// progress of the chosen modes. Below it, one line says whether the chooser "constant" loses to
// each other one, and one line says whose error is the least.
std::string chooser_table(const std::vector<ChooserErrors>& all);

}  // namespace tenuto
