// Runs a program of the system to its end, and gives back what it has said.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Runs the program `words[0]`, which is looked for in PATH, with the other words, and waits until
// it has ended. Its input is empty.
//
// Returns: what it wrote to its output
// Errors:  Invalid/Call  there is no such program, or it ended with a failure: with the first line
//                        that it wrote to its output or its error output
//          Timeout/Call  it did not end in time, and was killed
Result<std::string> run_program(const std::vector<std::string>& words,
                                Duration limit = std::chrono::seconds(5));

}  // namespace tenuto
