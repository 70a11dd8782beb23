// How transport_bench ends when something fails. It has two processes, made by fork, and the child
// must not run the destructors of what it has from its parent; so both end at once.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/result.h"

namespace tenuto {

// Prints the sentence and ends this process.
[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "transport_bench: %s\n", why.c_str());
  std::_Exit(1);
}

// Does so if the status is an error.
inline void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

}  // namespace tenuto
