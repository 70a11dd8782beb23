// What the kernel knows of the processors that this process uses: how long its threads ran, how
// long they waited for a processor, and how long anybody on this host did.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/unit.h"

namespace tenuto {

// Whether a figure of the kernel is known, and why not.
enum class Figure : uint8_t {
  Known,
  NotThere,    // the kernel has no such file
  Forbidden,   // this process may not read it
  NotCounted,  // the kernel has the file, but was told not to count
  Unreadable,  // anything else
};

// All that the kernel has counted until a moment.
struct ProcessorUse {
  Duration at{};   // the moment, on monotonic_clock()
  Duration cpu{};  // processor time of all threads, since the process began
  Figure run_delay_is = Figure::NotThere;
  // How long each living thread has been ready to run, but without a processor, since it began.
  std::map<int64_t, Duration> run_delay;
  Figure pressure_is = Figure::NotThere;
  Duration
      pressure{};  // how long any task of the host has waited for a processor, since it started
};

// Processor time of all threads of this process, since it began.
Duration process_cpu_time();

// Reads it all: one small file for each thread, and one for the host. Never waits. `proc`: where
// the kernel's files are, another folder for tests.
ProcessorUse processor_use(const std::string& proc = "/proc");

// How long the thread has waited for a processor, from the text of its schedstat: three counts, the
// second one in nanoseconds. None: not such a text. Kernels that do not count write three zeros.
std::optional<Duration> run_delay_in(std::string_view schedstat);

// How long any task has waited for a processor, from the text of pressure/cpu: `total` of the line
// `some`, in microseconds. None: not such a text.
std::optional<Duration> cpu_pressure_in(std::string_view pressure);

}  // namespace tenuto
