// Messages between the launcher and its coordinator, over a pair of sockets. Both are one program
// (a fork without exec), so a notice is sent as it lies in memory.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/decide.h"

namespace tenuto {

// One message. Notices arrive whole and in order, or the other end is gone.
struct Notice {
  // From the launcher: Exited (a worker's process has ended), Asked (a person's signal), Alone (all
  // processes that it started have ended). From the coordinator: Listening (workers may connect),
  // Alive, Signal (send one to a worker's process), Start (start a new process for a worker whose
  // own has ended), StartHog and EndHog (a process that takes resources of a worker's host, see
  // run/launch.h), Leaving (the run has ended: the workers that are left may go).
  enum class Kind : uint8_t {
    Exited,
    Asked,
    Alone,
    Listening,
    Alive,
    Signal,
    Start,
    StartHog,
    EndHog,
    Leaving
  };
  Kind kind = Kind::Alive;
  bool signalled = false;  // Exited: by a signal
  bool well = false;       // Leaving: the job is done
  int32_t worker = -1;     // Exited, Signal, Start, StartHog
  int32_t number = 0;      // Exited: signal or exit code; Asked, Signal: signal; StartHog, EndHog:
                           // which hog
  int64_t committed = 0;   // Alive
  // StartHog: see Hog of run/launch.h.
  int32_t threads = 0;
  double megabytes_per_second = 0, for_ms = 0;
  char words[304] = {};  // Exited: the end of its log, zero-terminated
};
static_assert(std::is_trivially_copyable_v<Notice>);

// The news of a worker's end as a notice.
Notice to_notice(const Exited& exited);
// And back.
Exited from_notice(const Notice& notice);

// One end of the pair.
class Post {
 public:
  explicit Post(int descriptor) : descriptor_(descriptor) {}
  Post(Post&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Post& operator=(Post&& other) noexcept;
  ~Post();
  // Makes the two ends of a pair.
  //
  // Errors: Exhausted/Job  the system has none to give
  static Result<std::pair<Post, Post>> make_pair();
  // Sends; false when the other end is gone, or when its queue is full and `wait` is false.
  bool send(const Notice& notice, bool wait) const;
  // What has come since the last call; never waits.
  std::vector<Notice> take() const;
  // Readable when something has come or the other end is gone.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace tenuto
