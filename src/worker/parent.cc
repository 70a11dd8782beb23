#include "worker/parent.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace tenuto {
namespace {

// The parent of a process; 0 when it is gone.
int parent_of(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  int parent = 0;
  rest >> state >> parent;
  return rest ? parent : 0;
}

// Ends this process when the process of that number ends.
void end_with(int process) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  // Without a descriptor, the process has ended (the caller checks this) or the kernel is old.
  if (descriptor < 0) return;
  std::thread([descriptor] {
    pollfd ended{descriptor, POLLIN, 0};
    while (poll(&ended, 1, -1) != 1) {
    }
    std::fprintf(stderr, "tenuto: this process ends, because the one that started it has ended\n");
    _exit(1);
  }).detach();
}

}  // namespace

bool tie_to_parent(int parent) {
  if (parent == 0) return true;  // without a launcher it answers signals itself
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  end_with(parent);
  // It may have died before the call above.
  for (int process = getppid(); process > 0; process = parent_of(process)) {
    if (process == parent) return true;
  }
  std::fprintf(stderr,
               "tenuto: this process ends, because process %d, which started it, has ended\n",
               parent);
  return false;
}

}  // namespace tenuto
