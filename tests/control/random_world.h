// A small world in which the real decide() and decide_worker() play against each other: workers
// that follow the rules or break one, a network that loses, doubles and delays messages, and
// deaths, returns and signals at any moment. After every input it checks what must always hold.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "control/decide.h"
#include "control/join.h"
#include "control/recover.h"
#include "control/sim_crew.h"
#include "control/take_up.h"
#include "plan/fine_stages.h"
#include "plan/make_plan.h"
#include "plan/routed.h"

namespace tenuto {

inline constexpr Duration kMillisecond = std::chrono::milliseconds(1);

// A run, its workers and the network between them.
class World {
 public:
  World(uint64_t seed, int32_t stages, int32_t pipelines, Rules rules, Chances chances)
      : random_(seed),
        chances_(chances),
        fine_(chances.layers > 0 || chances.fine),
        stages_(fine_ ? stages * kLayers : stages),
        crew_(random_, chances, stages_, job_of(rules)) {
    for (int32_t stage = 0; stage < stages; ++stage) {
      Stage of{stage, stage + 1, {}};
      for (int32_t pipe = 0; pipe < pipelines; ++pipe)
        of.holders.push_back({pipe * stages + stage});
      rules.stages.push_back(of);
    }
    if (rules.survive) {
      rules.plan = plan_of(stages, pipelines, fine_);
      rules.stages = rules.plan->stages;
      rules.model.layers.resize(rules.stages.size());
      for (Layer& layer : rules.model.layers) {  // ops take time, so skipping some is faster
        layer.forward = layer.backward_input = layer.backward_weight = kMillisecond;
      }
      rules.cluster = uniform_cluster(stages * pipelines, {kMillisecond, 0});
      if (chances.absent) leave_some_out(rules);
    }
    plans_[1] = rules.survive ? rules.plan : plan_of(stages, pipelines);
    rules.run = "this one";
    rules_ = rules;
    state_ = begin(rules, now_);
    journal_ = facts_of(state_);
    names_[state_.planning.present_name] = rules.plan;
    workers().resize(static_cast<size_t>(stages * pipelines));
    for (size_t i = 0; i < workers().size(); ++i) {
      if (state_.members[i].alive) {
        crew_.start(i, 0);
      } else {
        workers()[i].alive = false;
        workers()[i].exit_told = true;
      }
    }
    broadcast();
  }

  // Makes `wild` moves with faults, then up to `limit` moves without, until the run ends.
  void run(int32_t wild, int32_t limit) {
    for (int32_t i = 0; i < kGathering && !state_.begun && !failed(); ++i) move(true);
    for (int32_t i = 0; i < wild && !state_.ending && !failed(); ++i) move(true);
    for (int32_t i = 0; i < limit && !state_.ending && !failed(); ++i) move(false);
  }

  // Makes up to `limit` moves without random faults, until `done` is true or the run ends. False if
  // neither came.
  bool run_until(const std::function<bool()>& done, int32_t limit) {
    for (int32_t i = 0; i < limit; ++i) {
      if (state_.ending || failed() || done()) return true;
      move(false);
    }
    return false;
  }

  // The planner answers that these layers are to move. False if layers cannot begin to move now.
  bool give(const std::vector<LayerMove>& moves) {
    const Planning& planning = state_.planning;
    if (state_.situation != Situation::Running || !planning.answered || !is_plan_adopted(state_) ||
        is_receiving(state_)) {
      return false;
    }
    std::vector<Stage> after = planning.present->stages;
    move_layers(after, moves);
    std::vector<std::vector<WorkerId>> holders;
    for (const Stage& stage : after) holders.push_back(stage.holders);
    auto plan = std::make_shared<const Plan>(with_holders(*planning.present, holders));
    apply_edit(PlanAsked{.plan = planning.present}, state_);
    hear(Planned{.request = state_.planning.request, .plan = plan, .reason = "so", .moves = moves});
    return true;
  }

  // The points of the play so far at which a fault may come. True: only the replacement of the
  // coordinator matters there; a worker's death would be the same as at a later point.
  const std::vector<bool>& points() const { return points_; }

