// The standard output of a program: lost output is an error, as with any other file.
#pragma once

#include "base/result.h"

namespace tenuto {

// Opens /dev/null in place of each closed standard stream. Otherwise a file that is opened later
// would get the stream's descriptor and what is printed to it. Call it first of all.
void hold_standard_streams();

// Flushes std::cout and stdout. Call it last of all.
//
// Errors: those of write_error (base/file.h), if the flush fails or earlier output was lost
Status finish_standard_output();

// Calls finish_standard_output and returns `code`; but if `code` is 0 and output was lost, prints a
// sentence on stderr and returns 1.
int exit_code_with_output(int code);

}  // namespace tenuto
