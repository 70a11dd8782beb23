// How a program ends when it gets no memory, or when an exception comes that nobody expects: with a
// sentence and exit code 1, whichever thread it happens in, and never by a signal.
#pragma once

namespace tenuto {

// From now on this process ends so. `program` is the name that begins the sentence, a literal. Call
// it first in main().
void end_with_last_words(const char* program);

}  // namespace tenuto
