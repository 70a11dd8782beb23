// CHECK ends the process on a programmer's mistake, in every build. No file, message or flag may
// make a CHECK fail: for wrong input, functions return an Error.
//
// Torch's headers define and undefine a CHECK of their own. So this header, unlike all others,
// takes effect each time that it is included: include it after theirs to get this CHECK.
#ifndef TENUTO_BASE_CHECK_H
#define TENUTO_BASE_CHECK_H

#include <string>

namespace tenuto {

// Prints the condition, the place and `what` on stderr and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& what);

}  // namespace tenuto

#endif

#undef CHECK
#define CHECK(condition, what)                                        \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::tenuto::check_failed(#condition, __FILE__, __LINE__, (what)); \
  } while (false)
