#include "protocol/wire.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "protocol/message_size.h"

namespace tenuto {
namespace {

// Packets that were sent again: more in a step are no count.
constexpr int64_t kMostRepeated = int64_t{1} << 31;

wire::Phase to_wire(Phase phase) {
  if (phase == Phase::Running) return wire::RUNNING;
  return phase == Phase::Out ? wire::OUT : wire::FROZEN;
}

Phase from_wire(wire::Phase phase) {
  if (phase == wire::RUNNING) return Phase::Running;
  return phase == wire::OUT ? Phase::Out : Phase::Frozen;
}

// Clamps a time so that the difference of two times fits into a Duration. count_in() clamps a count
// so that it is not below zero; rate_in() makes a rate that is no positive number 0.
int64_t time_in(int64_t nanoseconds) {
  constexpr int64_t kMost = int64_t{1} << 60;
  return std::clamp(nanoseconds, -kMost, kMost);
}
template <class Number>
Number count_in(Number number) {
  return std::max<Number>(number, 0);
}
double rate_in(double bytes_per_second) {
  return std::isfinite(bytes_per_second) && bytes_per_second > 0 ? bytes_per_second : 0;
}

wire::Figure to_wire(Figure figure) {
  switch (figure) {
    case Figure::Known:
      return wire::KNOWN;
    case Figure::NotThere:
      return wire::NOT_THERE;
    case Figure::Forbidden:
      return wire::FORBIDDEN;
    case Figure::NotCounted:
      return wire::NOT_COUNTED;
    case Figure::Unreadable:
      break;
  }
  return wire::UNREADABLE;
}

// What a later version may add counts as unreadable.
Figure from_wire(wire::Figure figure) {
  for (const Figure each :
       {Figure::Known, Figure::NotThere, Figure::Forbidden, Figure::NotCounted}) {
    if (to_wire(each) == figure) return each;
  }
  return Figure::Unreadable;
}

template <class Losses>
void write_losses(const std::vector<MicroLoss>& from, Losses* to) {
  for (const MicroLoss& of : from) {
    auto* loss = to->Add();
    loss->set_micro(of.micro.value);
    loss->set_loss(of.loss);
    if (of.accuracy) loss->set_accuracy(*of.accuracy);
  }
}

template <class Losses>
std::vector<MicroLoss> read_losses(const Losses& from) {
  std::vector<MicroLoss> losses;
  for (const auto& of : from) {
    losses.push_back({{of.micro()}, of.loss()});
    if (of.has_accuracy()) losses.back().accuracy = of.accuracy();
  }
  return losses;
}

void write_sample(const StepSample& sample, wire::StepSummary* to) {
  for (const LinkSample& link : sample.links) {
    wire::LinkSample* one = to->add_links();
    one->set_from(link.from.value);
    one->set_messages(link.messages);
    one->set_least_ns(link.least.count());
    one->set_median_ns(link.median.count());
    one->set_upper_ns(link.upper.count());
    one->set_smallest_bytes(link.smallest.count);
    one->set_largest_bytes(link.largest.count);
    one->set_of_smallest_ns(link.of_smallest.count());
    one->set_of_largest_ns(link.of_largest.count());
  }
  for (const OpSample& op : sample.ops) {
    wire::OpSample* one = to->add_ops();
    one->set_stage(op.stage.value);
    one->set_kind(static_cast<int32_t>(op.kind));
    one->set_ops(op.ops);
    one->set_median_ns(op.median.count());
  }
  for (const NetworkSample& network : sample.network) {
    wire::NetworkSample* one = to->add_network();
    one->set_peer(network.peer.value);
    one->set_round_trip_ns(network.round_trip.count());
    one->set_variation_ns(network.variation.count());
    one->set_bytes_per_second(network.bytes_per_second);
    one->set_repeated(network.repeated);
  }
  if (!sample.processor) return;
  const ProcessorSample& processor = *sample.processor;
  wire::ProcessorSample* one = to->mutable_processor();
  one->set_steps(processor.steps);
  one->set_step_ns(processor.step.count());
  one->set_cpu_ns(processor.cpu.count());
  one->set_run_delay_ns(processor.run_delay.count());
  one->set_pressure(processor.pressure);
  one->set_run_delay_is(to_wire(processor.run_delay_is));
  one->set_pressure_is(to_wire(processor.pressure_is));
}

ProcessorSample read_processor(const wire::ProcessorSample& from) {
  const auto time = [](int64_t nanoseconds) { return Duration(count_in(time_in(nanoseconds))); };
  ProcessorSample sample{.steps = std::max(from.steps(), 1),
                         .step = time(from.step_ns()),
                         .cpu = time(from.cpu_ns()),
                         .run_delay = time(from.run_delay_ns()),
                         .pressure = 0,
                         .run_delay_is = from_wire(from.run_delay_is()),
                         .pressure_is = from_wire(from.pressure_is())};
  // Also for what is no number.
  if (from.pressure() > 0) sample.pressure = std::min(from.pressure(), 1.0);
  return sample;
}

StepSample read_sample(const wire::StepSummary& from, WorkerId worker) {
  StepSample sample{worker, from.step(), {}, {}, {}, {}};
  if (from.has_processor()) sample.processor = read_processor(from.processor());
  for (const auto& link : from.links()) {
    sample.links.push_back({.from = {link.from()},
                            .to = worker,
                            .messages = count_in(link.messages()),
                            .least = Duration(time_in(link.least_ns())),
                            .median = Duration(time_in(link.median_ns())),
                            .upper = Duration(time_in(link.upper_ns())),
                            .smallest = {count_in(link.smallest_bytes())},
                            .largest = {count_in(link.largest_bytes())},
                            .of_smallest = Duration(time_in(link.of_smallest_ns())),
                            .of_largest = Duration(time_in(link.of_largest_ns()))});
  }
  const int32_t last = static_cast<int32_t>(OpKind::Evaluate);
  for (const auto& op : from.ops()) {
    sample.ops.push_back({.worker = worker,
                          .stage = {op.stage()},
                          .kind = static_cast<OpKind>(std::clamp(op.kind(), 0, last)),
                          .ops = count_in(op.ops()),
                          .median = Duration(time_in(op.median_ns()))});
  }
  for (const auto& network : from.network()) {
    sample.network.push_back(
        {.peer = {network.peer()},
         .round_trip = Duration(time_in(network.round_trip_ns())),
         .variation = Duration(time_in(network.variation_ns())),
         .bytes_per_second = rate_in(network.bytes_per_second()),
         .repeated = std::clamp<int64_t>(network.repeated(), 0, kMostRepeated)});
  }
  return sample;
}

void write_step(const StepSummary& step, wire::StepSummary* to) {
  to->set_step(step.step);
  write_losses(step.losses, to->mutable_losses());
  write_losses(step.evaluation, to->mutable_evaluation());
  to->set_gradient_norm(step.gradient_norm);
  to->set_learning_rate(step.learning_rate);
  to->set_finite(step.finite);
  to->set_clipped(step.clipped);
  to->set_broken_off(step.broken_off);
  to->set_start_ns(step.start_ns);
  to->set_finish_ns(step.finish_ns);
  to->set_device_start_ns(step.device_start_ns);
  to->set_device_finish_ns(step.device_finish_ns);
  to->set_lag_p99_ns(step.lag_p99_ns);
  to->set_lag_valid(step.lag_valid);
  to->set_to_host_ns(step.to_host_ns);
  to->set_to_device_ns(step.to_device_ns);
  to->set_staged_messages(step.staged_messages);
  to->set_direct_messages(step.direct_messages);
  write_sample(step.sample, to);
  to->set_events(step.events);
}

StepSummary read_step(const wire::StepSummary& from, WorkerId worker) {
  return {.step = from.step(),
          .losses = read_losses(from.losses()),
          .evaluation = read_losses(from.evaluation()),
          .gradient_norm = from.gradient_norm(),
          .learning_rate = from.learning_rate(),
          .finite = from.finite(),
          .clipped = from.clipped(),
          .broken_off = from.broken_off(),
          .start_ns = time_in(from.start_ns()),
          .finish_ns = time_in(from.finish_ns()),
          .device_start_ns = time_in(from.device_start_ns()),
          .device_finish_ns = time_in(from.device_finish_ns()),
          .lag_p99_ns = time_in(from.lag_p99_ns()),
          .lag_valid = from.lag_valid(),
          .to_host_ns = time_in(from.to_host_ns()),
          .to_device_ns = time_in(from.to_device_ns()),
          .staged_messages = count_in(from.staged_messages()),
          .direct_messages = count_in(from.direct_messages()),
          .sample = read_sample(from, worker),
          .events = from.events()};
}

// Writes consecutive values that differ only in their micro-batch as one entry.
template <class Runs>
void write_values(const std::vector<Value>& values, Runs* to) {
  const Value* before = nullptr;
  wire::Values* run = nullptr;
  for (const Value& value : values) {
    const bool joins = before != nullptr && before->kind == value.kind &&
                       before->stage == value.stage && before->part == value.part &&
                       before->micro.value >= 0 && value.micro.value >= 0;
    if (!joins) {
      run = to->Add();
      run->set_kind(static_cast<int32_t>(value.kind));
      run->set_stage(value.stage.value);
      run->set_part(value.part);
    }
    if (value.micro.value >= 0) run->add_micros(value.micro.value);
    before = &value;
  }
}

template <class Runs>
std::vector<Value> read_values(const Runs& from) {
  std::vector<Value> values;
  const int32_t last = static_cast<int32_t>(ValueKind::ClipDecision);
  for (const auto& run : from) {
    Value value{static_cast<ValueKind>(std::clamp(run.kind(), 0, last)),
                static_cast<int16_t>(run.part()),
                {run.stage()},
                {}};
    if (run.micros().empty()) values.push_back(value);
    for (const int32_t micro : run.micros()) {
      value.micro = {micro};
      values.push_back(value);
    }
  }
  return values;
}

// Writes the first messages that have kMostNumberedBytes together, but at least one. The receiver
// acknowledges them, and the next ones follow.
template <class Messages>
void write_numbered(const std::vector<Numbered>& from, Messages* to) {
  int64_t bytes = 0;
  for (const Numbered& message : from) {
    bytes += static_cast<int64_t>(message.bytes.size());
    if (!to->empty() && bytes > kMostNumberedBytes) return;
    auto* one = to->Add();
    one->set_serial(message.serial);
    one->set_bytes(message.bytes);
  }
}

template <class Messages>
std::vector<Numbered> read_numbered(const Messages& from) {
  std::vector<Numbered> messages;
  for (const auto& one : from) messages.push_back({one.serial(), one.bytes()});
  return messages;
}

}  // namespace

wire::Report to_wire(const Report& report) {
  wire::Report to;
  to.set_worker(report.worker.value);
  to.set_incarnation(report.incarnation);
  to.set_sequence(report.sequence);
  to.set_term(report.term);
  to.set_epoch(report.epoch);
  to.set_phase(to_wire(report.phase));
  to.set_version(report.version);
  to.set_seen(report.seen);
  to.set_address(report.address);
  to.set_connected(report.connected);
  for (const StepSummary& step : report.steps) write_step(step, to.add_steps());
  for (const SavedShard& shard : report.shards) {
    wire::SavedShard* saved = to.add_shards();
    saved->set_version(shard.version);
    saved->set_file(shard.file);
    saved->set_bytes(shard.bytes);
    saved->set_checksum(shard.checksum);
    saved->set_stage(shard.stage.value);
  }
  to.set_plan(report.plan);
  to.set_received(report.received);
  for (const WorkerId peer : report.lost_peers) to.add_lost_peers(peer.value);
  for (const RepairNote& repair : report.repairs) {
    wire::Repair* note = to.add_repairs();
    note->set_serial(repair.serial);
    note->set_peer(repair.peer.value);
    note->set_step(repair.step);
    note->set_took_ns(repair.took_ns);
  }
  to.set_resumes(report.resumes);
  for (const StepInventory& held : report.held) {
    wire::StepInventory* inventory = to.add_held();
    inventory->set_step(held.step);
    inventory->set_attempt(held.attempt);
    write_values(held.inventory.values, inventory->mutable_values());
    for (const StageId stage : held.inventory.stepped) inventory->add_stepped(stage.value);
    for (const int32_t micro : held.losses) inventory->add_losses(micro);
  }
  to.set_elements(report.elements);
  write_numbered(report.said, to.mutable_said());
  to.set_obeyed(report.obeyed);
  to.set_failure(report.failure);
  to.set_failure_code(static_cast<int32_t>(report.failure_code));
  to.set_host(report.host);
  return to;
}

Report from_wire(const wire::Report& message) {
  Report report{.worker = {message.worker()},
                .incarnation = message.incarnation(),
                .sequence = message.sequence(),
                .term = message.term(),
                .epoch = message.epoch(),
                .phase = from_wire(message.phase()),
                .version = message.version(),
                .seen = message.seen(),
                .address = message.address(),
                .connected = message.connected()};
  for (const auto& step : message.steps()) report.steps.push_back(read_step(step, report.worker));
  for (const auto& shard : message.shards()) {
    report.shards.push_back(
        {shard.version(), shard.file(), shard.bytes(), shard.checksum(), {shard.stage()}});
  }
  report.plan = message.plan();
  report.received = message.received();
  for (const int32_t peer : message.lost_peers()) report.lost_peers.push_back({peer});
  for (const auto& repair : message.repairs()) {
    report.repairs.push_back(
        {repair.serial(), {repair.peer()}, repair.step(), time_in(repair.took_ns())});
  }
  report.resumes = message.resumes();
  for (const auto& held : message.held()) {
    StepInventory inventory{held.step(), held.attempt(), {read_values(held.values()), {}}, {}};
    for (const int32_t stage : held.stepped()) inventory.inventory.stepped.push_back({stage});
    inventory.losses.assign(held.losses().begin(), held.losses().end());
    report.held.push_back(std::move(inventory));
  }
  report.elements = count_in(message.elements());
  report.said = read_numbered(message.said());
  report.obeyed = count_in(message.obeyed());
  report.failure = message.failure();
  const int32_t last = static_cast<int32_t>(Code::Cancelled);
  report.failure_code = static_cast<Code>(std::clamp(message.failure_code(), 0, last));
  report.host = message.host();
  return report;
}

wire::Instruction to_wire(const Instruction& instruction) {
  const Directive& directive = instruction.directive;
  wire::Instruction to;
  to.set_sequence(instruction.sequence);
  to.set_term(directive.term);
  to.set_epoch(directive.epoch);
  to.set_phase(to_wire(directive.phase));
  to.set_committed(directive.committed);
  to.set_first_step(directive.first_step);
  to.set_stop_at(directive.stop_at);
  for (size_t i = 0; i < directive.members.size(); ++i) {
    wire::Peer* peer = to.add_members();
    peer->set_worker(directive.members[i].value);
    if (i < instruction.addresses.size()) peer->set_address(instruction.addresses[i]);
    if (i < instruction.incarnations.size()) peer->set_incarnation(instruction.incarnations[i]);
  }
  for (const Joiner& joiner : instruction.joiners) {
    wire::Joiner* one = to.add_joiners();
    one->set_worker(joiner.worker.value);
    one->set_incarnation(joiner.incarnation);
    for (const StageId stage : joiner.stages) one->add_stages(stage.value);
    for (const WorkerId donor : joiner.donors) one->add_donors(donor.value);
    one->set_plan_serial(joiner.plan_serial);
  }
  to.set_plan_serial(instruction.plan_serial);
  to.set_plan_from(instruction.plan_from);
  to.set_save_version(instruction.save_version);
  for (const WorkerId saver : instruction.savers) to.add_savers(saver.value);
  to.set_save_directory(instruction.save_directory);
  to.set_trace_from(instruction.trace_from);
  to.set_trace_until(instruction.trace_until);
  to.set_exit_code(instruction.exit_code);
  to.set_ending(instruction.ending);
  for (const std::string& shard : instruction.resume_shards) to.add_resume_shards(shard);
  for (const Fault& fault : instruction.faults) {
    wire::WantedFault* wanted = to.add_faults();
    wanted->set_link(fault.link);
    wanted->set_latency_ms(fault.latency_ms);
    wanted->set_at_step(fault.at_step);
    wanted->set_until_step(fault.until_step);
    wanted->set_worker(fault.worker);
    wanted->set_speed(fault.speed);
    wanted->set_kind(fault.kind);
    wanted->set_for_ms(fault.for_ms);
    wanted->set_skew_ms(fault.skew_ms);
    wanted->set_pair(fault.pair);
    wanted->set_port(fault.port);
  }
  return to;
}

Instruction from_wire(const wire::Instruction& message) {
  Instruction instruction;
  instruction.sequence = message.sequence();
  Directive& directive = instruction.directive;
  directive.term = message.term();
  directive.epoch = message.epoch();
  directive.committed = message.committed();
  directive.first_step = message.first_step();
  directive.stop_at = message.stop_at();
  directive.phase = from_wire(message.phase());
  instruction.exit_code = message.exit_code();
  instruction.ending = message.ending();
  for (const auto& peer : message.members()) {
    directive.members.push_back({peer.worker()});
    instruction.addresses.push_back(peer.address());
    instruction.incarnations.push_back(peer.incarnation());
  }
  for (const auto& one : message.joiners()) {
    Joiner joiner{{one.worker()}, one.incarnation(), {}, {}, one.plan_serial()};
    for (const int32_t stage : one.stages()) joiner.stages.push_back({stage});
    for (const int32_t donor : one.donors()) joiner.donors.push_back({donor});
    instruction.joiners.push_back(std::move(joiner));
  }
  instruction.plan_serial = message.plan_serial();
  instruction.plan_from = message.plan_from();
  instruction.save_version = message.save_version();
  for (const int32_t saver : message.savers()) instruction.savers.push_back({saver});
  instruction.save_directory = message.save_directory();
  instruction.trace_from = message.trace_from();
  instruction.trace_until = message.trace_until();
  for (const auto& shard : message.resume_shards()) instruction.resume_shards.push_back(shard);
  for (const auto& wanted : message.faults()) {
    Fault fault;
    fault.kind = wanted.kind();
    fault.link = wanted.link();
    fault.latency_ms = wanted.latency_ms();
    fault.at_step = wanted.at_step();
    fault.until_step = wanted.until_step();
    fault.worker = wanted.worker();
    fault.speed = wanted.speed();
    fault.for_ms = wanted.for_ms();
    fault.skew_ms = wanted.skew_ms();
    fault.pair = wanted.pair();
    fault.port = wanted.port();
    instruction.faults.push_back(fault);
  }
  for (const auto& one : message.hosted()) {
    instruction.hosted.push_back({.worker = {one.worker()},
                                  .incarnation = one.incarnation(),
                                  .process = {one.process()},
                                  .heard = count_in(one.heard()),
                                  .commands = read_numbered(one.commands())});
  }
  return instruction;
}

void write_hosted(const std::vector<Hosted>& hosted, WorkerId worker, int32_t incarnation,
                  wire::Instruction* to) {
  for (const Hosted& of : hosted) {
    if (of.worker != worker || of.incarnation != incarnation) continue;
    wire::Hosted* one = to->add_hosted();
    one->set_worker(of.worker.value);
    one->set_incarnation(of.incarnation);
    one->set_process(of.process.value);
    one->set_heard(of.heard);
    write_numbered(of.commands, one->mutable_commands());
  }
}

void write_rest(const RestOfStep& rest, WorkerId worker, wire::Rest* to) {
  to->set_epoch(rest.epoch);
  to->set_step(rest.step);
  to->set_attempt(rest.attempt);
  if (static_cast<size_t>(worker.value) >= rest.parts.size()) return;
  const RestPart& part = rest.parts[static_cast<size_t>(worker.value)];
  write_values(part.stored, to->mutable_stored());
  for (const StageId stage : part.back) to->add_back(stage.value);
}

RestOfStep from_wire(const wire::Rest& message) {
  RestOfStep rest{message.epoch(),
                  message.step(),
                  message.attempt(),
                  {},
                  {{read_values(message.stored()), {}, {}}}};
  for (const int32_t stage : message.back()) rest.parts.front().back.push_back({stage});
  return rest;
}

}  // namespace tenuto
