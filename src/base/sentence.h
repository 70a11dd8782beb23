// Shortens sentences that are shown to a person, because they may quote input of any length.
#pragma once

#include <string>
#include <string_view>

namespace tenuto {

// `text` with every word of more than 200 letters cut to its begin and end, with dots between.
std::string told(std::string_view text);

// The first 60 letters of `text`, with question marks instead of control characters, and with dots
// at the end if it is cut: for an error message that says what was found.
std::string excerpt(std::string_view text);

}  // namespace tenuto
