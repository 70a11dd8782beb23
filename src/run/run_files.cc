#include "run/run_files.h"

#include <limits>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "ir/text.h"
#include "run/steps_picture.h"
#include "world/load.h"

namespace tenuto {

Status RunFiles::begin(const std::string& plan_name, const Plan& plan, RunMoment moment) {
  const std::string& path = input_.directory->path();
  const Status cleared = input_.directory->clear(input_.rules.first_step);
  if (!cleared.ok()) return cleared;
  const Status config = write_file(path + "/config.toml", to_toml(*input_.job));
  if (!config.ok()) return config;
  const Status planned = write_plan(plan_name, plan);
  if (!planned.ok()) return planned;
  const Status opened = take_up();
  if (!opened.ok()) return opened;
  if (input_.directory->beginning() == Beginning::Resume) {
    const Status aside = set_later_checkpoints_aside(moment);
    if (!aside.ok()) return aside;
  }
  if (!input_.rules.resume_shards.empty()) {
    note("resume", moment,
         cat(input_.rules.evaluates ? "the run evaluates" : "the run continues from",
             " the checkpoint of step ", input_.rules.first_step));
  }
  return ok();
}

Status RunFiles::take_up() {
  Result<Record> record = Record::open(input_.directory->path(), *input_.job);
  if (!record.ok()) return record.error();
  record_ = std::move(record).value();
  for (const Event& event : std::exchange(early_, {})) write(event);
  return ok();
}

// Events from before the run has begun wait until the files of an earlier run are replaced.
void RunFiles::write(const Event& event) {
  if (!record_) {
    early_.push_back(event);
    return;
  }
  (void)record_->event(event.kind, event.moment.epoch, event.moment.step, event.sentence,
                       event.details);
}

void RunFiles::note(const std::string& kind, RunMoment moment, const std::string& sentence,
                    const EventDetails& details) {
  if (listener_) listener_(kind, moment, sentence, details);
  write({kind, moment, sentence, details});
}

void RunFiles::say(const std::string& kind, RunMoment moment, const std::string& sentence,
                   const EventDetails& details) {
  note(kind, moment, sentence, details);
  input_.progress->event(sentence);
}

Status RunFiles::write_plan(const std::string& name, const Plan& plan) const {
  return write_file(cat(input_.directory->path(), "/plan-", name, ".json"), to_json(plan) + "\n");
}

Status RunFiles::set_later_checkpoints_aside(RunMoment moment) {
  const Result<std::vector<SetAside>> aside =
      set_aside_checkpoints(input_.directory->path(), input_.rules.first_step);
  if (!aside.ok()) return aside.error();
  for (const SetAside& one : aside.value()) {
    say("checkpoint", moment,
        cat("the checkpoint of step ", one.step, " is set aside as ", one.name,
            ": this run starts from an earlier checkpoint"));
  }
  return ok();
}

Status RunFiles::store_checkpoint(const Manifest& manifest, int64_t unfinished, RunMoment moment,
                                  const std::string& found) {
  const std::string& path = input_.directory->path();
  const Result<std::string> finished = finish_checkpoint(path, manifest);
  if (!finished.ok()) return finished.error();
  prune_checkpoints(path, input_.job->keep);
  remove_unfinished(path, unfinished);
  note("checkpoint", moment, found.empty() ? finished.value() : cat(finished.value(), ": ", found));
  input_.progress->event(cat("checkpoint of step ", manifest.step));
  return ok();
}

void RunFiles::close(RunMoment moment) {
  const std::string& path = input_.directory->path();
  const Result<std::string> picture =
      record_ ? picture_of_steps(path) : Result<std::string>(invalid("there are no steps"));
  if (picture.ok()) {
    const Status written = write_file(path + "/steps.svg", picture.value());
    if (!written.ok()) note("picture", moment, written.error().message);
  }
  remove_unfinished(path, std::numeric_limits<int64_t>::max());
}

}  // namespace tenuto
