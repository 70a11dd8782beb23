// CHECK: a programmer's mistake ends the process, in every build. Never reachable from a file, a
// message or a flag: what comes from outside is answered with a Result.
//
// Torch's headers have a CHECK of their own, which they define and undefine. So this header, unlike
// all others, takes effect each time that it is included: after theirs, ours is in force.
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
