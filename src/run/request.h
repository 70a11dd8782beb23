// What a person may ask of a live run with `tenuto inject`, as requests to decide().
#pragma once

#include <string>

#include "base/result.h"
#include "control/decide.h"
#include "world/job.h"

namespace tenuto {

// Turns the WISH of `tenuto inject` into a request to decide().
//
// Errors: Invalid/Call with what can be requested, or with why this run cannot do it
Result<Request> request_of(const std::string& wish, const Job& job);

// The answer to the user, once decide() has heard the request.
std::string answer_of(const Request& request, const State& after);

}  // namespace tenuto
