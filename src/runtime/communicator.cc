#include "runtime/communicator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/slice.h"
#include "runtime/worker.h"

namespace tenuto {

namespace {

// Tensors below it are made by algorithms with few rounds.
constexpr int64_t kFewRoundsBytes = 64 << 10;

// The names of a call's messages on the wire.
constexpr int kPartBits = 2, kRoundBits = 30;

Tag tag_of(int64_t group, int64_t call, uint64_t part, const ReductionCall& message) {
  const auto round = static_cast<uint64_t>(message.round);
  const auto chunk = static_cast<uint64_t>(message.chunk.value);
  return {group, call, (((chunk << kRoundBits) | round) << kPartBits) | part};
}

Goal goal_of(CallKind kind) {
  switch (kind) {
    case CallKind::AllReduce:
      return Goal::AllReduce;
    case CallKind::ReduceScatter:
      return Goal::ReduceScatter;
    case CallKind::AllGather:
    case CallKind::Broadcast:
      break;
  }
  return Goal::AllGather;
}

std::string_view name_of(CallKind kind) {
  return kind == CallKind::Broadcast ? "broadcast" : tenuto::name_of(goal_of(kind));
}

bool reduces(CallKind kind) {
  return kind == CallKind::AllReduce || kind == CallKind::ReduceScatter;
}

uint64_t number_of(std::string_view text) {
  uint64_t number = text.size();
  for (const char letter : text) number = mix(number, static_cast<unsigned char>(letter));
  return number;
}

// Scratch stays as it is when nothing may be taken from the wire any more.
void keep_forever(std::vector<std::unique_ptr<Reduction>> reductions) {
  static auto* const kept = new std::vector<std::unique_ptr<Reduction>>();
  for (auto& each : reductions) kept->push_back(std::move(each));
}

Status check_memory(const CallRequest& request) {
  const size_t one = size_of(request.element);
  const size_t size = request.own.size();
  if (size != request.total.size() || size % one != 0) {
    return invalid(cat("a call brings ", size, " bytes and ends with ", request.total.size(),
                       ": expected equal sizes, of whole elements of ", one, " bytes"));
  }
  const auto own = reinterpret_cast<uintptr_t>(request.own.data());
  const auto total = reinterpret_cast<uintptr_t>(request.total.data());
  if (own % one != 0 || total % one != 0) {
    return invalid(cat("memory of a call starts off the bounds of its elements of ", one,
                       " bytes: align it for ", name_of(request.element)));
  }
  if (own != total && own < total + size && total < own + size) {
    return invalid("what a call brings and what it ends with overlap in part: expected the same "
                   "memory, or memory apart");
  }
  return ok();
}

Status check_algorithm(const std::string& name, CallKind kind) {
  const NamedAlgorithm* const found = find_algorithm(name);
  if (found == nullptr) return make_procedure(name, {}).error();
  const bool broadcast = (name == "broadcast") == (kind == CallKind::Broadcast);
  if (found->card.goal == goal_of(kind) && broadcast) return ok();
  return invalid(cat(name, " is no algorithm for a call of the kind ", name_of(kind),
                     ": tenuto collective list says which are"));
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::make(const CommunicatorWire& wire,
                                                         CommunicatorSettings settings) {
  CHECK(wire.transport != nullptr && wire.mailbox != nullptr && wire.clock != nullptr,
        "a group needs a wire, its mailbox and a clock");
  const auto& members = settings.members;
  const std::set<WorkerId> different(members.begin(), members.end());
  const auto found = std::find(members.begin(), members.end(), settings.self);
  if (found == members.end() || different.size() != members.size()) {
    return invalid(cat("a group needs different members with worker ", settings.self,
                       " among them, found ", members.size(), " of which ", different.size(),
                       " differ"));
  }
  if (settings.way.algorithm != "auto") {
    const Status status = check_algorithm(settings.way.algorithm, CallKind::AllReduce);
    if (!status.ok()) return status.error();
  }
  if (settings.slice_bytes < 0 || settings.sends_at_once < 0 || settings.way.chunks < 0) {
    return invalid("slice bytes, sends at once and chunks are counts: expected 0 or more");
  }
  const auto place = static_cast<int32_t>(found - members.begin());
  return std::unique_ptr<Communicator>(new Communicator(wire, std::move(settings), place));
}

Communicator::~Communicator() {
  if (!flights_.empty()) {
    fail({Code::Cancelled, Reach::Call, "the group has ended with calls under way"});
  }
}

Result<ProcedureName> Communicator::name_for(const CallRequest& request) const {
  const auto bytes = static_cast<int64_t>(request.own.size());
  const bool few = bytes < kFewRoundsBytes;
  ProcedureName name;
  const bool given = !request.way.algorithm.empty();
  const CallWay& way = given || request.kind != CallKind::AllReduce ? request.way : settings_.way;
  name.algorithm = way.algorithm;
  const bool automatic = request.kind == CallKind::AllReduce && name.algorithm == "auto";
  if (given && !automatic) {
    if (Status status = check_algorithm(name.algorithm, request.kind); !status.ok()) {
      return status.error();
    }
  }
  switch (request.kind) {
    case CallKind::AllReduce:
      if (automatic) name.algorithm = few ? "halving" : "ring";
      break;
    case CallKind::ReduceScatter:
      if (name.algorithm.empty()) {
        name.algorithm = few ? "reduce-scatter-halving" : "reduce-scatter-ring";
      }
      break;
    case CallKind::AllGather:
      if (name.algorithm.empty()) name.algorithm = few ? "all-gather-doubling" : "all-gather-ring";
      break;
    case CallKind::Broadcast:
      name.algorithm = "broadcast";
      name.root = request.root.value < 0 ? settings_.members.front() : request.root;
      break;
  }
  const AlgorithmCard& card = find_algorithm(name.algorithm)->card;
  if (card.free_chunks) name.chunks = way.chunks;
  if (card.late_most != 0) name.late = way.late;
  return name;
}

Result<Communicator::Choice> Communicator::choose(const CallRequest& request) {
  auto name = name_for(request);
  if (!name.ok()) return name.error();
  Choice choice;
  choice.name = name.value();
  auto found = procedures_.find(choice.name);
  if (!found.ok() && request.kind == CallKind::AllReduce && choice.name.algorithm != "ring") {
    notes_.push_back(cat("ring in place of ", choice.name.algorithm, ": ",
                         found.error().message));
    choice.name = {"ring", 0, {}, {}};
    found = procedures_.find(choice.name);
  }
  if (!found.ok()) return found.error();
  choice.procedure = found.value();
  choice.slices = slices_for(static_cast<int64_t>(request.own.size()), choice.procedure->chunks,
                             settings_.slice_bytes);
  return choice;
}

// All that both ends of a message have to agree on.
uint64_t Communicator::belief_of(const CallRequest& request, const Choice& choice) const {
  uint64_t late = choice.name.late.size();
  for (const WorkerId each : choice.name.late) late = mix(late, static_cast<uint64_t>(each.value));
  uint64_t members = settings_.members.size();
  for (const WorkerId each : settings_.members) {
    members = mix(members, static_cast<uint64_t>(each.value));
  }
  const uint64_t procedure = mix(number_of(choice.name.algorithm), late,
                                 static_cast<uint64_t>(choice.procedure->chunks),
                                 static_cast<uint64_t>(choice.name.root.value));
  const uint64_t tensor =
      mix(request.own.size(), static_cast<uint64_t>(request.element),
          reduces(request.kind) ? static_cast<uint64_t>(request.operation) : 0,
          static_cast<uint64_t>(request.kind));
  return mix(procedure, tensor, members, static_cast<uint64_t>(choice.slices));
}

std::unique_ptr<Reduction> Communicator::make_reduction(const CallRequest& request,
                                                        const Choice& choice) {
  ReductionSettings settings;
  settings.element = request.element;
  if (reduces(request.kind)) settings.operation = request.operation;
  settings.sends_at_once = settings_.sends_at_once;
  const Collective& moves = Procedures::cut(*choice.procedure, choice.slices);
  if (request.kind == CallKind::ReduceScatter) {
    for (const WorkerId owner : choice.procedure->owners) {
      settings.kept.insert(settings.kept.end(), static_cast<size_t>(choice.slices),
                           owner == settings_.self);
    }
  }
  std::vector<int64_t> scratch;
  if (!scratch_.empty()) {
    scratch = std::move(scratch_.back());
    scratch_.pop_back();
  }
  return std::make_unique<Reduction>(moves, settings_.self, std::move(settings), request.own,
                                     request.total, wire_.clock->now(), std::move(scratch));
}

Result<CallNumber> Communicator::start(const CallRequest& request) {
  while (hear(Duration::zero())) continue;
  if (ended_) return *ended_;
  if (Status status = check_memory(request); !status.ok()) return status.error();
  if (calls_.size() >= kMostCalls) {
    return Error{Code::Exhausted, Reach::Call,
                 cat(calls_.size(), " calls are under way or not waited for, at most ",
                     kMostCalls, ": wait for one of them first")};
  }
  const auto choice = choose(request);
  if (!choice.ok()) return choice.error();
  const int64_t number = next_++;
  heard_at_ = std::max(heard_at_, wire_.clock->now());
  Call& call = calls_[number];
  call.what = cat("call ", number, " (", name_of(request.kind), " of ", request.own.size(),
                  " bytes by ", choice.value().name.algorithm, ")");
  call.belief = belief_of(request, choice.value());
  call.procedure = choice.value().procedure;
  call.parts[Tensor] = make_reduction(request, choice.value());
  make_calls(number, call, Tensor);
  return CallNumber{number};
}

// Hands a part's next messages to the wire; closes the call when all is over.
void Communicator::make_calls(int64_t number, Call& call, Part part) {
  for (const ReductionCall& message : call.parts[part]->startable()) {
    const Ticket ticket = fresh_ticket();
    const Flight flight{number, part, message.index};
    flights_.emplace(static_cast<uint64_t>(ticket), flight);
    const Tag tag = tag_of(settings_.number, number, part, message);
    Status status = ok();
    if (message.send) {
      const Stamp stamp{wire_.clock->now(), {}, call.belief};
      status = wire_.transport->send(message.peer, tag, message.source, stamp, ticket);
    } else {
      status = wire_.transport->recv(message.peer, tag, message.target, ticket);
    }
    if (status.ok()) continue;
    flights_.erase(static_cast<uint64_t>(ticket));
    Error error = status.error();
    error.message = cat(about(call, flight), ": ", error.message);
    return fail(std::move(error));
  }
  close(call);
}

void Communicator::close(Call& call) {
  for (const auto& part : call.parts) {
    if (part != nullptr && !part->done()) return;
  }
  scratch_.push_back(call.parts[Tensor]->take_scratch());
  for (auto& part : call.parts) part.reset();
  call.over = true;
}

// Takes one report, if one comes within `limit`.
bool Communicator::hear(Duration limit) {
  const Result<Done> report = wire_.mailbox->wait(limit);
  if (!report.ok()) return false;
  handle(report.value());
  return true;
}

void Communicator::handle(const Done& done) {
  if (done.ticket == kNoTicket) {
    if (done.peer.value < 0 || done.status.ok()) return;
    const auto& members = settings_.members;
    if (std::find(members.begin(), members.end(), done.peer) == members.end()) return;
    lost_.emplace(done.peer, done.status.error().message);
    if (!ended_) fail(done.status.error());
    return;
  }
  const auto found = flights_.find(static_cast<uint64_t>(done.ticket));
  if (found == flights_.end()) return;  // of somebody else who uses the mailbox between calls
  const Flight flight = found->second;
  flights_.erase(found);
  heard_at_ = wire_.clock->now();
  if (ended_) return;
  Call& call = calls_.at(flight.call);
  Reduction& part = *call.parts[flight.part];
  const ReductionCall message = part.about(flight.index);
  if (!done.status.ok()) {
    Error error = done.status.error();
    error.message = cat(about(call, flight), ": ", error.message);
    return fail(std::move(error));
  }
  if (!message.send && done.tally != call.belief) {
    return fail({Code::Invalid, Reach::Job,
                 cat(about(call, flight), ": its message is of another call than this one; all "
                     "members have to make the same calls in the same order, with equal sizes, "
                     "elements, operations and settings")});
  }
  part.finish(flight.index, message.send ? heard_at_ : done.finish);
  make_calls(flight.call, call, flight.part);
}

std::string Communicator::about(const Call& call, const Flight& flight) const {
  const ReductionCall message = call.parts[flight.part]->about(flight.index);
  return cat(call.what, ", chunk ", message.chunk, " in round ", message.round,
             message.send ? " to worker " : " from worker ", message.peer);
}

// Ends every call that is under way, and the group.
void Communicator::fail(Error error) {
  if (ended_) return;
  for (auto& [number, call] : calls_) {
    if (call.over) continue;
    call.over = true;
    call.status = error;
  }
  ended_ = std::move(error);
  abandon();
}

// Gives the memory of all calls back: drops the links over which something is still under way, and
// hears until all of it has ended.
void Communicator::abandon() {
  std::set<WorkerId> peers;
  for (const auto& [ticket, flight] : flights_) {
    peers.insert(calls_.at(flight.call).parts[flight.part]->peer_of(flight.index));
  }
  for (const WorkerId peer : peers) {
    [[maybe_unused]] const Status status = wire_.transport->drop(peer);
  }
  const Duration limit = wire_.clock->now() + kRetireLimit;
  while (!flights_.empty()) {
    const Duration left = limit - wire_.clock->now();
    if (left.count() <= 0) break;
    hear(left);
  }
  std::vector<std::unique_ptr<Reduction>> parts;
  for (auto& [number, call] : calls_) {
    for (auto& part : call.parts) {
      if (part != nullptr) parts.push_back(std::move(part));
    }
  }
  if (flights_.empty()) return;
  ended_->reach = Reach::Job;
  ended_->message +=
      cat("; ", flights_.size(), " messages are still under way after ",
          fixed(to_milliseconds(kRetireLimit), 0),
          " ms, so their memory is in use: this process must end");
  keep_forever(std::move(parts));
}

// What is waited for in vain.
Error Communicator::silence(const Call& call) const {
  std::string what = "nothing is under way";
  WorkerId peer;
  for (uint8_t part = 0; part < PartCount; ++part) {
    if (call.parts[part] == nullptr) continue;
    const ReductionCall message = call.parts[part]->waiting();
    if (message.index < 0) continue;
    const Flight flight{0, static_cast<Part>(part), message.index};
    what = about(call, flight);
    break;
  }
  return {Code::Timeout, Reach::Worker,
          cat(what, ": no news for ", fixed(to_milliseconds(settings_.silence_limit), 0),
              " ms; is it running, and does it make the same calls?")};
}

Status Communicator::wait(CallNumber number) {
  const auto found = calls_.find(static_cast<int64_t>(number));
  if (found == calls_.end()) {
    return invalid(cat("there is no call ", static_cast<int64_t>(number),
                       " to wait for: each is waited for once"));
  }
  Call& call = found->second;
  const Duration begin = wire_.clock->now();
  while (!call.over) {
    const Duration since = std::max(begin, heard_at_);
    const Duration left = since + settings_.silence_limit - wire_.clock->now();
    if (hear(std::max(left, Duration::zero())) || call.over) continue;
    if (wire_.clock->now() - std::max(begin, heard_at_) >= settings_.silence_limit) {
      fail(silence(call));
    }
  }
  Status status = std::move(call.status);
  calls_.erase(found);
  return status;
}

Result<bool> Communicator::test(CallNumber number) {
  while (hear(Duration::zero())) continue;
  const auto found = calls_.find(static_cast<int64_t>(number));
  if (found == calls_.end()) {
    return invalid(cat("there is no call ", static_cast<int64_t>(number), " to ask for"));
  }
  Call& call = found->second;
  if (!call.over && wire_.clock->now() - heard_at_ >= settings_.silence_limit) {
    fail(silence(call));
  }
  if (!call.over) return false;
  const Status status = std::move(call.status);
  calls_.erase(found);
  if (!status.ok()) return status.error();
  return true;
}

Status Communicator::run(const CallRequest& request) {
  const auto number = start(request);
  return number.ok() ? wait(number.value()) : Status(number.error());
}

std::vector<std::string> Communicator::take_notes() { return std::exchange(notes_, {}); }

}  // namespace tenuto
