// When an allocation fails, or nobody catches an exception, in whichever thread: prints one
// sentence and ends the program with exit code 1, instead of letting it die by a signal.
#pragma once

namespace tenuto {

// Makes this process end that way from now on. `program` is the name that begins the sentence, a
// string literal. Call this first in main().
void end_with_last_words(const char* program);

}  // namespace tenuto
