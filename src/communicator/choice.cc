// How a group makes its calls: by which algorithm, in how many chunks and slices, with how many
// sends at once; what members tell each other for that, and what links are like.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/slice.h"
#include "communicator/communicator.h"
#include "communicator/recovery.h"

namespace tenuto {

namespace {

// Calls with smaller tensors use algorithms with few rounds.
constexpr int64_t kFewRoundsBytes = 64 << 10;
// Of the calls that measure a link: how many of each size, and the bytes of a large message.
constexpr int kProbes = 5;
constexpr int64_t kProbeBytes = 256 << 10;
// On a slow link a slice is sent in this many alphas; but it has at least kLeastSlice bytes.
constexpr double kSliceAlphas = 16;
constexpr int64_t kLeastSlice = 16 << 10;

uint64_t number_of(std::string_view text) {
  uint64_t number = text.size();
  for (const char letter : text) number = mix(number, static_cast<unsigned char>(letter));
  return number;
}

}  // namespace

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

Status Communicator::check_algorithm(const std::string& name, CallKind kind) {
  const NamedAlgorithm* const found = find_algorithm(name);
  if (found == nullptr) return make_procedure(name, {}).error();
  const bool broadcast = (name == "broadcast") == (kind == CallKind::Broadcast);
  if (found->card.goal == goal_of(kind) && broadcast) return ok();
  return invalid(cat(name, " is no algorithm for a call of the kind ", name_of(kind),
                     ": tenuto collective list says which are"));
}

bool Communicator::is_automatic(const CallRequest& request) const {
  const std::string& asked = request.way.algorithm;
  return request.kind == CallKind::AllReduce &&
         (asked.empty() ? settings_.way.algorithm : asked) == "auto";
}

Result<ProcedureName> Communicator::name_for(const CallRequest& request, int64_t number) {
  const auto bytes = static_cast<int64_t>(request.own.size());
  const bool few = bytes < kFewRoundsBytes;
  ProcedureName name;
  const bool given = !request.way.algorithm.empty();
  const CallWay& way = given || request.kind != CallKind::AllReduce ? request.way : settings_.way;
  name.algorithm = way.algorithm;
  const bool automatic = is_automatic(request);
  if (given && !automatic) {
    if (Status status = check_algorithm(name.algorithm, request.kind); !status.ok()) {
      return status.error();
    }
  }
  switch (request.kind) {
    case CallKind::AllReduce:
      if (!automatic) break;
      if (!chooser_) return invalid("this group was not made for auto: name an algorithm");
      if (Status status = take_told(number - settings_.calls_ahead + 1); !status.ok()) {
        return status.error();
      }
      return choose_by_calls(bytes);
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
  if (generation() > 0) {  // some may be dead
    const auto& those = settings_.members;
    std::erase_if(name.late, [&those](WorkerId each) {
      return std::find(those.begin(), those.end(), each) == those.end();
    });
  }
  const bool by_size = name.algorithm == "late-one" || name.algorithm == "broadcast";
  if (by_size && name.chunks == 0 && settings_.link && member_count() > 1) {
    if (name.algorithm == "late-one") name.chunks = costs_of(request).chunks;
    if (name.chunks == 0) name.chunks = best_chunks(member_count(), {bytes}, *settings_.link);
  }
  return name;
}

Result<Communicator::Making> Communicator::choose(const CallRequest& request, int64_t number) {
  auto name = name_for(request, number);
  if (!name.ok()) return name.error();
  return making_of(std::move(name).value(), request);
}

Result<Communicator::Making> Communicator::making_of(ProcedureName name,
                                                     const CallRequest& request) {
  Making making;
  making.name = std::move(name);
  making.automatic = is_automatic(request);
  auto found = procedures_.find(making.name);
  if (!found.ok() && request.kind == CallKind::AllReduce && making.name.algorithm != "ring") {
    note(cat("ring in place of ", making.name.algorithm, ": ", found.error().message));
    making.name = {"ring", 0, {}, {}};
    found = procedures_.find(making.name);
  }
  if (!found.ok()) return found.error();
  making.procedure = found.value();
  making.slices =
      slices_for(static_cast<int64_t>(request.own.size()), making.procedure->chunks, slice_bytes());
  return making;
}

// A hash of all that both ends of a message have to agree on.
uint64_t Communicator::fingerprint_of(const CallRequest& request, const Making& making) const {
  uint64_t late = making.name.late.size();
  for (const WorkerId each : making.name.late) late = mix(late, static_cast<uint64_t>(each.value));
  uint64_t members = settings_.members.size();
  for (const WorkerId each : settings_.members) {
    members = mix(members, static_cast<uint64_t>(each.value));
  }
  const uint64_t procedure =
      mix(number_of(making.name.algorithm), late, static_cast<uint64_t>(making.procedure->chunks),
          static_cast<uint64_t>(making.name.root.value));
  const uint64_t tensor = mix(request.own.size(), static_cast<uint64_t>(request.element),
                              reduces(request.kind) ? static_cast<uint64_t>(request.operation) : 0,
                              static_cast<uint64_t>(request.kind));
  // All members must exchange away times in the same calls, and have noted the same ones.
  const uint64_t chooser = chooser_ ? chooser_->fingerprint() : 0;
  const uint64_t told = chooser_ ? mix(static_cast<uint64_t>(settings_.told_bytes),
                                       static_cast<uint64_t>(settings_.calls_ahead))
                                 : 1;
  const uint64_t asks = asker_ != nullptr && asker_->in_force() ? 1 : 0;
  return mix(mix(procedure, tensor), mix(members, told, asks), static_cast<uint64_t>(making.slices),
             chooser);
}

// A slice is so small that a chunk's first slice is passed on early, and so large that the fixed
// cost of a message does not count.
int64_t Communicator::slice_bytes() const {
  const int64_t most = settings_.slice_bytes;
  if (!settings_.link || settings_.link->bytes_per_second <= 0) return most;
  const double bytes = kSliceAlphas * 1e-9 * static_cast<double>(settings_.link->alpha.count()) *
                       settings_.link->bytes_per_second;
  if (bytes >= static_cast<double>(most)) return most;
  return std::max(static_cast<int64_t>(bytes), std::min(kLeastSlice, most));
}

int32_t Communicator::sends_at_once(const Call& call, const Collective& moves) const {
  const int32_t usual = settings_.sends_at_once;
  const bool is_slow = slice_bytes() < settings_.slice_bytes;
  if (!is_slow || usual == 0) return usual;
  if (call.name.algorithm == "late-one") return 1;
  std::optional<WorkerId> peer;
  for (const Round& round : moves.rounds) {
    for (const Move& move : round.moves) {
      if (move.from != settings_.self) continue;
      if (peer && *peer != move.to) return usual;
      peer = move.to;
    }
  }
  return 2 * usual;
}

// Whether the ready service is asked how to make a call.
bool Communicator::asks(const CallRequest& request) const {
  return asker_ != nullptr && asker_->in_force() && is_automatic(request) &&
         worth_asking(costs_of(request), settings_.link.value_or(AlphaBeta{}).alpha,
                      settings_.rules.margin_thousandths);
}

CallCosts Communicator::costs_of(const CallRequest& request) const {
  const ChooserRules& rules = settings_.rules;
  return call_costs(member_count(), Bytes{std::ssize(request.own)},
                    settings_.link.value_or(AlphaBeta{}),
                    {rules.margin_thousandths, rules.least_chunk});
}

void Communicator::ask(int64_t number, Call& call) {
  call.asked = true;
  const Status status =
      asker_->ask(generation(), number, costs_of(call.request), settings_.members);
  if (!status.ok()) lose_service(status.error());
}

void Communicator::lose_service(Error error) {
  error.message = cat(asker_->name(), ": ", error.message);
  lose(asker_->desk().host, error);
}

// Handles a report if it is of the ready service; returns whether it was.
bool Communicator::take_answer(const Done& done) {
  if (asker_ == nullptr) return false;
  const WorkerId service = asker_->desk().service;
  if (done.ticket == kNoTicket) {
    if (done.peer != service) return false;
    if (asker_->in_force() && !done.status.ok()) lose_service(done.status.error());
    return true;
  }
  const ReadyAsker::Heard heard = asker_->handle(done);
  if (!heard.mine) return false;
  heard_at_ = wire_.clock->now();
  if (ended_) return true;
  if (heard.error) lose_service(*heard.error);
  if (heard.answer) begin_asked(*heard.answer);
  return true;
}

// The service has answered for a call: begins the call. Ignores answers for stopped calls: for
// these, the service is asked again.
void Communicator::begin_asked(const ReadyAnswer& answer) {
  const auto found = calls_.find(answer.call);
  if (stopped() || answer.generation != generation() || found == calls_.end()) return;
  Call& call = found->second;
  if (!call.asked || call.over || call.generation >= 0) return;
  call.asked = false;
  const CallCosts costs = costs_of(call.request);
  ProcedureName name{costs.halving ? "halving" : "ring", 0, {}, {}};
  std::string reason = "all members had come";
  if (answer.kind == ReadyAnswer::Kind::Late) {
    const WorkerId late = asker_->desk().members[static_cast<size_t>(answer.late)];
    name = {"late-one", costs.chunks, {late}, {}};
    reason = cat("worker ", late, " had not come ", fixed(to_milliseconds(answer.patience), 3),
                 " ms after all others");
  }
  note_choice(call.bytes, name.algorithm, answer.late, reason);
  auto made = making_of(std::move(name), call.request);
  if (!made.ok()) return fail(made.error());
  made.value().automatic = false;  // the chooser has not chosen it
  prepare(call, made.value());
  run_parts(answer.call, call);
}

// Begins the part of a call that all-reduces the members' away times, by the moves of the tensor's
// last chunk. A member with another call still under way was not away.
void Communicator::tell_away(int64_t number, Call& call) {
  call.away.assign(settings_.members.size(), 0);
  const bool alone = flights_.empty();
  if (alone && last_end_) {
    const auto away = std::chrono::duration_cast<std::chrono::microseconds>(
        std::max(wire_.clock->now() - *last_end_, Duration::zero()));
    call.away[static_cast<size_t>(place_)] = static_cast<int32_t>(
        static_cast<uint32_t>(std::min<int64_t>(away.count(), int64_t{UINT32_MAX})));
  }
  call.parts[Away] = small_part(Element::Int32, call.procedure->last_chunk,
                                std::as_writable_bytes(std::span(call.away)));
  told_[number].bytes = call.bytes;
}

// Gives the chooser the away times of the calls before `before`, in the order of the calls; waits
// for calls that are still under way.
Status Communicator::take_told(int64_t before) {
  for (auto next = told_.begin(); next != told_.end() && next->first < before;) {
    const int64_t number = next->first;
    if (!next->second.here) {
      const auto found = calls_.find(number);
      CHECK(found != calls_.end(), cat("call ", number, " is over and has told nothing"));
      if (recovery_ != nullptr) recovery_->defer(false);
      const Status status = await(found->second);
      if (ended_) return *ended_;
      if (recovery_ == nullptr && !status.ok()) return status;
      next = told_.find(number);
      if (next == told_.end()) return ok();  // members have died: the times were discarded
    }
    if (!next->second.noted) chooser_->note(next->second.away, next->second.bytes);
    next->second.noted = true;
    ++next;
  }
  while (told_.size() > kMostCalls && told_.begin()->second.noted) told_.erase(told_.begin());
  return ok();
}

// The procedure that the chooser takes for an all-reduce.
ProcedureName Communicator::choose_by_calls(int64_t bytes) {
  const tenuto::Choice choice = chooser_->choose(bytes);
  ProcedureName name{choice.algorithm, choice.chunks, {}, {}};
  if (choice.late >= 0) name.late = {settings_.members[static_cast<size_t>(choice.late)]};
  note_choice(bytes, choice.algorithm, choice.late, choice.reason);
  return name;
}

// Notes the choice for calls of about `bytes` bytes, when it changes.
void Communicator::note_choice(int64_t bytes, const std::string& algorithm, int32_t late,
                               const std::string& reason) {
  const int size = std::bit_width(static_cast<uint64_t>(bytes));
  const std::string chosen = cat(algorithm, " ", late);
  if (std::string& last = chosen_[size]; last != chosen) {
    last = chosen;
    note(cat("calls of about ", bytes, " bytes: ", algorithm, ", for ", reason));
  }
}

std::vector<uint32_t> Communicator::away_before(CallNumber number) const {
  const auto found = told_.find(static_cast<int64_t>(number));
  return found == told_.end() ? std::vector<uint32_t>{} : found->second.away;
}

// The shortest time of a few ring all-reduces: the first one has to wait for late members.
Result<Duration> Communicator::shortest(int tries, int64_t bytes) {
  std::vector<std::byte> memory(static_cast<size_t>(bytes));
  CallRequest request;
  request.element = Element::UInt8;
  request.own = request.total = memory;
  request.way = {"ring"};
  Duration least = Duration::max();
  for (int i = 0; i < tries; ++i) {
    const Duration begin = wire_.clock->now();
    if (Status status = run(request); !status.ok()) return status.error();
    least = std::min(least, wire_.clock->now() - begin);
  }
  return least;
}

// Takes alpha from the rounds of small rings and beta from large ones. All links are busy at once,
// as in the program's calls. Then all members take the mean of their figures.
Status Communicator::measure_link() {
  const int64_t count = member_count(), rounds = 2 * (count - 1);
  const auto small = shortest(kProbes, count);
  if (!small.ok()) return small.error();
  const auto large = shortest(kProbes, kProbeBytes * count);
  if (!large.ok()) return large.error();
  const Duration more = std::max<Duration>(large.value() - small.value(), Duration(rounds));
  std::vector<int64_t> figures{small.value().count() / rounds, more.count() / rounds};
  CallRequest request;
  request.element = Element::Int64;
  request.operation = Operation::Average;
  request.total = std::as_writable_bytes(std::span(figures));
  request.own = request.total;
  request.way = {"ring"};
  if (Status status = run(request); !status.ok()) return status;
  const double seconds = 1e-9 * static_cast<double>(std::max<int64_t>(figures[1], 1));
  settings_.link = {Duration(figures[0]), std::floor(static_cast<double>(kProbeBytes) / seconds)};
  return ok();
}

}  // namespace tenuto
