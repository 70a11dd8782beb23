#include "base/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>

#include "base/file.h"

namespace tenuto {

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is this one. Printing to a closed stdout must stay
    // an error, so open it read-only; messages to a closed stderr may vanish.
    const int mode = descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    [[maybe_unused]] const int taken = ::open("/dev/null", mode);
  }
}

Status finish_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return ok();
  // The errno of an earlier failed write is gone; a full disk is the usual reason.
  return write_error("the standard output", errno == 0 ? ENOSPC : errno);
}

int exit_code_with_output(int code) {
  const Status finished = finish_standard_output();
  if (finished.ok() || code != 0) return code;
  std::fprintf(stderr, "tenuto: %s\n", finished.error().message.c_str());
  return 1;
}

}  // namespace tenuto
