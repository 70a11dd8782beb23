// What a person sees while a command computes for long, and the limit of its search.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/unit.h"
#include "base/watch.h"

namespace tenuto {

// "trying orders: 37 so far, 12 s"; `part` as Watch has it.
std::string waiting_text(const char* part, int64_t done, Duration since);

// When the next plain line comes after the one at `shown`: lines come 5 s, 10 s, 20 s, 40 s and so
// on after the beginning, so that an hour has ten of them.
Duration next_plain_line(Duration shown);

// A thread that writes to `stream`: on a terminal one line that is rewritten in place (the living
// line), from 1 s on; elsewhere plain lines, see next_plain_line(). It ends the search of `watch`
// when its seconds are over.
class WaitingLine {
 public:
  // With nullptr for the stream nothing is written. The watch must outlive this.
  WaitingLine(std::FILE* stream, Watch& watch, std::optional<double> seconds);
  // Takes the living line away.
  ~WaitingLine();
  WaitingLine(const WaitingLine&) = delete;

 private:
  void run();
  void show(Duration since);

  std::FILE* const stream_;
  Watch& watch_;
  const std::optional<Duration> limit_;
  const Duration begun_;
  const bool terminal_;
  bool living_ = false;  // the cursor stands behind a living line
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace tenuto
