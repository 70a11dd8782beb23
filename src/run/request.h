// What a person may ask of a live run with `tenuto inject`: as requests to decide(), and of a run
// with server shards.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "base/result.h"
#include "control/decide.h"
#include "ir/sync_mode.h"
#include "world/job.h"

namespace tenuto {

// Turns the WISH of `tenuto inject` into a request to decide().
//
// Errors: Invalid/Call with what can be requested, or with why this run cannot do it
Result<Request> request_of(const std::string& wish, const Job& job);

// The wish for a sync mode; none = the chooser of the run decides again.
struct ModeWish {
  std::optional<SyncMode> mode;
};

// What a run with server shards can do: change the mode, make a checkpoint, signal or start a
// process, and start or end a hog (Request::Kind::Checkpoint, ::Signal and ::Hog).
using ServedRequest = std::variant<ModeWish, Request>;

// The same for a run with server shards, whose processes are workers by number.
//
// Errors: Invalid/Call with what can be requested, or with why this run cannot do it
Result<ServedRequest> served_request_of(const std::string& wish, const Job& job);

// The name of the treatment of now of what `key` names; empty if it cannot be changed while a run
// of this job goes on.
std::string shown_treatment(const Treatments& treatments, TreatmentKey key, const Job& job);

// What the events say of a request for a fault.
std::string describe_request(const Request& request);

// The answer to the user, once decide() has heard the request.
std::string answer_of(const Request& request, const State& after);

}  // namespace tenuto
