// A timer at which one thread sleeps until others let it ring.
#pragma once

#include "base/result.h"
#include "base/unit.h"

namespace tenuto::tcp {

// Setting the timer costs a fraction of waking a thread, and no more when it is set again before it
// has rung.
class Standby {
 public:
  Standby() = default;
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;
  ~Standby();
  // Makes the timer; the calls below require that this returned ok.
  //
  // Errors: Exhausted  no more file descriptors
  Status open();
  // Lets it ring after this time and not at the time set before, if it has not rung. Any thread.
  void call_back(Duration after);
  // Sleeps until it has rung since the last wait().
  void wait();

 private:
  int timer_ = -1;
};

}  // namespace tenuto::tcp
