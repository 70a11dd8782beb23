// The machine that this process runs on.
#pragma once

#include <string>

namespace tenuto {

// The machine's name, as the system gives it.
std::string host_name();

}  // namespace tenuto
