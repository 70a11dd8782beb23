// The state of a stage, given to a worker that comes to a run: in parts, one between any two steps,
// while steps go on. Both ends of it.
//
// The learner takes every update with the others, so a part that it has been given stays right: a
// part is made of whole units (Compute::state_unit), each with all that an update of it reads. A
// part is of the version that both hold between two steps: the learner waits for it there, the
// donor only copies it and goes on.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/unit.h"
#include "control/report.h"
#include "runtime/compute.h"
#include "transport/transport.h"

namespace tenuto {

// A moment between two steps at one worker. All of it must live until the lesson is ready.
struct LessonTime {
  WorkerId self;
  int64_t epoch = 0, version = 0;
  int64_t plan_serial = 0;  // in force
  int64_t voids = 0;        // runs of this epoch, see Runner
  Duration now{};
  Transport* transport = nullptr;
  Compute* compute = nullptr;
};

// How large parts of a state are, in bytes.
struct PartSizes {
  int64_t first = 1 << 20;  // of the first part; later ones are as large as time allows
  int64_t least = 1 << 16;  // no part is smaller, but for the last one
  int64_t most = 1 << 28;   // nor larger: both ends keep a copy of it
};

// What one worker gives and is given. It must outlive the transport, which reads and fills its
// memory.
class Lessons {
 public:
  // Only the giver's sizes count: the learner is told how much comes.
  explicit Lessons(const PartSizes& sizes = {}) : sizes_(sizes) {}
  // Begins what is due at this moment: parts that this worker gives leave as soon as those before
  // are there, parts that it is given are asked for. Once for each version of an epoch.
  Status begin(const std::vector<Newcomer>& newcomers, const LessonTime& time);
  // Goes on with it; to be called after each note().
  Status advance(const LessonTime& time);
  // True when the step may begin.
  bool ready() const;
  // A call has ended. True when it was one of these.
  bool note(const Done& done, Duration now);
  // The version at which this worker had all that it is to learn; -1 = not yet.
  int64_t learned() const { return learned_; }
  // How many runs the epoch has had that were void, by who gives the last part that came.
  int64_t voids() const { return voids_; }
  // A new epoch: its wire has taken all calls with it, and what was given does not count.
  // Requires: the transport is gone
  void start_over();

 private:
  // In front of each part.
  struct Head {
    int64_t version = -1;
    int64_t first = 0, size = 0;  // of the part, bytes
    int64_t total = 0;            // of the state
    int64_t voids = 0;            // runs of this epoch, see Runner
  };
  // One stage, given or taken.
  struct Lesson {
    WorkerId peer;
    StageId stage;
    bool gives = false;
    int64_t next = 0;     // bytes that have been given or taken
    int64_t total = -1;   // of the state; -1 = not known yet
    int64_t portion = 0;  // bytes of the next part
    Head head;
    std::vector<std::byte> body;
    std::set<Ticket> open;  // calls under way
    Duration begun{};       // of the part under way
    Duration took{};        // the part before, until it was there
    Duration since{};       // the moment between steps before
    bool due = false;       // its part of this moment has not begun
    bool in_body = false;   // the learner's head is there
    bool over() const { return total >= 0 && next >= total; }
  };
  using Name = std::pair<WorkerId, StageId>;  // the learner and what it learns

  Status give(Lesson& lesson, const LessonTime& time);
  Status ask(Lesson& lesson, const LessonTime& time);
  Status take(Lesson& lesson, const LessonTime& time);

  const PartSizes sizes_;
  std::map<Name, Lesson> lessons_;
  int64_t learned_ = -1, voids_ = 0;
  Status failed_ = ok();  // a call has ended otherwise than it should
};

}  // namespace tenuto
