#include "control/decide.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "control/commit.h"
#include "control/hear.h"
#include "control/instruct.h"
#include "control/join.h"
#include "control/layers.h"
#include "control/partition.h"
#include "control/planning.h"
#include "control/recover.h"
#include "control/replan.h"
#include "control/rest.h"
#include "control/salvage.h"
#include "control/step_record.h"
#include "ir/version.h"

namespace tenuto {
namespace {

// Why a run stops that was asked to, and its exit code then; see Request::Kind::Stop.
std::string stop_text(int signal) {
  return signal == 0 ? std::string("asked to end") : cat("stopped by signal ", signal);
}
int stop_code(int signal) { return signal == 0 ? 0 : 128 + signal; }

// One call of decide(): asks the parts of the logic in turn what follows from the state, and makes
// the edits that they return.
class Turn {
 public:
  Turn(State state, Duration now) : now_(now), edited_(std::move(state)) {}

  void hear(const Report& report);
  void hear(const StreamEnded& ended);
  void hear(const Exited& exited);
  void hear(const Request& request);
  void hear(const Stored& stored);
  void hear(const Planned& planned);
  void hear(const Trouble& trouble);
  void hear(const Tick&) {}

  // Does what follows from the time alone, before anything is heard.
  void begin() { take(hear_clock(s(), now_)); }
  // Does whatever follows from the state as it is now.
  void advance();
  Decision finish();

 private:
  const State& s() const { return edited_.state(); }
  static WorkerId id(size_t worker) { return {static_cast<int32_t>(worker)}; }
  void make(Edit&& edit);
  void take(DecisionPart part);
  // `exit_early`: the exit code if this death ends the run before its first step.
  void declare_dead(WorkerId worker, const std::string& fate, const std::string& last_words = {},
                    int exit_early = 75);
  void lose_early(WorkerId worker, const std::string& sentence, int exit_code);
  void declare_the_missing_dead();
  void retract_abandonment();
  bool survive(WorkerId worker, const std::string& cause);
  void abandon(LastResort why);
  void end(int exit_code, const std::string& sentence);
  void end_salvage(const std::string& trouble);
  void commit(int64_t version);
  void store(int64_t version);
  void store_or_postpone();
  void store_earlier_commits();
  bool answer_trouble();
  void replace_unreported_workers();
  void gather();
  void run();
  void let_join();
  void stop();
  bool give_up_stopping();
  void recover();
  void roll_forward();
  bool agree_on_target();
  void salvage();

