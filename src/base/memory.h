// How this process treats memory that it has freed.
#pragma once

namespace tenuto {

// Keeps freed memory up to a gibibyte for the next allocation instead of giving it back to the
// system each time. For programs that build and drop large arrays over and over: a planner that
// prices thousands of schedules would spend a tenth of its time on getting the same pages again,
// and a worker would get the pages of each large activation anew.
void keep_freed_memory();

}  // namespace tenuto
