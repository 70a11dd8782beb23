// What a coordinator writes into the folder of its run while the run goes on: events, plans,
// checkpoints, and the picture of the steps at the end. What a person should see at once it also
// shows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "run/checkpoint.h"
#include "run/record.h"
#include "run/run_input.h"

namespace tenuto {

// When something has happened, as events name it.
struct RunMoment {
  int64_t epoch = 0, step = 0;
};

// The files of one run.
class RunFiles {
 public:
  // `input` must outlive it.
  explicit RunFiles(const RunInput& input) : input_(input) {}

  // The run begins: clears the folder and writes the settings and the first plan. Events from
  // before, and those to come, are written from now on.
  //
  // Errors: those of RunDirectory::clear, write_file, Record::open and set_aside_checkpoints
  Status begin(const std::string& plan_name, const Plan& plan, RunMoment moment);
  // The run goes on from where another coordinator has left it.
  //
  // Errors: those of Record::open
  Status take_up();
  // The metrics, while they are open; null before the run has begun.
  Record* record() { return record_ ? &*record_ : nullptr; }

  // Who else is told of each event, when it is noted.
  using Listener = std::function<void(const std::string& kind, RunMoment moment,
                                      const std::string& sentence, const EventDetails& details)>;
  // From now on events are told to `listener`, too.
  void set_listener(Listener listener) { listener_ = std::move(listener); }

  // Writes an event. One that cannot be written does not end the run; on a full disk the metrics
  // will.
  void note(const std::string& kind, RunMoment moment, const std::string& sentence,
            const EventDetails& details = {});
  // Writes an event, and shows its sentence to the user.
  void say(const std::string& kind, RunMoment moment, const std::string& sentence,
           const EventDetails& details = {});
  // Writes plan-NAME.json.
  //
  // Errors: those of write_file
  Status write_plan(const std::string& name, const Plan& plan) const;
  // Finishes a checkpoint whose files are durable. Removes older ones that the job does not keep,
  // and unfinished ones of steps up to `unfinished`. The event names its path, and then what the
  // caller has `found` of it, if that is not empty.
  //
  // Errors: those of finish_checkpoint
  Status store_checkpoint(const Manifest& manifest, int64_t unfinished, RunMoment moment,
                          const std::string& found = "");
  // The run has ended: draws its steps, if there are any, and removes unfinished checkpoints, which
  // only take space on the disk.
  void close(RunMoment moment);

 private:
  struct Event {
    std::string kind;
    RunMoment moment;
    std::string sentence;
    EventDetails details = {};
  };
  void write(const Event& event);
  Status set_later_checkpoints_aside(RunMoment moment);

  const RunInput& input_;
  Listener listener_;  // may be empty
  std::optional<Record> record_;
  std::vector<Event> early_;  // from before there is a record
};

}  // namespace tenuto
