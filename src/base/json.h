// Reads JSON strictly: repeated keys and deep nesting are refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// A tree of JSON whose objects keep the order of their keys.
using Json = nlohmann::ordered_json;

// The expected form of a text. `what` is its name in error messages.
struct JsonForm {
  std::string_view what;  // "plan"
  int most_depth = 1;     // how deep lists and objects may be nested
};

// Errors: Invalid/Call with `source`: an empty text; a text that is not JSON, with line and column;
//         lists or objects nested too deep; a key that stands twice in one object; a number too
//         large for a double
Result<Json> parse_json(std::string_view text, std::string_view source, const JsonForm& form);

}  // namespace tenuto
