// Cuts text that people read, and never within a UTF-8 character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tenuto {

// How many bytes the longest beginning of `text` has that is at most `most` bytes long and does not
// end within a UTF-8 character. In text that is not UTF-8, at least most - 3.
size_t cut_of(std::string_view text, size_t most);

// `text`, or, if it is longer than `most` bytes, a beginning of it with dots behind, in all at most
// `most` bytes. Requires: most >= 3
std::string shortened(std::string_view text, size_t most);

}  // namespace tenuto