  // What a worker has of a stage, even if it has ended; null if it does not have the whole state.
  const std::vector<int64_t>* content_of(WorkerId worker, StageId stage) const {
    return SimCrew::content_of(workers()[static_cast<size_t>(worker.value)], stage);
  }

  const State& state() const { return state_; }
  int32_t deaths() const { return deaths_; }
  int32_t cuts() const { return crew_.links.cuts(); }
  int32_t returns() const { return returns_; }
  int32_t received() const { return crew_.received; }
  // How many times layers have begun to move, and have moved.
  int32_t layers_given() const { return layers_given_; }
  int32_t layers_moved() const { return layers_moved_; }
  int32_t redone() const { return redone_; }
  int32_t resumed() const { return resumed_; }
  int32_t taken_back() const { return crew_.taken_back; }
  int32_t rolled_forward() const { return rolled_forward_; }
  int32_t restarts() const { return restarts_; }
  // Restarts of the coordinator during a recovery, and during a salvage.
  int32_t restarts_recovering() const { return restarts_recovering_; }
  int32_t restarts_salvaging() const { return restarts_salvaging_; }
  bool stopped() const { return stopped_; }
  bool failed() const { return !crew_.fault.empty(); }
  const std::string& fault() const { return crew_.fault; }
  // Does every stage still have a living holder?
  bool whole() const {
    for (const Stage& stage : state_.stages) {
      const auto lives = [&](WorkerId w) {
        const auto at = static_cast<size_t>(w.value);
        return workers()[at].alive && has_state(state_.members[at]);
      };
      if (std::none_of(stage.holders.begin(), stage.holders.end(), lives)) return false;
    }
    return true;
  }

 private:
  static constexpr int32_t kLayers = 2;        // of each worker, where layers move
  static constexpr int32_t kGathering = 3000;  // moves, at most, until the run begins
  static constexpr int64_t kAway = 40;         // milliseconds until a dead worker comes back

  // Leaves one holder absent at the beginning in about half of the stages that have several.
  void leave_some_out(Rules& rules) {
    std::vector<bool> alive(rules.plan->schedule.lists.size(), true);
    for (const Stage& stage : rules.stages) {
      const auto others = static_cast<int64_t>(stage.holders.size()) - 1;
      if (others == 0 || random_.below(2) == 0) continue;
      alive[static_cast<size_t>(stage.holders[static_cast<size_t>(random_.below(others))].value)] =
          false;
    }
    rules.whole = rules.plan;
    rules.plan = std::make_shared<const Plan>(without_workers(*rules.whole, alive).value());
  }

  static std::shared_ptr<const Plan> plan_of(int32_t stages, int32_t pipelines, bool fine = false) {
    Shape shape;
    shape.stages = stages;
    shape.layers = fine ? stages * kLayers : stages;
    shape.pipelines = pipelines;
    shape.micros = 1;
    shape.order = "1f1b";
    auto plan = make_plan(shape);
    CHECK(plan.ok(), "a small plan");
    if (fine) plan = with_fine_stages(plan.value());
    return std::make_shared<const Plan>(std::move(plan).value());
  }

  // The settings of the job that decide_worker() reads.
  static std::shared_ptr<const Job> job_of(const Rules& rules) {
    Job job;
    job.steps = rules.steps;
    job.resilience.dead_workers = rules.survive ? "continue" : "stop";
    job.network.connect_seconds = job.network.silence_seconds = 3600;
    job.validate_every = job.validate_micros = 0;
    return std::make_shared<const Job>(std::move(job));
  }

  void expect(bool holds, const std::string& what) { crew_.expect(holds, what); }
  int32_t incarnation_of(size_t worker) const { return crew_.incarnation_of(worker); }

