// What the kernel says of a process of this host: who started it, when, and how long it has run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unit.h"

namespace tenuto {

// A process. Its number may be used again when it has ended; number and start together name one
// process of a host until the host is started again.
struct ProcessStat {
  int32_t process = 0, parent = 0;
  int64_t started = 0;     // in clock ticks since the host was started
  bool has_ended = false;  // its parent has not asked for its exit code yet
  Duration cpu{};          // processor time of all its threads since it began
};

// The process of this text, which is that of /proc/PROCESS/stat. None: not such a text.
std::optional<ProcessStat> process_stat_in(std::string_view stat);

// The process with this number; none if there is none. `proc`: where the kernel's files are,
// another folder for tests.
std::optional<ProcessStat> process_stat(int32_t process, const std::string& proc = "/proc");

// All that this process has started, and what those have started, and so on. Reads one small file
// for each process of the host.
std::vector<ProcessStat> descendants_of(int32_t process, const std::string& proc = "/proc");

}  // namespace tenuto
