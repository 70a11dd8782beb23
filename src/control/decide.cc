#include "control/decide.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "control/instruct.h"
#include "control/join.h"
#include "control/partition.h"
#include "control/recover.h"
#include "control/replan.h"
#include "control/rest.h"
#include "control/step_record.h"

namespace tenuto {
namespace {

// The exit code of a run that a worker's failure keeps from beginning. 75 = worth another try: a
// peer that was out of reach may be reachable then.
int exit_code_of(Code failure) {
  if (failure == Code::Timeout || failure == Code::Disconnected) return 75;
  return failure == Code::Invalid ? 2 : 1;
}

std::string seconds(Duration duration) { return fixed(to_milliseconds(duration) / 1000, 1); }

// One call of decide: the state as it changes and what comes out.
class Turn {
 public:
  Turn(const State& state, Duration now) : now_(now) { out_.state = state; }

  void hear(const Report& report);
  void hear(const StreamEnded& ended);
  void hear(const Exited& exited);
  void hear(const Request& request);
  void hear(const Stored& stored);
  void hear(const Planned& planned) { note_if(take_planned(out_, planned)); }
  void hear(const Trouble& trouble);
  void hear(const Tick&) {}

  // If the coordinator itself stalled, extends every worker's silence deadline by the stall.
  void forgive();
  // Does whatever follows from the state as it is now.
  void advance();
  Decision finish();

 private:
  State& state() { return out_.state; }
  Member& member(WorkerId worker) { return state().members[static_cast<size_t>(worker.value)]; }
  WorkerId id(size_t worker) const { return {static_cast<int32_t>(worker)}; }
  bool known(WorkerId worker) {
    return worker.value >= 0 && static_cast<size_t>(worker.value) < state().members.size();
  }
  // How long a worker may say nothing.
  Duration silence() const;
  bool overtaken(const Report& report);
  void note(const std::string& reason) {
    out_.reason += out_.reason.empty() ? reason : "; " + reason;
  }
  void note_if(const std::string& reason) {
    if (!reason.empty()) note(reason);
  }
  void note_shards(const Report& report);
  void note_repairs(const Report& report);
  void suspect(WorkerId worker, const std::string& why);
  // `exit_early`: the exit code if the run ends of it before its first step.
  void declare_dead(WorkerId worker, const std::string& fate, const std::string& last_words = {},
                    int exit_early = 75);
  void lose_early(WorkerId worker, const std::string& sentence, int exit_code);
  void declare_the_missing_dead();
  bool survive(WorkerId worker, const std::string& cause);
  void abandon(LastResort why);
  void end(int exit_code, const std::string& sentence);
  void end_salvage(const std::string& trouble);
  bool committable(int64_t version);
  bool knows_step(int64_t step);
  void commit(int64_t version);
  bool complete(int64_t version) {
    const auto found = state().shards.find(version);
    return found != state().shards.end() && found->second.size() == state().rules.stages.size();
  }
  void store(int64_t version);
  void store_what_is_left();
  bool answer_failures();
  bool answer_bad_numbers();
  void start_the_late_again();
  void gather();
  void run();
  void stop();
  bool give_up_stopping();
  void recover();
  void roll_forward();
  void salvage();
  void choose_target();

