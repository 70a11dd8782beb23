// When an allocation fails in any thread, or nobody catches an exception, the program prints one
// sentence and ends with exit code 1 instead of a signal.
#pragma once

namespace tenuto {

// Makes this process end that way from now on. `program` is the name that begins the sentence, a
// string literal. Call this first in main().
void end_with_last_words(const char* program);

}  // namespace tenuto
