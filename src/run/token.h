// The secret that all processes of a run show each other.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto {

// 128 random bits as 32 hexadecimal digits.
std::string random_token();

// Checks that processes can show each other this token. `where` says where it was found and begins
// the sentence.
//
// Errors: Invalid/Job
Status check_token(const std::string& token, const std::string& where);

// The token in the environment (TENUTO_TOKEN); empty = there is none.
std::string token_in_environment();

// The token in a file that its owner alone can read.
//
// Errors: Invalid/Job  it cannot be read, is empty, or can be read by others
Result<std::string> read_token(const std::string& file);

// The same; a file that is not there yet is made, with a random token.
//
// Errors: as read_token(), and Invalid/Job when it cannot be made
Result<std::string> read_or_make_token(const std::string& file);

}  // namespace tenuto