  void broadcast() {
    most_told_ = std::max(most_told_, state_.told.directive.committed);
    for (size_t i = 0; i < workers().size(); ++i) send(i);
  }
  // On a worker's stream a newer instruction replaces one that has not arrived.
  void send(size_t worker) {
    Told told{state_.told, plans_.at(state_.told.plan_serial), nullptr, job_toml_};
    if (state_.told.rest) {
      auto rest = std::make_shared<RestOfStep>(*state_.told.rest);
      rest->parts = {rest->parts[worker]};
      told.rest = std::move(rest);
    }
    workers()[worker].arriving = std::make_shared<const Told>(std::move(told));
  }
  std::vector<SimWorker>& workers() { return crew_.workers; }
  const std::vector<SimWorker>& workers() const { return crew_.workers; }

  size_t any_worker() {
    return static_cast<size_t>(random_.below(static_cast<int64_t>(workers().size())));
  }

  void move(bool wild) {
    now_ += kMillisecond;
    if (wild && fault_move()) return;
    if (returns_at_ >= 0 && now_ >= kMillisecond * returns_at_) {
      returns_at_ = -1;
      come_back(static_cast<size_t>(chances_.death_at->victim.value));
    }
    const int64_t dice = random_.below(10);
    if (dice < 4) {
      crew_.now = now_;
      crew_.committed = state_.committed;
      crew_.act(any_worker(), [&] {
        if (pass(false)) restart();
      });
    } else if (dice < 6) {
      deliver_report(wild);
    } else if (dice < 8) {
      deliver_instruction(wild);
    } else if (dice == 8) {
      const size_t worker = any_worker();
      if (workers()[worker].alive) crew_.repeat(worker);
      send(worker);
    } else {
      hear_exits();
      hear(Tick{});
    }
  }

  bool fault_move() {
    const int64_t dice = random_.below(1000);
    // A death before the first step ends most runs.
    if (!state_.begun && random_.below(chances_.joining > 0 ? 16 : 8) != 0) return false;
    if (dice < chances_.death && deaths_ < chances_.deaths_at_most) {
      const size_t worker = any_worker();
      if (!workers()[worker].alive) return false;
      workers()[worker].alive = false;
      ++deaths_;
      return true;
    }
    if (dice >= 300 && dice < 300 + chances_.suspicion && deaths_ < chances_.deaths_at_most) {
      const size_t worker = any_worker();
      if (!workers()[worker].alive || !state_.members[worker].alive) return false;
      ++deaths_;
      hear(StreamEnded{{static_cast<int32_t>(worker)}, incarnation_of(worker)});
      return true;
    }
    const bool more = deaths_ < chances_.deaths_at_most;
    if (more && dice >= 300 && dice < 300 + chances_.cut) return cut(any_worker(), any_worker());
    if (dice >= 400 && dice < 400 + chances_.joining) return come_back(any_worker());
    if (dice >= 600 && dice < 600 + chances_.layers) return move_a_layer();
    if (dice >= 500 && dice < 500 + chances_.stop && !stopped_) {
      stopped_ = true;
      hear(Request{Request::Kind::Stop, 15});
      return true;
    }
    if (dice >= 800 && dice < 800 + chances_.checkpoint) {
      hear(Request{Request::Kind::Checkpoint, 10});
      return true;
    }
    return false;
  }

  // The planner answers that a layer is to go to a worker of a neighbouring layer.
  bool move_a_layer() {
    if (state_.situation != Situation::Running) return false;
    const auto& stages = state_.planning.present->stages;
    const auto s = static_cast<size_t>(random_.below(static_cast<int64_t>(stages.size())));
    const size_t beside = random_.below(2) == 0 ? s + 1 : s - 1;
    if (beside >= stages.size()) return false;
    const auto any = [&](const Stage& of) {
      return of.holders[static_cast<size_t>(random_.below(std::ssize(of.holders)))];
    };
    const LayerMove move{{static_cast<int32_t>(s)}, any(stages[s]), any(stages[beside])};
    if (holds(stages[s], move.to) || stages_of(stages, move.from).size() < 2) return false;
    return give({move});
  }

  // Two live workers can no longer reach each other, until a new process replaces one of them.
  bool cut(size_t a, size_t b) {
    if (!state_.begun || a == b || !has_state(state_.members[a]) || !has_state(state_.members[b]))
      return false;
    ++deaths_;
    return crew_.links.cut(a, b);
  }