  Duration now_;
  Decision out_;
  std::string abandoned_;  // what was noted when the step was abandoned, in this call
};

Duration Turn::silence() const {
  const State& s = out_.state;
  return s.situation != Situation::Salvaging && s.rules.lost_limit.count() > 0
             ? s.rules.lost_limit
             : s.rules.silence_limit;
}

bool Turn::overtaken(const Report& report) {
  if (!known(report.worker)) return true;
  const Member& of = member(report.worker);
  if (!of.alive || of.exited || report.incarnation < of.least_incarnation) return true;
  if (of.heard && report.incarnation != of.report.incarnation) return true;
  if (report.term > state().rules.term || report.epoch > state().epoch) return true;
  if (report.version > state().committed + 1) return true;
  // This process waited for the run before this one: it will be told that it has no place here.
  const bool begins = state().situation == Situation::Gathering;
  if (begins && report.epoch > 0 && report.epoch < state().rules.epoch) return true;
  return of.heard && report.sequence < of.report.sequence;
}

void Turn::note_shards(const Report& report) {
  if (report.shards.empty() || state().situation == Situation::Recovering) return;
  if (report.epoch != state().epoch && state().situation == Situation::Running) return;
  const std::vector<StageId> held = stages_of(state().rules.stages, report.worker);
  for (const SavedShard& shard : report.shards) {
    if (contains(held, shard.stage) && shard.version > state().saved) {
      state().shards[shard.version][shard.stage.value] = shard;
    }
  }
}

void Turn::note_repairs(const Report& report) {
  int64_t& told = member(report.worker).repairs;
  for (const RepairNote& repair : report.repairs) {
    if (repair.serial <= told || !known(repair.peer)) continue;
    told = repair.serial;
    const std::string took = fixed(to_milliseconds(Duration(repair.took_ns)), 1);
    out_.repaired.push_back(
        {repair.step, cat("the connection between worker ", report.worker, " and worker ",
                          repair.peer, " broke in step ", repair.step, " and was repaired after ",
                          took, " ms: no step is lost")});
  }
}

void Turn::hear(const Report& report) {
  if (known(report.worker) && hear_joiner(out_, report, now_)) return;
  if (overtaken(report)) return;
  Member& of = member(report.worker);
  of.heard_at = now_;
  if (of.heard && report.sequence == of.report.sequence) return;
  if (!of.heard || report.address != of.report.address || report.connected) {
    state().progress_at = now_;
  }
  if (std::exchange(of.stream_ended, false)) of.suspect_since.reset();  // it has come back
  of.heard = true;
  of.report = report;
  note_shards(report);
  note_repairs(report);
  // While steps are abandoned, living workers drop each other: losses mean nothing then.
  const bool together =
      state().situation == Situation::Gathering ||
      (state().situation == Situation::Running && state().committed < state().stop_at);
  if (report.epoch == state().epoch && together) {
    note_lost_peers(state(), report, now_);
    for (const WorkerId peer : report.lost_peers) {
      suspect(peer, cat("was declared lost by ", name_of(state().rules, report.worker)));
    }
  }
}

void Turn::hear(const StreamEnded& ended) {
  if (!known(ended.worker) || ended.incarnation != member(ended.worker).report.incarnation) return;
  if (ended.incarnation < member(ended.worker).least_incarnation) return;  // of a process given up
  if (state().situation == Situation::Ended) return;
  forget_joiner(out_, ended.worker, "its connection to the coordinator has ended");
  Member& of = member(ended.worker);
  of.stream_ended = true;
  of.suspicion = "lost its connection to the coordinator";
  if (!of.suspect_since) of.suspect_since = now_;
}

void Turn::hear(const Exited& exited) {
  if (!known(exited.worker)) return;
  Member& of = member(exited.worker);
  const std::string fate = exited.signalled ? cat("was killed by signal ", exited.number)
                                            : cat("ended with exit code ", exited.number);
  forget_joiner(out_, exited.worker, cat("its process ", fate));
  if (std::exchange(of.expelled, false)) return;  // the next process is awaited already
  of.exited = true;
  if (!of.alive || state().situation == Situation::Ended) return;
  // A process that ends by itself before its first step would do so again, unless it exits with 75.
  const bool may_succeed = exited.signalled || exited.number == 75;
  declare_dead(exited.worker, fate, exited.last_words, may_succeed ? 75 : 1);
}

void Turn::hear(const Request& request) {
  State& s = state();
  if (s.situation == Situation::Ended) return;
  if (request.kind == Request::Kind::Checkpoint) {
    s.save_request = s.committed + 2;  // no worker can be beyond it
    note(cat("asked for a checkpoint: version ", s.save_request, " will be saved"));
    return;
  }
  if (request.kind == Request::Kind::SlowLinks) {
    return note(treat_slow_links(out_, static_cast<SlowLinks>(request.number)));
  }
  if (request.kind == Request::Kind::Fault) return note(rehearse(out_, request.fault));
  if (request.kind == Request::Kind::Signal) return;
  const std::string name = cat("stopped by signal ", request.number);
  if (s.stop_since)
    return end(128 + request.number, cat(name, " twice: the run ends without a checkpoint"));
  s.signal = request.number;
  s.stop_since = now_;
  if (s.situation == Situation::Gathering) {
    return end(128 + request.number, cat(name, " before the first step"));
  }
  if (s.situation == Situation::Salvaging) return;  // the run is ending already
  s.stop_at = std::min(s.stop_at, s.committed + 1);
  note(cat(name, ": all workers stop at version ", s.stop_at));
}

void Turn::hear(const Stored& stored) {
  State& s = state();
  if (s.situation == Situation::Ended || stored.version != s.storing) return;
  s.storing = -1;
  if (!stored.failure.empty()) {
    const std::string before =
        s.situation == Situation::Salvaging ? s.salvage.cause + "; then " : std::string();
    return end(1, before + stored.failure);
  }
  s.saved = stored.version;
  s.shards.erase(s.shards.begin(), s.shards.upper_bound(stored.version));
}

void Turn::hear(const Trouble& trouble) {
  if (state().situation == Situation::Gathering) return end(1, trouble.sentence);
  const Situation now = state().situation;
  if (now != Situation::Running && now != Situation::Recovering) return;
  abandon({.cause = trouble.sentence, .exit_saved = 1, .exit_bare = 1});
}

void Turn::suspect(WorkerId worker, const std::string& why) {
  if (!known(worker) || state().situation == Situation::Ended) return;
  Member& of = member(worker);
  if (!of.alive || of.suspect_since) return;
  of.suspect_since = now_;
  of.suspicion = why;
}

void Turn::declare_dead(WorkerId worker, const std::string& fate, const std::string& last_words,
                        int exit_early) {
  State& s = state();
  Member& of = member(worker);
  if (!of.exited) out_.expelled.push_back(worker);
  const bool started = of.report.version >= 0 && s.situation != Situation::Gathering;
  const std::string when =
      started ? cat(" in step ", of.report.version) : std::string(" before its first step");
  const std::string& said = of.report.failure.empty() ? last_words : of.report.failure;
  const std::string told = said.empty() ? "" : " (its last error: " + said + ")";
  const std::string sentence = cat(name_of(s.rules, worker), " ", fate, when, told);
  if (s.situation == Situation::Gathering) return lose_early(worker, sentence, exit_early);
  of.alive = false;
  of.joining = Joining::No;
  send_back_joiners(s);
  if (s.situation != Situation::Salvaging && survive(worker, sentence)) return;
  LastResort why{.cause = sentence};
  if (s.situation == Situation::Salvaging) {
    why = s.salvage;
    why.cause += "; then " + sentence;
  } else if (s.situation == Situation::Recovering) {
    why.cause = s.recovery.cause + "; then " + sentence;
  }
  abandon(std::move(why));
}

// Before the first step only its connections are lost with a worker: another process may take its
// place, and all connect anew, in an epoch in which no worker talks to the old process.
void Turn::lose_early(WorkerId worker, const std::string& sentence, int exit_code) {
  State& s = state();
  const Member before = member(worker);
  if (before.deaths >= s.rules.restarts) {
    member(worker).alive = false;
    const std::string more = s.rules.restarts > 0
                                 ? cat(", and has no restarts left after death ", before.deaths + 1)
                                 : std::string();
    return end(exit_code, sentence + more);
  }
  Member& of = member(worker) = Member{};
  of.deaths = before.deaths + 1;
  of.least_incarnation = before.least_incarnation + 1;
  if (before.heard) {
    of.least_incarnation = std::max(of.least_incarnation, before.report.incarnation + 1);
  }
  of.expelled = !before.exited;
  s.epoch += 1;
  s.planning.present_name = s.planning.previous_name = cat(s.epoch);
  s.progress_at = now_;
  for (Member& other : s.members) {
    other.suspect_since.reset();
    other.lost.clear();
  }
  out_.event = "death";
  note(cat(sentence, ": the coordinator waits for a new process (restart ", of.deaths, " of ",
           s.rules.restarts, " resilience.restarts)"));
}

// Goes on without the worker, if the others can do its work.
bool Turn::survive(WorkerId worker, const std::string& cause) {
  if (!state().rules.survive) return false;
  Result<Plan> plan = plan_of_the_living(state());
  if (!plan.ok()) return false;
  out_.event = "death";
  note(begin_recovery(out_, worker, cause, std::move(plan).value(), now_));
  return true;
}

void Turn::declare_the_missing_dead() {
  State& s = state();
  if (hears_nobody(out_, now_, silence())) return;
  // Declare dead the worker that was suspected first: the others may only have been dropped because
  // of it. But a worker whose stream has ended goes before one that only peers have lost.
  const Member* first = nullptr;
  for (size_t worker = 0; worker < s.members.size(); ++worker) {
    const Member& of = s.members[worker];
    if (!of.alive) continue;
    if (of.heard && now_ - of.heard_at >= silence()) {
      return declare_dead(id(worker), cat("was silent for ", seconds(now_ - of.heard_at), " s"));
    }
    if (!of.suspect_since || now_ - *of.suspect_since < s.rules.explain_limit) continue;
    // A worker that is still heard is not at fault when a peer lost it: see the links below.
    const bool heard = !of.stream_ended && now_ - of.heard_at < 2 * s.rules.explain_limit;
    if (heard) continue;
    const auto urgency = [](const Member& m) {
      return std::pair(!m.stream_ended, *m.suspect_since);
    };
    if (first == nullptr || urgency(of) < urgency(*first)) first = &of;
  }
  if (first != nullptr) {
    return declare_dead(id(static_cast<size_t>(first - s.members.data())), first->suspicion);
  }
  const bool together = s.situation == Situation::Gathering || s.situation == Situation::Running;
  const std::optional<LeftOut> left_out = together ? find_left_out(s, now_) : std::nullopt;
  if (!left_out) return;
  if (left_out->needed && s.situation == Situation::Running) {
    return abandon({.cause = cat(name_of(s.rules, left_out->worker), " ", left_out->fate)});
  }
  declare_dead(left_out->worker, left_out->fate);
  if (s.situation == Situation::Recovering) out_.cut_off.push_back(left_out->worker);
}

// Begins a new epoch in which nothing runs. The workers' next reports show what can be saved.
void Turn::abandon(LastResort why) {
  State& s = state();
  send_back_joiners(s);
  s.situation = Situation::Salvaging;
  s.epoch += 1;
  s.salvage = {std::move(why), -1, now_ + s.rules.salvage_limit};
  for (Member& of : s.members) {
    if (!of.stream_ended) of.suspect_since.reset();
    of.lost.clear();
  }
  abandoned_ = cat(s.salvage.cause, ": the step is abandoned, epoch ", s.epoch);
  note(abandoned_);
}

void Turn::end(int exit_code, const std::string& sentence) {
  state().situation = Situation::Ended;
  state().ending = Ending{exit_code, sentence};
  // The sentence includes the cause: do not say it twice.
  const size_t told = abandoned_.empty() ? std::string::npos : out_.reason.find(abandoned_);
  if (told != std::string::npos) out_.reason.erase(told, abandoned_.size());
  if (out_.reason.ends_with("; ")) out_.reason.resize(out_.reason.size() - 2);
  note(sentence.empty() ? std::string("the job is done") : sentence);
}

void Turn::end_salvage(const std::string& trouble) {
  const State& s = state();
  const std::string sentence =
      trouble.empty() ? s.salvage.cause : cat(s.salvage.cause, "; ", trouble);
  end(s.saved >= 0 ? s.salvage.exit_saved : s.salvage.exit_bare, sentence);
}

bool Turn::committable(int64_t version) {
  const State& s = state();
  for (const Member& of : s.members) {
    if (!of.alive || version <= of.since) continue;
    if (of.report.epoch != s.epoch || of.report.phase != Phase::Running ||
        of.report.version < version) {
      return false;
    }
  }
  // The version to stop at is committed first and saved then: no worker goes beyond it, and one
  // that has already begun the next step abandons that, and can save, only after the commit.
  return version != next_save(s) || version == s.stop_at || complete(version);
}

// True when the losses of a step that all have done are known. Otherwise abandons the step and
// returns false: it must not be committed without its losses.
bool Turn::knows_step(int64_t step) {
  const State& s = state();
  const StepRecord record = record_of(s, step);
  if (is_known(record)) return true;
  abandon(
      {.cause = cat("all workers have finished step ", step, ", but ", unknown_part_of(s, record)),
       .exit_saved = 75,
       .exit_bare = 75});
  return false;
}

void Turn::commit(int64_t version) {
  State& s = state();
  for (int64_t step = s.committed; step < version; ++step) {
    out_.steps.push_back(record_of(s, step));
    learn_step(out_, step);
  }
  s.committed = version;
}

// The shards of `version` are all there: its manifest is due.
void Turn::store(int64_t version) {
  State& s = state();
  s.storing = version;
  CheckpointRecord record{version, {}};
  for (const auto& [stage, shard] : s.shards[version]) record.shards.push_back(shard);
  out_.checkpoint = std::move(record);
}

// An earlier coordinator may have committed a version without writing its manifest.
void Turn::store_what_is_left() {
  const State& s = state();
  if (s.storing >= 0) return;
  for (const auto& [version, shards] : s.shards) {
    if (version > s.saved && version <= s.committed && complete(version)) return store(version);
  }
}

bool Turn::answer_failures() {
  State& s = state();
  for (size_t worker = 0; worker < s.members.size(); ++worker) {
    const Report& report = s.members[worker].report;
    if (!s.members[worker].alive || report.failure.empty() || report.epoch != s.epoch) continue;
    const std::string sentence = cat(name_of(s.rules, id(worker)), ": ", report.failure);
    if (s.situation == Situation::Salvaging) {
      end_salvage(cat("the checkpoint could not be saved: ", sentence));
    } else {
      const bool again = report.failure_code == Code::Timeout;
      abandon({.cause = sentence, .exit_saved = again ? 75 : 1, .exit_bare = again ? 75 : 1});
    }
    return true;
  }
  return false;
}

bool Turn::answer_bad_numbers() {
  State& s = state();
  for (size_t worker = 0; worker < s.members.size(); ++worker) {
    for (const StepSummary& summary : s.members[worker].report.steps) {
      bool finite = summary.finite;
      for (const LossOfMicro& of : summary.losses) finite = finite && std::isfinite(of.loss);
      if (finite || summary.step < s.committed) continue;
      abandon(
          {.cause = cat(
               "loss or gradient of step ", summary.step, " is not finite (seen by ",
               name_of(s.rules, id(worker)),
               "): the step was not committed; lower optimizer.learning_rate or optimizer.clip"),
           .exit_saved = 1,
           .exit_bare = 1,
           .ceiling = summary.step});
      return true;
    }
  }
  return false;
}

// A worker that has never reported may have been stopped before its first report: another process
// takes its place while the others still wait for it.
void Turn::start_the_late_again() {
  State& s = state();
  const Duration waited = now_ - s.progress_at;
  if (waited < s.rules.start_limit / 2) return;
  for (size_t worker = 0; worker < s.members.size(); ++worker) {
    const Member& of = s.members[worker];
    if (of.absent || of.heard || of.deaths >= s.rules.restarts) continue;
    declare_dead(id(worker), cat("did not connect within ", seconds(waited), " s"));
  }
}

void Turn::gather() {
  State& s = state();
  int32_t ready = 0, wanted = 0;
  std::string missing;
  for (size_t worker = 0; worker < s.members.size(); ++worker) {
    const Member& of = s.members[worker];
    if (of.absent) continue;
    wanted += 1;
    const Report& report = of.report;
    if (of.alive && !report.failure.empty() && report.epoch == s.epoch) {
      return end(exit_code_of(report.failure_code),
                 cat(name_of(s.rules, id(worker)), ": ", report.failure));
    }
    const bool here = report.connected && report.epoch == s.epoch;
    ready += here ? 1 : 0;
    if (!here) missing += cat(missing.empty() ? "" : ", ", "worker ", worker);
  }
  declare_the_missing_dead();
  if (s.situation == Situation::Gathering) start_the_late_again();
  if (s.situation != Situation::Gathering) return;
  if (ready == wanted) {
    s.situation = Situation::Running;
    s.begun = true;
    note(cat("all ", ready, " workers are connected: step ", s.committed, " begins"));
  } else if (now_ - s.progress_at >= s.rules.start_limit) {
    end(75, cat("for ", seconds(s.rules.start_limit),
                " s no further worker became ready; not ready: ", missing,
                "; read their logs, or raise network.connect_seconds"));
  }
}

void Turn::run() {
  State& s = state();
  if (answer_bad_numbers() || answer_failures()) return;
  while (s.committed < s.stop_at && committable(s.committed + 1)) {
    if (!knows_step(s.committed)) return;
    const bool saved = next_save(s) == s.committed + 1;
    commit(s.committed + 1);
    if (saved && s.committed < s.stop_at) store(s.committed);
  }
  store_what_is_left();
  declare_the_missing_dead();
  if (s.situation != Situation::Running) return;
  if (const std::string begun = note_resumption(out_, now_); !begun.empty()) {
    out_.event = "recovery";
    note(begun);
  }
  note_if(advance_plan(out_));
  note_if(advance_joining(out_, now_));
  stop();
}

void Turn::stop() {
  State& s = state();
  if (s.committed >= s.stop_at) {
    if (s.saved != s.stop_at) {
      if (s.storing < 0 && complete(s.stop_at)) store(s.stop_at);
      return;
    }
    if (s.stop_at == s.rules.steps) return end(0, "");
    return end(128 + s.signal, cat("stopped by signal ", s.signal, " after step ", s.stop_at - 1));
  }
  give_up_stopping();
}

// Abandons the step that was to be the last when it has taken too long.
bool Turn::give_up_stopping() {
  const State& s = state();
  const bool due = s.stop_since && s.committed < s.stop_at;
  if (!due || now_ - *s.stop_since < s.rules.stop_limit) return false;
  const int exit_code = 128 + s.signal;
  abandon({.cause = cat("stopped by signal ", s.signal, " in step ", s.committed,
                        ", which did not end within ", seconds(s.rules.stop_limit), " s"),
           .exit_saved = exit_code,
           .exit_bare = exit_code});
  return true;
}

void Turn::recover() {
  State& s = state();
  if (answer_bad_numbers() || answer_failures() || give_up_stopping()) return;
  if (all_have_frozen(s)) {
    const int64_t before = s.committed;
    roll_forward();
    note_if(find_rest(out_));
    out_.event = "recovery";
    return note(begin_again(out_, s.committed == before));
  }
  if (now_ >= s.recovery.deadline) {
    for (size_t worker = 0; worker < s.members.size(); ++worker) {
      const Member& of = s.members[worker];
      const bool answered = of.report.epoch == s.epoch && of.report.phase == Phase::Frozen;
      if (of.alive && !answered) return declare_dead(id(worker), "did not answer the coordinator");
    }
  }
  declare_the_missing_dead();
}

// Commits the step that was under way if all survivors have done it.
void Turn::roll_forward() {
  State& s = state();
  const int64_t version = s.committed + 1;
  if (version > s.stop_at || (version == next_save(s) && version != s.stop_at)) return;
  if (is_step_done(s, record_of(s, s.committed))) commit(version);
}

// Once all living workers have answered, chooses the newest version that every stage still has and
// whose losses are all known.
void Turn::choose_target() {
  State& s = state();
  int64_t target = s.salvage.ceiling;
  for (size_t stage = 0; stage < s.rules.stages.size(); ++stage) {
    int64_t newest = -1;
    for (const WorkerId holder : s.rules.stages[stage].holders) {
      const Member& of = member(holder);
      if (!of.alive) continue;
      if (of.report.epoch != s.epoch || of.report.phase != Phase::Frozen) return;
      newest = std::max(newest, of.report.version);
    }
    target = target < 0 ? newest : std::min(target, newest);
  }
  std::string given_up;  // why not the newest
  if (target > s.committed) {
    const StepRecord last = record_of(s, s.committed);
    if (!is_known(last)) {
      target = s.committed;
      given_up = unknown_part_of(s, last);
    }
  }
  s.salvage.target = target;
  const std::vector<WorkerId> savers = choose_savers(s, target);
  if (std::find(savers.begin(), savers.end(), WorkerId{}) != savers.end()) {
    s.salvage.target = -1;
    return end_salvage("the live workers have no common version");
  }
  s.salvage.deadline = now_ + s.rules.save_limit();
  note(cat("version ", target,
           given_up.empty() ? " is the newest that every stage still has"
                            : " is saved without the next step: ",
           given_up));
  if (target > s.committed) commit(target);
}

void Turn::salvage() {
  State& s = state();
  for (size_t stage = 0; stage < s.rules.stages.size(); ++stage) {
    const auto& holders = s.rules.stages[stage].holders;
    const bool alive = std::any_of(holders.begin(), holders.end(),
                                   [&](WorkerId holder) { return member(holder).alive; });
    if (!alive) return end_salvage(cat("no live worker holds stage ", stage, ""));
  }
  if (answer_failures()) return;
  if (s.salvage.target < 0) choose_target();
  if (s.situation != Situation::Salvaging) return;
  const int64_t target = s.salvage.target;
  if (target >= 0 && s.storing < 0) {
    if (target == s.saved) return end_salvage("");
    if (complete(target)) return store(target);
  }
  if (now_ >= s.salvage.deadline) {
    if (target >= 0) return end_salvage("saving took too long");
    for (size_t worker = 0; worker < s.members.size(); ++worker) {
      const Member& of = s.members[worker];
      if (of.alive && of.report.epoch != s.epoch)
        declare_dead(id(worker), "did not answer the coordinator");
    }
    return;
  }
  declare_the_missing_dead();
}

void Turn::advance() {
  // A change of situation may allow the next one at once. Further epochs come only with further
  // losses, so the number of rounds is bounded.
  for (size_t round = 0; round < state().members.size() + 4; ++round) {
    const Situation before = state().situation;
    const int64_t epoch = state().epoch;
    switch (before) {
      case Situation::Gathering:
        gather();
        break;
      case Situation::Running:
        run();
        break;
      case Situation::Recovering:
        recover();
        break;
      case Situation::Salvaging:
        salvage();
        break;
      case Situation::Ended:
        return;
    }
    if (state().situation == before && state().epoch == epoch) return;
  }
}

void Turn::forgive() {
  const Duration gap = now_ - state().listened_at;
  state().listened_at = now_;
  if (gap < silence() / 2) return;
  for (Member& of : state().members) of.heard_at += gap;
}

Decision Turn::finish() {
  Instruction next = instruction_of(state());
  next.sequence = state().told.sequence;
  if (next != state().told) {
    next.sequence += 1;
    state().told = next;
    out_.instruction = std::move(next);
  }
  return std::move(out_);
}

}  // namespace

int32_t Rules::worker_count() const {
  int32_t count = plan ? static_cast<int32_t>(plan->schedule.lists.size()) : 0;
  for (const Stage& stage : stages) {
    for (const WorkerId holder : stage.holders) count = std::max(count, holder.value + 1);
  }
  return count;
}

State begin(const Rules& rules, Duration now) {
  CHECK(!rules.stages.empty(), "a run has at least one stage");
  CHECK(rules.first_step < rules.steps, "a run has at least one step to do");
  State state;
  state.rules = rules;
  state.epoch = rules.epoch;
  state.committed = state.target = rules.first_step;
  state.stop_at = rules.steps;
  state.saved = rules.saved;
  state.progress_at = state.listened_at = now;
  state.planning = begin_planning(rules);
  state.members.resize(static_cast<size_t>(rules.worker_count()));
  const auto& stages = rules.plan ? rules.plan->stages : rules.stages;
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (!stages_of(stages, worker).empty()) continue;
    Member& member = state.members[w];
    member.absent = true;
    member.alive = false;
    member.report.incarnation = -1;  // no process has had its place
    leave_out(state.planning, worker);
  }
  state.told = instruction_of(state);
  state.told.sequence = 1;
  return state;
}

Decision decide(const State& state, const Input& input) {
  Turn turn(state, input.now);
  turn.forgive();
  std::visit([&](const auto& what) { turn.hear(what); }, input.what);
  turn.advance();
  return turn.finish();
}

Facts facts_of(const State& state) {
  const bool salvaged = !state.salvage.cause.empty();
  const Planning& planning = state.planning;
  Facts facts{.run = state.rules.run,
              .term = state.rules.term,
              .epoch = state.epoch,
              .committed = state.committed,
              .target = salvaged ? state.salvage.target : state.target,
              .members = state.told.directive.members,
              .rest = state.told.rest != nullptr,
              .begun = state.begun,
              .grown = state.grown,
              .first_plan = state.first_plan,
              .plan = planning.serial,
              .plan_from = planning.from,
              .plan_name = planning.present_name,
              .previous_plan = planning.previous_name,
              .ending = state.ending};
  for (const WorkerId member : facts.members) {
    const Member& of = state.members[static_cast<size_t>(member.value)];
    facts.incarnations.push_back(of.report.incarnation);
    if (of.joining == Joining::Receiving) facts.joiners.push_back(member);
  }
  if (salvaged) facts.last_resort = state.salvage;
  return facts;
}

}  // namespace tenuto
