// A small world for decide: workers that follow the rules or break one, a network that loses,
// doubles and reorders messages, and deaths, returns and signals at any moment. After every input
// it checks what must always hold.
#pragma once

#include <algorithm>
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
#include "control/puppet.h"
#include "control/recover.h"
#include "control/take_up.h"
#include "plan/make_plan.h"
#include "plan/routed.h"

namespace tenuto {

inline constexpr Duration kMillisecond = std::chrono::milliseconds(1);
inline constexpr int64_t kSpoilt = -2;  // in place of an epoch: the state is invalid
// Pieces in which a joiner gets the state; its plan is in force long before the last one.
inline constexpr size_t kPieces = 3;

// A run, its workers and the network between them.
class World {
 public:
  World(uint64_t seed, int32_t stages, int32_t pipelines, Rules rules, Chances chances)
      : random_(seed), chances_(chances), stages_(stages) {
    for (int32_t stage = 0; stage < stages; ++stage) {
      Stage of{stage, stage + 1, {}};
      for (int32_t pipe = 0; pipe < pipelines; ++pipe)
        of.holders.push_back({pipe * stages + stage});
      rules.stages.push_back(of);
    }
    if (rules.survive) {
      rules.plan = plan_of(stages, pipelines);
      rules.model.layers.resize(static_cast<size_t>(stages));
      for (Layer& layer : rules.model.layers) {  // ops take time, so skipping some is faster
        layer.forward = layer.backward_input = layer.backward_weight = kMillisecond;
      }
      rules.cluster = uniform_cluster(stages * pipelines, {kMillisecond, 0});
      if (chances.absent) leave_some_out(rules);
      plans_[1] = rules.plan;
    }
    rules.run = "this one";
    rules_ = rules;
    state_ = begin(rules, now_);
    journal_ = facts_of(state_);
    names_[state_.planning.present_name] = rules.plan;
    puppets_.resize(static_cast<size_t>(stages * pipelines));
    for (size_t i = 0; i < puppets_.size(); ++i) {
      puppets_[i].report.worker = {static_cast<int32_t>(i)};
      puppets_[i].version = rules.first_step;
      puppets_[i].alive = state_.members[i].alive;
      puppets_[i].exit_told = !puppets_[i].alive;
      if (puppets_[i].alive) tell(i);
    }
    broadcast();
  }

  // Makes `wild` moves with faults, then up to `limit` moves without, until the run ends.
  void run(int32_t wild, int32_t limit) {
    for (int32_t i = 0; i < wild && !state_.ending && !failed(); ++i) move(true);
    for (int32_t i = 0; i < limit && !state_.ending && !failed(); ++i) move(false);
  }

  const State& state() const { return state_; }
  int32_t deaths() const { return deaths_; }
  int32_t cuts() const { return links_.cuts(); }
  int32_t returns() const { return returns_; }
  int32_t received() const { return received_; }
  int32_t redone() const { return redone_; }
  int32_t resumed() const { return resumed_; }
  int32_t taken_back() const { return taken_back_; }
  int32_t rolled_forward() const { return rolled_forward_; }
  int32_t restarts() const { return restarts_; }
  // Restarts of the coordinator during a recovery, and during a salvage.
  int32_t restarts_recovering() const { return restarts_recovering_; }
  int32_t restarts_salvaging() const { return restarts_salvaging_; }
  bool stopped() const { return stopped_; }
  bool failed() const { return !fault_.empty(); }
  const std::string& fault() const { return fault_; }
  // Does every stage still have a living holder?
  bool whole() const {
    for (const Stage& stage : state_.rules.stages) {
      const auto lives = [&](WorkerId w) {
        const auto at = static_cast<size_t>(w.value);
        return puppets_[at].alive && has_state(state_.members[at]);
      };
      if (std::none_of(stage.holders.begin(), stage.holders.end(), lives)) return false;
    }
    return true;
  }

 private:
  // Leaves out one worker of about every second stage that has another one.
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

  static std::shared_ptr<const Plan> plan_of(int32_t stages, int32_t pipelines) {
    Shape shape;
    shape.stages = shape.layers = stages;
    shape.pipelines = pipelines;
    shape.micros = 1;
    shape.order = "1f1b";
    auto plan = make_plan(shape);
    CHECK(plan.ok(), "a small plan");
    return std::make_shared<const Plan>(std::move(plan).value());
  }

