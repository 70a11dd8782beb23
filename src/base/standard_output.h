// The standard output of a program: what is lost there is an error, as with any other file.
#pragma once

#include "base/result.h"

namespace tenuto {

// Takes the places of standard streams that are closed, so that no file which is opened later gets
// their numbers and with them what is printed. Call it first of all.
void hold_standard_streams();

// Writes out what std::cout and stdout still keep. Call it last of all.
//
// Errors: those of write_error (base/file.h), when this or anything printed before was lost
Status finish_standard_output();

// The exit code of a program that ends with `code`, after finish_standard_output: 1 with a sentence
// on stderr where the program was fine and its output was lost.
int exit_code_with_output(int code);

}  // namespace tenuto
