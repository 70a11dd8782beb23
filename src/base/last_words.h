// Ends a program that gets no memory, or has an exception that nobody catches, with a sentence and
// exit code 1, whichever thread it happens in, and never by a signal.
#pragma once

namespace tenuto {

// Makes this process end that way from now on. `program` is the name that begins the sentence, a
// string literal. Call this first in main().
void end_with_last_words(const char* program);

}  // namespace tenuto