  void expect(bool holds, const std::string& what) {
    if (!holds && fault_.empty()) fault_ = what;
  }

  void tell(size_t worker) {
    puppets_[worker].report.sequence += 1;
    post(worker);
  }
  void post(size_t worker) { reports_.push_back(puppets_[worker].report); }
  void broadcast() {
    most_told_ = std::max(most_told_, state_.told.directive.committed);
    for (size_t i = 0; i < puppets_.size(); ++i)
      orders_.push_back({i, incarnation_of(i), state_.told});
  }

  int32_t incarnation_of(size_t worker) const { return puppets_[worker].report.incarnation; }

  size_t any_worker() {
    return static_cast<size_t>(random_.below(static_cast<int64_t>(puppets_.size())));
  }

  void move(bool wild) {
    now_ += kMillisecond;
    if (wild && fault_move()) return;
    const int64_t dice = random_.below(10);
    if (dice < 4) {
      act(any_worker());
    } else if (dice < 6) {
      deliver_report(wild);
    } else if (dice < 8) {
      deliver_order(wild);
    } else if (dice == 8) {
      const size_t worker = any_worker();
      if (puppets_[worker].alive) post(worker);
      orders_.push_back({worker, incarnation_of(worker), state_.told});
    } else {
      hear_exits();
      hear(Tick{});
    }
  }