  // Starts a new process in the place of a dead one; the coordinator hears of the death first.
  bool come_back(size_t worker) {
    if (workers()[worker].alive) return false;
    const WorkerId self{static_cast<int32_t>(worker)};
    if (!workers()[worker].exit_told) hear_exit(self);
    crew_.now = now_;
    crew_.start(worker, incarnation_of(worker) + 1);
    ++returns_;
    send(worker);
    return true;
  }

  // A coordinator that starts meanwhile is told, too.
  void hear_exit(WorkerId worker) {
    for (int32_t before = restarts_ - 1; before != restarts_;) {
      before = restarts_;
      hear(Exited{worker, true, 9});
    }
  }

  void hear_exits() {
    for (size_t i = 0; i < workers().size(); ++i) {
      if (workers()[i].alive || workers()[i].exit_told || random_.below(2) == 0) continue;
      workers()[i].exit_told = true;
      hear(Exited{{static_cast<int32_t>(i)}, true, 9});
    }
  }

  void deliver_report(bool wild) {
    auto& reports = crew_.reports;
    if (reports.empty()) return;
    const size_t at = static_cast<size_t>(random_.below(static_cast<int64_t>(reports.size())));
    const Report report = reports[at];
    const bool doubled = wild && random_.below(4) == 0;
    if (!doubled) reports.erase(reports.begin() + static_cast<int64_t>(at));
    if (wild && random_.below(5) == 0) return;  // lost
    hear(report);
  }

  void deliver_instruction(bool wild) {
    const size_t worker = any_worker();
    SimWorker& of = workers()[worker];
    if (!of.arriving || !of.alive) return;
    const bool lost = wild && random_.below(5) == 0, doubled = wild && random_.below(4) == 0;
    if (!lost) crew_.deliver(worker);
    if (!doubled) of.arriving.reset();
  }

  void hear(decltype(Input::what) what) {
    std::vector<decltype(Input::what)> inputs{std::move(what)};
    for (size_t i = 0; i < inputs.size(); ++i) {
      const State before = state_;
      if (dies()) return restart();
      Decision decision = decide(std::move(state_), {now_, inputs[i]});
      if (!chances_.death_at) ask_again(before, inputs[i], decision);
      expect(says_each_once(decision.reason), cat("a reason repeats itself: ", decision.reason));
      expect(restarts_ > 0 || decision.reason.find("was not saved") == std::string::npos,
             "a checkpoint is postponed although the coordinator was not replaced");
      state_ = std::move(decision.state);
      judge(before, decision);
      if (decision.new_plan) {
        plans_[state_.planning.serial] = state_.planning.present;
        names_[state_.planning.present_name] = state_.planning.present;
      }
      if (decision.instruction) judge_facts(*decision.instruction);
      if (decision.instruction && chances_.bug == Bug::ToldFirst) {
        broadcast();
        if (dies()) return restart();
      }
      const bool counts = decision.instruction || journal_ != facts_of(state_);
      if (counts && pass(true)) return restart();
      journal_ = facts_of(state_);
      if (chances_.bug == Bug::TargetNotWritten && journal_.epoch > rules_.epoch) {
        journal_.target = -1;
      }
      if (chances_.bug == Bug::RestNotWritten) journal_.rest = false;
      if (dies() || (counts && pass(true))) return restart();
      if (decision.instruction) broadcast();
      if (dies() || (counts && pass(false))) return restart();
      if (!decision.checkpoint) continue;
      on_disk_ = decision.checkpoint->version;
      inputs.push_back(Stored{on_disk_, ""});
    }
  }

  void ask_again(const State& before, const decltype(Input::what)& what, const Decision& decision) {
    const Decision again = decide(before, {now_, what});
    Instruction told = again.state.told;
    const auto& rest = decision.state.told.rest;
    if (told.rest && rest && *told.rest == *rest) told.rest = rest;
    expect(again.reason == decision.reason && told == decision.state.told,
           "the same question has two answers");
  }

