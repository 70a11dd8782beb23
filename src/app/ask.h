// The status of a live run, and requests to it.
#pragma once

#include <string>

#include "base/result.h"
#include "control/decide.h"
#include "world/job.h"

namespace tenuto {

// How to reach a live run's coordinator; kept in RUN/coordinator.json, readable by its owner alone,
// while the run lasts.
struct Whereabouts {
  std::string address, job, token;
  std::string tls;  // folder with certificates; empty = none
};

// Reads it.
//
// Errors: Invalid/Call       the run is not live, says how it has ended; or the file is another
//                            user's
//         Disconnected/Call  a process works in the folder, but the file is missing or damaged
Result<Whereabouts> read_whereabouts(const std::string& run);

// Writes it into the folder of a run.
Status write_whereabouts(const std::string& run, const Whereabouts& where);
// Removes it again.
void remove_whereabouts(const std::string& run);

// The state of the run as one JSON object.
std::string status_text(const State& state);

// Turns the WISH of `tenuto inject` into a request to decide().
//
// Errors: Invalid/Call with the possible wishes, or with what the job's links are
Result<Request> request_of(const std::string& wish, const Job& job);

// The answer to the user, once decide() has heard the request.
std::string answer_of(const Request& request, const State& after);

// `tenuto status RUN`, `tenuto inject RUN WISH`; the exit code.
int run_status(const std::string& run, bool json);
int run_inject(const std::string& run, const std::string& wish);

}  // namespace tenuto
