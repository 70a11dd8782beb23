// JSON, read strictly: no key twice, no depth beyond a limit.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// A tree of JSON whose objects keep the order of their keys.
using Json = nlohmann::ordered_json;

// What a text should hold, for the sentences of its refusal.
struct JsonForm {
  std::string_view what;  // "plan"
  int most_depth = 1;     // how deep lists and objects may be nested
};

// Errors: Invalid/Call with `source`, and with line and column for a fault of form: an empty text,
//         no JSON, lists or objects nested too deep, a key that stands twice in one object, a
//         number too large for a double
Result<Json> parse_json(std::string_view text, std::string_view source, const JsonForm& form);

}  // namespace tenuto
