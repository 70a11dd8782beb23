// What `tenuto status` prints for a person.
#pragma once

#include <string>

namespace tenuto {

// The lines about the status of a run. `status`: the coordinator's answer (run/status.h) as a JSON
// object, with the name of the run as `job`.
std::string status_lines(const std::string& status);

}  // namespace tenuto