  // True when all parts of the reason differ; parts are separated by semicolons.
  static bool says_each_once(const std::string& reason) {
    std::set<std::string> parts;
    for (size_t from = 0; from < reason.size();) {
      const size_t end = std::min(reason.find("; ", from), reason.size());
      if (!parts.insert(reason.substr(from, end - from)).second) return false;
      from = end + 2;
    }
    return true;
  }

  // The play has reached its next point: after an event of a worker; before a decision is written
  // down, after that, or after the decision is told. If the fault is due here, a worker dies. True
  // when the coordinator is to be replaced instead.
  bool pass(bool of_coordinator) {
    const auto& death = chances_.death_at;
    points_.push_back(of_coordinator);
    if (!death || std::ssize(points_) - 1 != death->at) return false;
    if (death->victim.value < 0) return true;
    SimWorker& victim = workers()[static_cast<size_t>(death->victim.value)];
    deaths_ += victim.alive;
    victim.alive = false;
    if (death->returns) returns_at_ = now_ / kMillisecond + kAway;
    return false;
  }

  bool dies() {
    return restarts_ < chances_.restarts_at_most && random_.below(1000) < chances_.restart;
  }

  // Starts another coordinator, which knows only what is written down and what it is told.
  void restart() {
    ++restarts_;
    restarts_recovering_ += journal_.begun && journal_.target < 0 && !journal_.last_resort;
    restarts_salvaging_ += journal_.last_resort && !journal_.ending;
    expect(most_told_ <= journal_.committed, "more is told than is written down");
    Rules rules = rules_;
    rules.term = journal_.term + 1;
    rules.saved = std::max(rules.saved, on_disk_);
    now_ += kMillisecond;
    state_ = journal_.begun
                 ? take_up(rules, journal_,
                           {names_.at(journal_.plan_name), names_.at(journal_.previous_plan)}, now_)
                 : take_up_beginning(rules, journal_, now_);
    journal_ = facts_of(state_);
    broadcast();
    for (size_t i = 0; i < workers().size(); ++i) {
      workers()[i].exit_told = false;  // the launcher reports all exits to each coordinator
      if (workers()[i].alive) crew_.repeat(i);
    }
    if (stopped_) hear(Request{Request::Kind::Stop, 15});
  }

  // Checks an instruction against the journal: what is told must have been written down before.
  void judge_facts(const Instruction& told) {
    const Facts facts = facts_of(state_);
    expect(facts.epoch == told.directive.epoch && facts.committed == told.directive.committed &&
               facts.members == told.directive.members,
           "an instruction tells what is not written down");
    const bool runs = told.directive.phase == Phase::Running;
    expect(!runs || (facts.target >= 0 && facts.target <= facts.committed),
           "an epoch runs from a version that is not written down");
    const bool same = facts.epoch == journal_.epoch && told.directive.phase != Phase::Out;
    expect(!same || std::includes(facts.members.begin(), facts.members.end(),
                                  journal_.members.begin(), journal_.members.end()),
           "a member is gone in the same epoch");
    expect(!same || journal_.target < 0 || facts.target == journal_.target,
           "an epoch begins at two versions");
    expect(facts.committed >= journal_.committed, "a commit was taken back in the journal");
  }

