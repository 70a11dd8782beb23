// A fuzz target is one function over one input, called by libFuzzer or by replay.cc. A failed CHECK
// ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/result.h"

// Reads one input. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tenuto {

// The input as text.
inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Checks that an error begins with `start`, where the fault is, and says more than that.
inline void expect_sentence(const Error& error, std::string_view start) {
  CHECK(error.message.compare(0, start.size(), start) == 0 && error.message.size() > start.size(),
        "a refusal that does not say where: " + error.message);
}

}  // namespace tenuto