  bool fault_move() {
    const int64_t dice = random_.below(1000);
    // A death before the first step ends the run.
    const bool begins = state_.situation == Situation::Gathering;
    if (begins && chances_.joining > 0 && random_.below(4) != 0) return false;
    if (dice < chances_.death && deaths_ < chances_.deaths_at_most) {
      const size_t worker = any_worker();
      if (!puppets_[worker].alive) return false;
      puppets_[worker].alive = false;
      ++deaths_;
      return true;
    }
    if (dice >= 300 && dice < 300 + chances_.suspicion && deaths_ < chances_.deaths_at_most) {
      const size_t worker = any_worker();
      if (!puppets_[worker].alive || !state_.members[worker].alive) return false;
      ++deaths_;
      hear(StreamEnded{{static_cast<int32_t>(worker)}, incarnation_of(worker)});
      return true;
    }
    const bool more = deaths_ < chances_.deaths_at_most;
    if (more && dice >= 300 && dice < 300 + chances_.cut) return cut(any_worker(), any_worker());
    if (dice >= 400 && dice < 400 + chances_.joining) return come_back(any_worker());
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

  // Two live workers can no longer reach each other, until a new process replaces one of them.
  bool cut(size_t a, size_t b) {
    if (a == b || !has_state(state_.members[a]) || !has_state(state_.members[b])) return false;
    ++deaths_;
    return links_.cut(a, b);
  }

  // Starts a new process in the place of a dead one; the coordinator hears of the death first.
  bool come_back(size_t worker) {
    if (puppets_[worker].alive) return false;
    const WorkerId self{static_cast<int32_t>(worker)};
    if (!puppets_[worker].exit_told) hear(Exited{self, true, 9});
    Puppet fresh;
    fresh.exit_told = false;
    fresh.report.worker = self;
    fresh.report.incarnation = incarnation_of(worker) + 1;
    fresh.joiner = true;
    links_.heal(worker);
    puppets_[worker] = std::move(fresh);
    ++returns_;
    tell(worker);
    return true;
  }

  void hear_exits() {
    for (size_t i = 0; i < puppets_.size(); ++i) {
      if (puppets_[i].alive || puppets_[i].exit_told || random_.below(2) == 0) continue;
      puppets_[i].exit_told = true;
      hear(Exited{{static_cast<int32_t>(i)}, true, 9});
    }
  }

  void deliver_report(bool wild) {
    if (reports_.empty()) return;
    const size_t at = static_cast<size_t>(random_.below(static_cast<int64_t>(reports_.size())));
    const Report report = reports_[at];
    const bool doubled = wild && random_.below(4) == 0;
    if (!doubled) reports_.erase(reports_.begin() + static_cast<int64_t>(at));
    if (wild && random_.below(5) == 0) return;  // lost
    hear(report);
  }

  void deliver_order(bool wild) {
    if (orders_.empty()) return;
    const size_t at = static_cast<size_t>(random_.below(static_cast<int64_t>(orders_.size())));
    const auto [worker, incarnation, order] = orders_[at];
    const bool doubled = wild && random_.below(4) == 0;
    if (!doubled) orders_.erase(orders_.begin() + static_cast<int64_t>(at));
    if (wild && random_.below(5) == 0) return;
    Puppet& puppet = puppets_[worker];
    if (incarnation != puppet.report.incarnation) return;  // for the previous process
    const auto age = [](const Instruction& of) {
      return std::pair(of.directive.term, of.sequence);
    };
    if (!puppet.alive || age(order) <= age(puppet.heard)) return;
    const auto rest = puppet.heard.rest;
    puppet.heard = order;
    if (!puppet.heard.rest) puppet.heard.rest = rest;  // a rest once heard is kept
  }

  // Does one thing that the worker would do now, by the rules of app/worker_run.
  void act(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const Directive& directive = puppet.heard.directive;
    if (!puppet.alive || directive.epoch == 0 || directive.phase == Phase::Out) return;
    const Joiner* own = place_of(worker);
    if (own == nullptr && !is_member(worker)) {
      // A joiner that has had no place yet waits for one; others are expelled.
      const bool waits = puppet.report.epoch == 0 && puppet.joiner;
      puppet.expelled = !waits;
      puppet.alive = waits;
      return;
    }
    if (own != nullptr && (puppet.report.epoch != directive.epoch || !puppet.has_place)) {
      return come(worker, *own);
    }
    if (puppet.report.epoch != directive.epoch) {
      puppet.report.epoch = directive.epoch;
      puppet.report.term = directive.term;
      puppet.report.phase = Phase::Frozen;
      puppet.report.lost_peers.clear();
      puppet.report.version = puppet.version;
      puppet.report.connected = true;
      puppet.report.address = cat("worker-", worker);
      puppet.resting = false;
      puppet.report.resumes = chances_.resumes;
      if (chances_.resumes) hold(worker);
      return tell(worker);
    }
    if (directive.phase == Phase::Frozen) return frozen(worker);
    if (puppet.report.phase != Phase::Running && begin_rest(worker)) return tell(worker);
    if (puppet.report.phase != Phase::Running) {
      puppet.try_of = -1;
      puppet.has.clear();
      const bool ahead = puppet.version == directive.committed + 1;
      if (ahead && chances_.bug == Bug::LateUndo) {
        puppet.report.phase = Phase::Running;
        puppet.report.plan = puppet.heard.plan_serial;
        tell(worker);
      }
      if (ahead && chances_.bug != Bug::NoUndo) take_back(worker);
      puppet.report.phase = Phase::Running;
      puppet.report.plan = puppet.heard.plan_serial;
      return tell(worker);
    }
    if (puppet.report.plan != puppet.heard.plan_serial) {
      puppet.report.plan = puppet.heard.plan_serial;
      return tell(worker);
    }
    if (links_.notice(worker, puppet)) return tell(worker);
    if (puppet.resting) return end_rest(worker);
    if (own != nullptr && !receive_part(worker, *own)) return;
    if (save(worker)) return;
    if (puppet.report.version != puppet.version) {
      puppet.report.version = puppet.version;
      return tell(worker);
    }
    if (directive.stop_at >= 0 && puppet.version >= directive.stop_at) return;
    if (chances_.resumes && own == nullptr && random_.below(2) == 0) return do_some(worker);
    take_step(worker);
  }

  Value value_of(size_t worker, ValueKind kind) const {
    const auto self = static_cast<int32_t>(worker);
    return {kind, -1, {self % stages_}, {self / stages_}};
  }
  bool is_last(size_t worker) const {
    return static_cast<int32_t>(worker) % stages_ == stages_ - 1;
  }

  // Runs part of its own micro-batch of the next step: first the forward, then the backward.
  void do_some(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const bool forward = puppet.try_of < 0;
    puppet.try_of = puppet.report.epoch;
    puppet.has = {value_of(worker, forward ? ValueKind::Stash : ValueKind::Partial)};
    if (!is_last(worker)) puppet.has.push_back(value_of(worker, ValueKind::Activation));
    const bool first = static_cast<int32_t>(worker) % stages_ == 0;
    if (!forward && !first) puppet.has.push_back(value_of(worker, ValueKind::Gradient));
  }

  // Reports what it has of the steps that may be open.
  void hold(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const int64_t version = puppet.version;
    const auto own = static_cast<int32_t>(worker) / stages_;
    puppet.report.held.clear();
    if (version > rules_.first_step) {
      const StageId stage = value_of(worker, ValueKind::Total).stage;
      StepInventory taken{
          version - 1, puppet.state.back(), {{{ValueKind::Total, -1, stage, {}}}, {stage}}, {}};
      if (!is_last(worker)) {
        taken.inventory.values.push_back(value_of(worker, ValueKind::Activation));
      }
      for (const StepSummary& of : puppet.report.steps) {
        if (of.step != version - 1) continue;
        for (const LossOfMicro& loss : of.losses) taken.losses.push_back(loss.micro);
      }
      if (taken.losses.empty()) taken.losses = puppet.knows;
      puppet.report.held.push_back(std::move(taken));
    }
    if (puppet.try_of < 0) return;
    StepInventory begun{version, puppet.try_of, {puppet.has, {}}, {}};
    if (is_last(worker)) begun.losses = {own};
    puppet.report.held.push_back(std::move(begun));
  }

  // Begins the rest of a step. Returns false if the epoch does not begin with one.
  bool begin_rest(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const Directive& directive = puppet.heard.directive;
    const auto& rest = puppet.heard.rest;
    if (!rest || rest->epoch != directive.epoch || rest->step != directive.committed) return false;
    Report& report = puppet.report;
    const RestPart& part = rest->parts[worker];
    expect(puppet.version == rest->step || puppet.version == rest->step + 1,
           cat("worker ", worker, " is to end step ", rest->step, " at version ", puppet.version));
    puppet.knows.clear();
    for (const StepInventory& held : report.held) {
      if (held.step == rest->step) puppet.knows = held.losses;
    }
    const bool ahead = puppet.version > rest->step;
    const int64_t attempt = ahead ? puppet.state.back() : puppet.try_of;
    expect(attempt < 0 || attempt == rest->attempt ||
               (part.stored.empty() && ahead == !part.back.empty()),
           cat("worker ", worker, " goes on with attempt ", attempt, " as with ", rest->attempt));
    if (!part.back.empty()) {
      ++taken_back_;
      take_back(worker);
    }
    if (puppet.version == rest->step) {
      puppet.has = part.stored;
      puppet.try_of = puppet.has.empty() ? -1 : rest->attempt;
    }
    std::erase_if(report.steps, [&](const StepSummary& of) { return of.step >= rest->step; });
    std::erase_if(report.shards, [&](const SavedShard& of) { return of.version > rest->step; });
    report.version = rest->step;
    report.held.clear();
    report.phase = Phase::Running;
    report.plan = puppet.heard.plan_serial;
    puppet.resting = true;
    return true;
  }

  // Ends the rest of the step. It needs all members, so it ends only when all run it.
  void end_rest(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const Directive& directive = puppet.heard.directive;
    const RestOfStep& rest = *puppet.heard.rest;
    for (const WorkerId peer : directive.members) {
      const Puppet& other = puppets_[static_cast<size_t>(peer.value)];
      if (links_.is_cut(worker, static_cast<size_t>(peer.value))) return;
      if (other.report.epoch != directive.epoch || other.report.phase != Phase::Running) return;
      if (!other.alive && other.step_epoch != directive.epoch) return;
    }
    if (puppet.version == rest.step) {
      puppet.version += 1;
      puppet.state.push_back(rest.attempt);
    }
    puppet.step_epoch = directive.epoch;
    puppet.plan = puppet.heard.plan_serial;
    puppet.resting = false;
    puppet.try_of = -1;
    puppet.has.clear();
    std::set<int32_t> losses(puppet.knows.begin(), puppet.knows.end());
    for (const Op& op : rest.plan.schedule.lists[worker]) {
      if (op.kind == OpKind::Forward && op.stage.value == stages_ - 1)
        losses.insert(op.micro.value);
    }
    StepSummary summary{.step = rest.step, .start_ns = 1, .finish_ns = 2};
    for (const int32_t micro : losses) summary.losses.push_back({micro, 1.0});
    puppet.knows.assign(losses.begin(), losses.end());
    puppet.report.steps.push_back(summary);
    puppet.report.seen = directive.committed;
  }

  // Its entry among the joiners in the order that it has heard; null if it has none.
  const Joiner* place_of(size_t worker) const {
    for (const Joiner& joiner : puppets_[worker].heard.joiners) {
      if (joiner.worker == WorkerId{static_cast<int32_t>(worker)} &&
          joiner.incarnation == incarnation_of(worker)) {
        return &joiner;
      }
    }
    return nullptr;
  }
  // The incarnation under which it is a member; nothing if it is no member.
  std::optional<int32_t> listed(size_t worker) const {
    const Instruction& heard = puppets_[worker].heard;
    for (size_t i = 0; i < heard.directive.members.size(); ++i) {
      if (heard.directive.members[i].value == static_cast<int32_t>(worker))
        return heard.incarnations[i];
    }
    return {};
  }
  bool is_member(size_t worker) const {
    const bool open = listed(worker) == -1 && !puppets_[worker].joiner;
    return open || listed(worker) == incarnation_of(worker);
  }

  // A joiner gets ready anew in each epoch, and takes its place when its plan is in force.
  void come(size_t worker, const Joiner& own) {
    Puppet& puppet = puppets_[worker];
    const Instruction& heard = puppet.heard;
    Report& report = puppet.report;
    if (report.epoch != heard.directive.epoch) {
      report.epoch = heard.directive.epoch;
      report.term = heard.directive.term;
      report.phase = Phase::Frozen;
      report.version = report.received = -1;
      report.connected = true;
      report.address = cat("worker-", worker);
      report.steps.clear();
      report.shards.clear();
      report.held.clear();
      report.resumes = false;
      puppet.try_of = -1;
      puppet.has.clear();
      puppet.resting = false;
      report.plan = heard.plan_serial;
      if (chances_.bug != Bug::KeepsPieces) puppet.pieces.clear();
      puppet.has_place = false;
      puppet.transfer_at = -1;
      return tell(worker);
    }
    if (own.plan_serial < 0) return;
    if (report.plan != heard.plan_serial) {
      report.plan = heard.plan_serial;
      return tell(worker);
    }
    if (heard.plan_from < 0 || heard.directive.committed + 1 < heard.plan_from) return;
    puppet.has_place = true;
    puppet.version = report.version = heard.plan_from;
    report.phase = Phase::Running;
    tell(worker);
  }

  // Takes the piece of the state that is due at this version. Returns false if it must wait for it.
  bool receive_part(size_t worker, const Joiner& own) {
    Puppet& puppet = puppets_[worker];
    if (puppet.report.received >= 0 || puppet.transfer_at == puppet.version) return true;
    const Puppet& donor = puppets_[static_cast<size_t>(own.donors.front().value)];
    const auto version = static_cast<size_t>(puppet.version);
    const bool gives = donor.alive && donor.report.epoch == puppet.report.epoch &&
                       donor.report.phase == Phase::Running && donor.state.size() >= version;
    if (!gives) return false;
    puppet.pieces.emplace_back(donor.state.begin(),
                               donor.state.begin() + static_cast<ptrdiff_t>(version));
    puppet.transfer_at = puppet.version;
    if (puppet.pieces.size() < kPieces && chances_.bug != Bug::HalfReceived) return true;
    // With a piece missing there is no state.
    const bool whole = puppet.pieces.size() == kPieces;
    puppet.state = whole ? puppet.pieces.front() : std::vector<int64_t>();
    puppet.pieces.clear();
    puppet.report.received = puppet.version;
    ++received_;
    tell(worker);
    return true;
  }

  void take_back(size_t worker) {
    Puppet& puppet = puppets_[worker];
    expect(puppet.version > state_.committed, cat("worker ", worker, " undoes a committed step"));
    puppet.version -= 1;
    if (!puppet.state.empty()) puppet.state.pop_back();
    // The last piece is of the version that is undone, so the learned state becomes invalid.
    if (puppet.transfer_at > puppet.version) puppet.state.assign(1, kSpoilt);
    puppet.report.version = puppet.version;
    std::erase_if(puppet.report.steps,
                  [&](const StepSummary& of) { return of.step >= puppet.version; });
    std::erase_if(puppet.report.shards,
                  [&](const SavedShard& of) { return of.version > puppet.version; });
  }

  void frozen(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const Instruction& heard = puppet.heard;
    if (heard.save_version >= 0 && is_saver(worker) && puppet.version == heard.save_version + 1) {
      take_back(worker);
      return tell(worker);
    }
    save(worker);
  }

  bool is_saver(size_t worker) const {
    const auto& savers = puppets_[worker].heard.savers;
    return std::find(savers.begin(), savers.end(), WorkerId{static_cast<int32_t>(worker)}) !=
           savers.end();
  }

  bool save(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const int64_t version = puppet.heard.save_version;
    if (version != puppet.version || !is_saver(worker)) return false;
    for (const SavedShard& shard : puppet.report.shards) {
      if (shard.version == version) return false;
    }
    const int32_t stage = static_cast<int32_t>(worker) % stages_;
    puppet.report.shards = {{version, cat("stage-", stage), 1, "", {stage}}};
    puppet.report.version = puppet.version;
    tell(worker);
    return true;
  }

  // Takes a step. It needs messages of all members, so it ends only when all have got as far.
  void take_step(size_t worker) {
    Puppet& puppet = puppets_[worker];
    const Directive& directive = puppet.heard.directive;
    if (directive.committed < puppet.version && chances_.bug != Bug::StepsAhead) return;
    for (size_t peer = 0; peer < puppets_.size(); ++peer) {
      const Puppet& other = puppets_[peer];
      const WorkerId id{static_cast<int32_t>(peer)};
      if (std::find(directive.members.begin(), directive.members.end(), id) ==
          directive.members.end()) {
        continue;
      }
      if (!has_a_part(puppet, id)) continue;
      if (links_.is_cut(worker, peer)) return;
      const bool has_sent = other.version > puppet.version && other.step_epoch == directive.epoch;
      const bool sends =
          other.alive && other.version == puppet.version && other.report.epoch == directive.epoch &&
          other.heard.directive.phase == Phase::Running && (!other.joiner || other.has_place);
      if (!has_sent && !sends) return;
    }
    const int64_t step = puppet.version;
    const Instruction& heard = puppet.heard;
    if (heard.plan_from >= 0 && step >= heard.plan_from) puppet.plan = heard.plan_serial;
    puppet.version += 1;
    puppet.step_epoch = directive.epoch;
    puppet.state.push_back(directive.epoch);
    puppet.try_of = -1;
    puppet.has.clear();
    puppet.knows.clear();
    for (auto& piece : puppet.pieces) piece.push_back(directive.epoch);
    expect(puppet.version <= state_.committed + 1, "a worker is two versions ahead");
    std::erase_if(puppet.report.steps,
                  [&](const StepSummary& of) { return of.step < directive.committed; });
    StepSummary summary{.step = step, .start_ns = 1, .finish_ns = 2};
    if (chances_.bug != Bug::ForgetsLosses) summary.losses = losses_of(worker);
    puppet.report.steps.push_back(summary);
    puppet.report.seen = directive.committed;
  }

  // True when worker `id` takes part in the step that the puppet is about to take.
  static bool has_a_part(const Puppet& puppet, WorkerId id) {
    const Instruction& heard = puppet.heard;
    for (const Joiner& joiner : heard.joiners) {
      if (joiner.worker != id) continue;
      return heard.plan_serial >= joiner.plan_serial && heard.plan_from >= 0 &&
             puppet.version >= heard.plan_from;
    }
    return true;
  }

  // Losses of the micro-batches whose last stage the worker runs under the plan in force.
  std::vector<LossOfMicro> losses_of(size_t worker) const {
    const auto self = static_cast<int32_t>(worker);
    if (plans_.empty()) {
      if (self % stages_ != stages_ - 1) return {};
      return {{self / stages_, 1.0}};
    }
    std::vector<LossOfMicro> losses;
    const Plan& plan = *plans_.at(puppets_[worker].plan);
    for (const Op& op : plan.schedule.lists[worker]) {
      if (op.kind != OpKind::Forward || op.stage.value != stages_ - 1) continue;
      losses.push_back({op.micro.value, 1.0});
    }
    return losses;
  }

  void hear(decltype(Input::what) what) {
    std::vector<decltype(Input::what)> inputs{std::move(what)};
    for (size_t i = 0; i < inputs.size(); ++i) {
      const State before = state_;
      if (dies()) return restart();
      Decision decision = decide(state_, {now_, inputs[i]});
      const Decision again = decide(before, {now_, inputs[i]});
      Instruction told = again.state.told;
      const auto& rest = decision.state.told.rest;
      if (told.rest && rest && *told.rest == *rest) told.rest = rest;
      expect(again.reason == decision.reason && told == decision.state.told,
             "the same question has two answers");
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
      journal_ = facts_of(state_);
      if (chances_.bug == Bug::TargetNotWritten && journal_.epoch > rules_.epoch) {
        journal_.target = -1;
      }
      if (chances_.bug == Bug::RestNotWritten) journal_.rest = false;
      if (dies()) return restart();
      if (decision.instruction) broadcast();
      if (dies()) return restart();
      if (!decision.checkpoint) continue;
      on_disk_ = decision.checkpoint->version;
      inputs.push_back(Stored{on_disk_, ""});
    }
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
    for (size_t i = 0; i < puppets_.size(); ++i) {
      puppets_[i].exit_told = false;  // the launcher tells every coordinator all
      if (puppets_[i].alive) post(i);
    }
    if (stopped_) hear(Request{Request::Kind::Stop, 15});
  }

  // Checks an order against the journal: what is told must have been written down before.
  void judge_facts(const Instruction& told) {
    const Facts facts = facts_of(state_);
    expect(facts.epoch == told.directive.epoch && facts.committed == told.directive.committed &&
               facts.members == told.directive.members,
           "an order tells what is not written down");
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

  // Checks that all states of the committed version, and pieces of it, come from the same tries.
  void judge_commit() {
    std::set<std::vector<int64_t>> states;
    const auto add = [&](const std::vector<int64_t>& state) {
      const auto size = std::min(state.size(), static_cast<size_t>(state_.committed));
      states.insert({state.begin(), state.begin() + static_cast<ptrdiff_t>(size)});
    };
    for (size_t i = 0; i < puppets_.size(); ++i) {
      const Puppet& puppet = puppets_[i];
      const Member& member = state_.members[i];
      if (!member.alive || state_.committed <= member.since) continue;
      expect(puppet.version >= state_.committed,
             cat("version ", state_.committed, " is committed and worker ", i, " holds ",
                 puppet.version));
      if (has_state(member)) add(puppet.state);
      for (const auto& piece : puppet.pieces) add(piece);
    }
    expect(states.size() <= 1, cat("version ", state_.committed, " is of several tries"));
  }

  void judge(const State& before, const Decision& decision) {
    expect(state_.committed >= before.committed, "a commit was taken back");
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
    for (const Stage& stage : state_.rules.stages) {
      bool reachable = false, possible = false;
      for (const WorkerId holder : stage.holders) {
        const Puppet& puppet = puppets_[static_cast<size_t>(holder.value)];
        if (!state_.members[static_cast<size_t>(holder.value)].alive) continue;
        possible = true;
        reachable = reachable || puppet.version == target || puppet.version == target + 1;
      }
      expect(!possible || reachable, cat("no holder can give version ", target));
    }
  }

  Random random_;
  const Chances chances_;
  const int32_t stages_;
  Duration now_{};
  State state_;
  std::vector<Puppet> puppets_;
  std::vector<Report> reports_;
  std::vector<std::tuple<size_t, int32_t, Instruction>> orders_;  // worker, incarnation, order
  std::map<int64_t, std::shared_ptr<const Plan>> plans_;          // by serial; may be empty
  std::map<std::string, std::shared_ptr<const Plan>> names_;      // by the names in facts
  Rules rules_;
  Facts journal_;
  int64_t most_told_ = -1;  // the highest commit that was told
  int64_t on_disk_ = -1;    // the newest checkpoint
  int32_t restarts_ = 0, restarts_recovering_ = 0, restarts_salvaging_ = 0;
  int32_t resumed_ = 0, taken_back_ = 0;
  int32_t deaths_ = 0, redone_ = 0, rolled_forward_ = 0, returns_ = 0, received_ = 0;
  CutLinks links_;
  bool stopped_ = false;
  std::string fault_;
};

}  // namespace tenuto