  // Checks that all states of the committed version, also received pieces, come from the same
  // attempts.
  void judge_commit() {
    std::set<std::vector<int64_t>> states;
    const auto add = [&](const std::vector<int64_t>& state) {
      const auto size = std::min(state.size(), static_cast<size_t>(state_.committed));
      states.insert({state.begin(), state.begin() + static_cast<ptrdiff_t>(size)});
    };
    for (size_t i = 0; i < workers().size(); ++i) {
      const SimWorker& of = workers()[i];
      const Member& member = state_.members[i];
      if (!member.alive || state_.committed <= member.since) continue;
      expect(
          of.version >= state_.committed,
          cat("version ", state_.committed, " is committed and worker ", i, " holds ", of.version));
      if (has_state(member)) add(of.content);
      for (const auto& [stage, layer] : of.gained) {
        if (layer.whole) add(layer.content);
        for (const auto& piece : layer.pieces) add(piece);
      }
      for (const auto& piece : of.pieces) add(piece);
    }
    for (size_t s = 0; s < state_.stages.size(); ++s) {
      for (const WorkerId holder : state_.stages[s].holders) {
        const auto at = static_cast<size_t>(holder.value);
        if (!has_state(state_.members[at]) || !workers()[at].alive) continue;
        expect(SimCrew::content_of(workers()[at], {static_cast<int32_t>(s)}) != nullptr,
               cat("worker ", holder, " counts as a holder of stage ", s, " without its state"));
      }
    }
    expect(states.size() <= 1, cat("version ", state_.committed, " is of several tries"));
  }

  void judge(const State& before, const Decision& decision) {
    expect(state_.committed >= before.committed, "a commit was taken back");
    layers_given_ += state_.transfer && !before.transfer;
    layers_moved_ += state_.stages != before.stages;
    expect(state_.epoch >= before.epoch, "an epoch was taken back");
    expect(state_.saved >= before.saved, "a checkpoint was forgotten");
    expect(!before.ending || state_.ending == before.ending, "an end was taken back");
    const bool recovered =
        before.situation == Situation::Recovering && state_.situation == Situation::Running;
    if (state_.committed > before.committed && state_.situation != Situation::Salvaging &&
        before.situation != Situation::Salvaging) {
      judge_commit();
    }
    if (recovered) ++(state_.committed > before.committed ? rolled_forward_ : redone_);
    resumed_ += recovered && state_.told.rest ? 1 : 0;
    for (const StepRecord& step : decision.steps) {
      expect(step.complete, cat("step ", step.step, " is committed without all its losses"));
    }
    if (state_.salvage.target >= 0 && before.salvage.target < 0) judge_target();
    if (decision.checkpoint) {
      const auto& shards = decision.checkpoint->shards;
      std::set<std::string> files;
      for (const SavedShard& shard : shards) {
        files.insert(shard.file);
        expect(shard.version == decision.checkpoint->version, "a shard of another version");
      }
      expect(static_cast<int32_t>(files.size()) == stages_, "a checkpoint lacks a stage");
    }
  }

  void judge_target() {
    const int64_t target = state_.salvage.target;
    expect(target >= state_.committed, "the target is below what is committed");
    for (const Stage& stage : state_.stages) {
      bool reachable = false, possible = false;
      for (const WorkerId holder : stage.holders) {
        const SimWorker& of = workers()[static_cast<size_t>(holder.value)];
        if (!state_.members[static_cast<size_t>(holder.value)].alive) continue;
        possible = true;
        reachable = reachable || of.version == target || of.version == target + 1;
      }
      expect(!possible || reachable, cat("no holder can give version ", target));
    }
  }

  Random random_;
  const Chances chances_;
  const bool fine_;  // each layer is a stage
  const int32_t stages_;
  Duration now_{};
  State state_;
  SimCrew crew_;
  const std::shared_ptr<const std::string> job_toml_ = std::make_shared<const std::string>();
  std::map<int64_t, std::shared_ptr<const Plan>> plans_;      // by serial
  std::map<std::string, std::shared_ptr<const Plan>> names_;  // by the names in facts
  Rules rules_;
  Facts journal_;
  int64_t most_told_ = -1;  // the highest commit that was told
  int64_t on_disk_ = -1;    // the newest checkpoint
  int32_t restarts_ = 0, restarts_recovering_ = 0, restarts_salvaging_ = 0;
  int32_t resumed_ = 0, deaths_ = 0, redone_ = 0, rolled_forward_ = 0, returns_ = 0;
  int32_t layers_given_ = 0, layers_moved_ = 0;
  std::vector<bool> points_;
  int64_t returns_at_ = -1;  // in milliseconds: when the dead worker comes back; -1 = never
  bool stopped_ = false;
};

}  // namespace tenuto