  Duration now_;
  EditedState edited_;
  DecisionPart out_;       // except for the edits, which edited_ has
  std::string abandoned_;  // what was said when the step was abandoned, in this call
};

void Turn::make(Edit&& edit) {
  edited_.make(std::move(edit));
  const auto* asked = std::get_if<PlanAsked>(&edited_.edits().back());
  if (asked == nullptr) return;
  out_.wanted = question_of(s(), asked->plan, asked->routing);
  out_.wanted->update = asked->update;
}

void Turn::take(DecisionPart part) {
  for (Edit& edit : std::exchange(part.edits, {})) make(std::move(edit));
  out_.follow(std::move(part));
}

void Turn::hear(const Report& report) {
  take(is_of_joiner(s(), report) ? hear_joiner(s(), report, now_) : hear_report(s(), report, now_));
}

void Turn::hear(const StreamEnded& ended) {
  if (!is_worker(s(), ended.worker)) return;
  const Member& of = member_of(s(), ended.worker);
  // Ignore a process that was given up or replaced.
  if (ended.incarnation < of.least_incarnation) return;
  if (ended.incarnation != of.report.incarnation) return;
  if (s().situation == Situation::Ended) return;
  take(drop_joiner(s(), ended.worker, "its connection to the coordinator has ended"));
  make(StreamLost{ended.worker, now_});
}

void Turn::hear(const Exited& exited) {
  if (!is_worker(s(), exited.worker)) return;
  const std::string fate = exited.signalled ? cat("was killed by signal ", exited.number)
                                            : cat("ended with exit code ", exited.number);
  take(drop_joiner(s(), exited.worker, cat("its process ", fate)));
  make(ProcessEnded{exited.worker});
  const Member& of = member_of(s(), exited.worker);
  if (!of.exited || !of.alive || s().situation == Situation::Ended) return;
  // A process that ends by itself before its first step would do so again, unless it exits with 75.
  const bool may_succeed = exited.signalled || exited.number == 75;
  declare_dead(exited.worker, fate, exited.last_words, may_succeed ? 75 : 1);
}

void Turn::hear(const Request& request) {
  const bool is_of_launcher =
      request.kind == Request::Kind::Signal || request.kind == Request::Kind::Hog;
  if (s().situation == Situation::Ended || is_of_launcher) return;
  if (request.kind == Request::Kind::Checkpoint) {
    make(CheckpointAsked{first_unmade_version(s())});
    return out_.say(cat("asked for a checkpoint: version ", s().save_request, " will be saved"));
  }
  if (request.kind == Request::Kind::Treat) return take(treat(request.key, request.how));
  if (request.kind == Request::Kind::Trace) {
    take(trace_next(s(), request.number));
    return out_.say(cat("asked for traces: up to step ", s().trace_until - 1));
  }
  if (request.kind == Request::Kind::Fault) return take(inject(s(), request.fault));
  const std::string name = stop_text(request.number);
  if (s().stop_since && request.number == 0) return;  // scripts of several workers may ask for it
  if (s().stop_since && s().signal != 0) {
    return end(stop_code(request.number), cat(name, " twice: the run ends without a checkpoint"));
  }
  const bool running =
      s().situation == Situation::Running || s().situation == Situation::Recovering;
  const int64_t last = running ? std::min(s().stop_at, newest_version(s())) : s().stop_at;
  make(StopAsked{request.number, last, now_});
  if (s().situation == Situation::Gathering) {
    return end(stop_code(request.number), cat(name, " before the first step"));
  }
  // While salvaging the run is ending already.
  if (running) out_.say(cat(name, ": all workers stop at version ", s().stop_at));
}

void Turn::hear(const Stored& stored) {
  if (s().situation == Situation::Ended || stored.version != s().storing) return;
  make(CheckpointStored{stored.version, stored.failure});
  if (stored.failure.empty()) return;
  const bool salvaging = s().situation == Situation::Salvaging;
  end(1, salvaging ? cat(s().salvage.cause, "; then ", stored.failure) : stored.failure);
}

void Turn::hear(const Planned& planned) {
  const bool newest = planned.request == s().planning.request && !s().planning.answered;
  take(take_planned(s(), planned));
  const Planning& planning = s().planning;
  const bool wanted =
      newest && !planned.moves.empty() && !planning.stale && planning.treatments.act();
  const bool free = s().situation == Situation::Running && s().committed < s().stop_at &&
                    is_plan_adopted(s()) && !is_receiving(s());
  if (wanted && free) take(give_layers(s(), planned));
}

void Turn::hear(const Trouble& trouble) {
  if (s().situation == Situation::Gathering) return end(1, trouble.sentence);
  const Situation now = s().situation;
  if (now != Situation::Running && now != Situation::Recovering) return;
  abandon({.cause = trouble.sentence, .exit_saved = 1, .exit_bare = 1});
}

void Turn::declare_dead(WorkerId worker, const std::string& fate, const std::string& last_words,
                        int exit_early) {
  const Member& of = member_of(s(), worker);
  if (!of.exited) out_.expelled.push_back(worker);
  const bool started = of.report.version >= 0 && s().situation != Situation::Gathering;
  const std::string when =
      started ? cat(" in step ", of.report.version) : std::string(" before its first step");
  const std::string& said = of.report.failure.empty() ? last_words : of.report.failure;
  const std::string told = said.empty() ? "" : " (its last error: " + said + ")";
  const std::string sentence = cat(name_of(s().rules, worker), " ", fate, when, told);
  if (s().situation == Situation::Gathering) return lose_early(worker, sentence, exit_early);
  make(MemberLost{worker});
  take(send_back_joiners(s()));
  if (s().situation != Situation::Salvaging && survive(worker, sentence)) return;
  abandon(end_with(s(), sentence));
}

// When a worker dies before the first step, only connections are lost, and another process may take
// its place. All then connect anew, in a new epoch, in which no worker talks to the old process.
void Turn::lose_early(WorkerId worker, const std::string& sentence, int exit_code) {
  const int32_t deaths = member_of(s(), worker).deaths + 1;
  const int32_t restarts = s().rules.restarts;
  if (deaths > restarts) {
    make(MemberLost{worker});
    return end(exit_code, restarts > 0
                              ? cat(sentence, ", and has no restarts left after death ", deaths)
                              : sentence);
  }
  make(WorkerAwaited{worker, now_});
  out_.say("death", cat(sentence, ": the coordinator waits for a new process (restart ", deaths,
                        " of ", restarts, " resilience.restarts)"));
}

// Goes on without the worker, if the others can do its work.
bool Turn::survive(WorkerId worker, const std::string& cause) {
  if (!s().rules.survive) return false;
  Result<Plan> plan = plan_of_the_living(s());
  if (!plan.ok()) return false;
  take(begin_recovery(s(), worker, cause, std::move(plan).value(), now_));
  return true;
}

void Turn::declare_the_missing_dead() {
  take(watch_own_link(s(), now_, silence_of(s())));
  if (is_cut_off(s(), now_)) return;
  if (const auto missing = find_missing(s(), now_)) {
    return declare_dead(missing->worker, missing->fate);
  }
  if (s().situation != Situation::Gathering && s().situation != Situation::Running) return;
  const std::optional<LeftOut> left_out = find_left_out(s(), now_);
  if (!left_out) return;
  if (left_out->needed && s().situation == Situation::Running) {
    return abandon({.cause = cat(name_of(s().rules, left_out->worker), " ", left_out->fate)});
  }
  declare_dead(left_out->worker, left_out->fate);
  if (s().situation == Situation::Recovering) out_.cut_off.push_back(left_out->worker);
}

// Removes what was said when the step was abandoned: a later sentence contains its cause.
void Turn::retract_abandonment() {
  std::string& reason = out_.reason;
  const size_t at = abandoned_.empty() ? std::string::npos : reason.find(abandoned_);
  if (at == std::string::npos) return;
  reason.erase(at, abandoned_.size());
  if (reason.compare(at, 2, "; ") == 0) {
    reason.erase(at, 2);
  } else if (reason.ends_with("; ")) {
    reason.resize(reason.size() - 2);
  }
}

void Turn::abandon(LastResort why) {
  if (s().rules.evaluates) return end(why.exit_saved, why.cause);  // there is nothing to save
  retract_abandonment();
  DecisionPart part = tenuto::abandon(s(), std::move(why), now_);
  abandoned_ = part.reason;
  take(std::move(part));
}

void Turn::end(int exit_code, const std::string& sentence) {
  make(RunEnded{{exit_code, sentence}});
  retract_abandonment();
  out_.say(sentence.empty() ? std::string("the job is done") : sentence);
}

void Turn::end_salvage(const std::string& trouble) {
  const Salvage& why = s().salvage;
  const std::string sentence = trouble.empty() ? why.cause : cat(why.cause, "; ", trouble);
  end(s().saved >= 0 ? why.exit_saved : why.exit_bare, sentence);
}

void Turn::commit(int64_t version) {
  out_.steps.push_back(record_of(s(), open_step(s())));
  if (!s().rules.evaluates) take(measure_step(s(), open_step(s())));
  make(StepCommitted{version});
}

// Has the manifest of `version` written: all of its shards are saved.
void Turn::store(int64_t version) {
  make(CheckpointReady{version});
  CheckpointRecord record{version, {}};
  for (const auto& [stage, shard] : s().shards.at(version)) record.shards.push_back(shard);
  out_.checkpoint = std::move(record);
}

// Called when the version that was to be saved is committed. If savers write while steps go on,
// their shards come later, and store_earlier_commits() has the manifest written. Otherwise a saver
// reports a version only after it has saved it. So a shard is missing only if an earlier
// coordinator had named another saver, and the present saver had gone past the version before this
// coordinator named it; then the next version is saved instead. The version to stop at may be saved
// after its commit, because every worker keeps it: a worker that has begun the next step abandons
// that step when it hears of the commit, and saves then.
void Turn::store_or_postpone() {
  const int64_t version = s().committed;
  if (version == s().stop_at) return;
  if (has_all_shards(s(), version)) return store(version);
  if (s().rules.saves_later) return;
  const int64_t later = newest_version(s());
  make(CheckpointAsked{later});
  out_.say(cat("version ", version,
               " was not saved, because the coordinator was replaced: version ", later,
               " will be saved instead"));
}

// Has the manifest written of a version that was committed before all of its shards were known: its
// savers have written it meanwhile, or an earlier coordinator committed it before it died.
void Turn::store_earlier_commits() {
  if (s().storing >= 0) return;
  for (const auto& [version, shards] : s().shards) {
    if (version > s().saved && version <= s().committed && has_all_shards(s(), version)) {
      return store(version);
    }
  }
}

// If a number is not finite, or a worker has failed: abandons the step and returns true.
bool Turn::answer_trouble() {
  if (auto why = find_bad_numbers(s())) {
    abandon(std::move(*why));
    return true;
  }
  const std::optional<WorkerFailure> failure = find_failure(s());
  if (!failure) return false;
  const int exit_code = failure->code == Code::Timeout ? 75 : 1;
  abandon({.cause = failure->sentence, .exit_saved = exit_code, .exit_bare = exit_code});
  return true;
}

// If there was no progress for half of the start limit, declares dead the workers that have never
// reported. Then another process can take their place while the others still wait.
void Turn::replace_unreported_workers() {
  const Duration waited = now_ - s().progress_at;
  if (waited < s().rules.start_limit / 2) return;
  for (size_t worker = 0; worker < s().members.size(); ++worker) {
    const Member& of = s().members[worker];
    if (of.absent || of.heard || of.deaths >= s().rules.restarts) continue;
    declare_dead(id(worker), cat("did not connect within ", seconds(waited), " s"));
  }
}

void Turn::gather() {
  if (const auto failure = find_failure(s())) {
    return end(exit_code_of(failure->code), failure->sentence);
  }
  int32_t ready = 0;
  std::string missing;
  for (size_t worker = 0; worker < s().members.size(); ++worker) {
    const Member& of = s().members[worker];
    if (of.absent) continue;
    const bool here = of.report.connected && of.report.epoch == s().epoch;
    ready += here ? 1 : 0;
    if (!here) missing += cat(missing.empty() ? "" : ", ", "worker ", worker);
  }
  declare_the_missing_dead();
  if (s().situation == Situation::Gathering) replace_unreported_workers();
  if (s().situation != Situation::Gathering) return;
  if (missing.empty()) {
    make(RunBegun{});
    out_.say(cat("all ", ready, " workers are connected: ", name_of_work(s(), open_step(s())),
                 " begins"));
  } else if (now_ - s().progress_at >= s().rules.start_limit) {
    end(75, cat("for ", seconds(s().rules.start_limit),
                " s no further worker became ready; not ready: ", missing,
                "; read their logs, or raise network.connect_seconds"));
  }
}

void Turn::run() {
  if (answer_trouble()) return;
  while (s().committed < s().stop_at && is_kept(s(), next_version(s()))) {
    // A step must not be committed without its losses.
    if (auto why = find_lost_part(s())) return abandon(std::move(*why));
    const bool due = next_save(s()) == next_version(s());
    commit(next_version(s()));
    if (due) store_or_postpone();
  }
  store_earlier_commits();
  declare_the_missing_dead();
  if (s().situation != Situation::Running) return;
  take(note_resumption(s(), now_));
  if (!s().rules.evaluates) take(advance_plan(s()));
  let_join();
  const bool news = !out_.verdicts.empty() || !out_.reason.empty();
  if (news && s().rules.trace_after > 0) take(trace_next(s(), s().rules.trace_after));
  stop();
}

// Gives places to joiners that are ready, and work to those that have the whole state. If layers
// are moving, makes their receivers the holders once they have the whole state.
void Turn::let_join() {
  if (s().committed >= s().stop_at || s().rules.evaluates) return;
  take(watch_joiners(s(), now_));
  if (!is_plan_adopted(s()) || s().recovery.waiting) return;
  if (s().transfer) return take(finish_layers(s()));
  if (!is_receiving(s())) return take(give_places(s(), now_));
  const std::vector<WorkerId> complete = complete_joiners(s());
  if (complete.empty()) return;
  take(admit(complete));
  take(give_work(s(), complete));
}

void Turn::stop() {
  const int64_t last = s().stop_at;
  if (s().committed < last) {
    give_up_stopping();
  } else if (s().saved != last) {
    if (s().storing < 0 && has_all_shards(s(), last)) store(last);
  } else if (last == s().rules.steps) {
    end(0, "");
  } else {
    const int64_t step = iteration_that_made(Version{last}).value;
    end(stop_code(s().signal), cat(stop_text(s().signal), " after step ", step));
  }
}

// After a request to stop: abandons the step under way if it takes too long.
bool Turn::give_up_stopping() {
  const bool due = s().stop_since && s().committed < s().stop_at;
  if (!due || now_ - *s().stop_since < s().rules.stop_limit) return false;
  const int exit_code = stop_code(s().signal);
  abandon({.cause = cat(stop_text(s().signal), " in step ", open_step(s()),
                        ", which did not end within ", seconds(s().rules.stop_limit), " s"),
           .exit_saved = exit_code,
           .exit_bare = exit_code});
  return true;
}

void Turn::recover() {
  if (answer_trouble() || give_up_stopping()) return;
  if (all_have_frozen(s())) {
    const int64_t before = s().committed;
    roll_forward();
    take(find_rest(s()));
    return take(begin_again(s(), s().committed == before));
  }
  if (now_ >= s().recovery.deadline) {
    for (size_t worker = 0; worker < s().members.size(); ++worker) {
      const Member& of = s().members[worker];
      const bool answered = of.report.epoch == s().epoch && of.report.phase == Phase::Frozen;
      if (of.alive && !answered) return declare_dead(id(worker), "did not answer the coordinator");
    }
  }
  declare_the_missing_dead();
}

// Commits the step that was under way if all survivors have done it, unless its version has to be
// saved before its commit.
void Turn::roll_forward() {
  const int64_t version = next_version(s());
  if (version > s().stop_at || (version == next_save(s()) && version != s().stop_at)) return;
  if (is_kept_by_the_frozen(s(), version) && is_known(record_of(s(), open_step(s())))) {
    commit(version);
  }
}

// Once all living workers have answered, decides which version is saved. False when there is none:
// the run has ended.
bool Turn::agree_on_target() {
  const std::optional<SalvageTarget> target = choose_target(s());
  if (!target) return true;
  if (target->version < 0) {
    end_salvage("the live workers have no common version");
    return false;
  }
  make(SalvageAgreed{target->version, now_ + s().rules.save_limit()});
  out_.say(cat("version ", target->version,
               target->given_up.empty() ? " is the newest that every stage still has"
                                        : " is saved without the next step: ",
               target->given_up));
  if (target->version > s().committed) commit(target->version);
  return true;
}

void Turn::salvage() {
  if (const auto stage = stage_without_holder(s())) {
    return end_salvage(cat("no live worker holds stage ", *stage, ""));
  }
  if (const auto failure = find_failure(s())) {
    return end_salvage(cat("the checkpoint could not be saved: ", failure->sentence));
  }
  if (s().salvage.target < 0 && !agree_on_target()) return;
  const int64_t target = s().salvage.target;
  if (target >= 0 && s().storing < 0) {
    if (target == s().saved) return end_salvage("");
    if (has_all_shards(s(), target)) return store(target);
  }
  if (now_ < s().salvage.deadline) return declare_the_missing_dead();
  if (target >= 0) return end_salvage("saving took too long");
  for (size_t worker = 0; worker < s().members.size(); ++worker) {
    const Member& of = s().members[worker];
    if (of.alive && of.report.epoch != s().epoch)
      declare_dead(id(worker), "did not answer the coordinator");
  }
}

void Turn::advance() {
  // A change of situation may allow the next one at once. Further epochs come only when further
  // workers are lost, so the number of rounds is bounded.
  for (size_t round = 0; round < s().members.size() + 4; ++round) {
    const Situation before = s().situation;
    const int64_t epoch = s().epoch;
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
    if (s().situation == before && s().epoch == epoch) return;
  }
}

Decision Turn::finish() {
  Decision decision;
  auto next = std::make_shared<Instruction>(instruction_of(s()));
  next->sequence = s().told.sequence;
  if (*next != s().told) {
    next->sequence += 1;
    decision.instruction = *next;
    make(InstructionTold{std::move(next)});
  }
  out_.edits = edited_.take_edits();
  decision.new_plan = std::any_of(out_.edits.begin(), out_.edits.end(), [](const Edit& edit) {
    return std::holds_alternative<PlanProposed>(edit) || std::holds_alternative<EpochBegun>(edit);
  });
  static_cast<DecisionPart&>(decision) = std::move(out_);
  decision.state = edited_.take_state();
  return decision;
}

}  // namespace

Decision decide(State state, const Input& input) {
  Turn turn(std::move(state), input.now);
  turn.begin();
  std::visit([&](const auto& what) { turn.hear(what); }, input.what);
  turn.advance();
  return turn.finish();
}

}  // namespace tenuto
