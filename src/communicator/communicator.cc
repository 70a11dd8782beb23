#include "communicator/communicator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collective/slice.h"
#include "communicator/call_tag.h"
#include "communicator/recovery.h"
#include "runtime/keep_forever.h"
#include "runtime/worker.h"

namespace tenuto {

namespace {

// If one member hears of a loss, all members hear of it within this time.
constexpr Duration kLossGrace = std::chrono::milliseconds(300);
// A limit of silence is divided into this many waits.
constexpr int kQuietWaits = 10;
// How long a group that ends waits until its last messages are received.
constexpr Duration kLinger = std::chrono::seconds(1);
// The most calls that are kept after they were waited for, in case others need their memory.
constexpr size_t kMostPast = 4 * kMostCalls;

Status check_memory(const CallRequest& request) {
  const size_t one = size_of(request.element);
  const size_t size = request.own.size();
  if (size != request.total.size() || size % one != 0) {
    return invalid(cat("a call has an input of ", size, " bytes and an output of ",
                       request.total.size(), ": expected equal sizes, of whole elements of ", one,
                       " bytes"));
  }
  const auto own = reinterpret_cast<uintptr_t>(request.own.data());
  const auto total = reinterpret_cast<uintptr_t>(request.total.data());
  if (own % one != 0 || total % one != 0) {
    return invalid(cat("the memory of a call is not aligned to its elements of ", one,
                       " bytes: align it for ", name_of(request.element)));
  }
  if (own != total && own < total + size && total < own + size) {
    return invalid(
        "input and output of a call overlap in part: expected the same "
        "memory, or separate memory");
  }
  return ok();
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
  if (settings.slice_bytes < 0 || settings.sends_at_once < 0 || settings.receives_at_once < 0 ||
      settings.way.chunks < 0) {
    return invalid("slice_bytes, sends_at_once, receives_at_once and chunks: expected 0 or more");
  }
  constexpr auto kMostAhead = static_cast<int32_t>(kMostCalls);
  if (settings.told_bytes < 1 || settings.calls_ahead < 1 || settings.calls_ahead > kMostAhead) {
    return invalid(cat("all-reduces of ", settings.told_bytes, " bytes carry when members came, ",
                       settings.calls_ahead, " calls ahead: expected 1 or more, and at most ",
                       kMostAhead, " calls"));
  }
  if (settings.least_survivors < 0 || settings.least_survivors > std::ssize(members)) {
    return invalid(cat("at least ", settings.least_survivors, " of ", members.size(),
                       " members must survive: expected 0 to ", members.size()));
  }
  const auto place = static_cast<int32_t>(found - members.begin());
  const bool survives = settings.survive_deaths;
  std::unique_ptr<Communicator> made(new Communicator(wire, std::move(settings), place));
  const auto survivor = [&] {
    if (survives) made->recovery_ = std::make_unique<Recovery>(*made);
    return std::move(made);
  };
  if (made->settings_.way.algorithm != "auto") return survivor();
  if (!made->settings_.link && made->member_count() > 1) {
    if (const Status status = made->measure_link(); !status.ok()) return status.error();
  }
  made->chooser_.emplace(made->member_count(), made->settings_.link.value_or(AlphaBeta{}),
                         made->settings_.rules);
  if (wire.ready != nullptr) {
    made->asker_ = std::make_unique<ReadyAsker>(*wire.transport, *wire.clock, *wire.ready,
                                                made->settings_.number);
  }
  return survivor();
}

Communicator::Communicator(const CommunicatorWire& wire, CommunicatorSettings settings,
                           int32_t place)
    : wire_(wire),
      settings_(std::move(settings)),
      place_(place),
      procedures_(settings_.members, settings_.self) {
  set_members(settings_.members);
}

// Makes a group of these members, of which this is one, and forgets what was learned of the members
// before.
void Communicator::set_members(std::vector<WorkerId> those) {
  settings_.members = std::move(those);
  const auto& members = settings_.members;
  place_ = static_cast<int32_t>(std::find(members.begin(), members.end(), settings_.self) -
                                members.begin());
  procedures_ = Procedures(members, settings_.self);
  if (chooser_) {
    chooser_.emplace(member_count(), settings_.link.value_or(AlphaBeta{}), settings_.rules);
  }
  told_.clear();
  chosen_.clear();
  last_end_.reset();
  Collective words{members, 1, {Round{}}};
  for (size_t m = 0; m < members.size() && members.size() > 1; ++m) {
    words.rounds[0].moves.push_back({members[m], members[(m + 1) % members.size()], {0}, false});
  }
  word_ = own_moves(words, settings_.self);
}

Communicator::~Communicator() {
  // Even if all calls are over here, others may need data from here; and a member that leaves
  // before the others are through would be taken for dead.
  const Duration limit = wire_.clock->now() + kLinger;
  const auto over = [](const auto& each) { return each.second.over; };
  const bool through = std::all_of(calls_.begin(), calls_.end(), over);
  const auto wanted = [this] { return recovery_->active() || !recovery_->quiet(); };
  while (recovery_ != nullptr && !ended_ && through && wanted() && wire_.clock->now() < limit) {
    hear(limit - wire_.clock->now());
  }
  const auto asked = [this] { return asker_ != nullptr && !asker_->quiet(); };
  while (asked() && !ended_ && flights_.empty() && wire_.clock->now() < limit) {
    hear(limit - wire_.clock->now());
  }
  if (!flights_.empty() || (recovery_ != nullptr && !recovery_->quiet()) || asked()) {
    fail({Code::Cancelled, Reach::Call, "the group has ended with calls under way"});
  }
}

std::unique_ptr<Reduction> Communicator::make_reduction(const Call& call) {
  const CallRequest& request = call.request;
  ReductionSettings settings;
  settings.element = request.element;
  if (reduces(request.kind)) settings.operation = request.operation;
  settings.receives_at_once = settings_.receives_at_once;
  settings.takers = recovery_ == nullptr && wire_.transport->has_takers();
  const Collective& moves = Procedures::cut(*call.procedure, call.slices);
  settings.sends_at_once = sends_at_once(call, moves);
  if (request.kind == CallKind::ReduceScatter) {
    for (const WorkerId owner : call.procedure->owners) {
      settings.kept.insert(settings.kept.end(), static_cast<size_t>(call.slices),
                           owner == settings_.self);
    }
  }
  std::vector<int64_t> scratch;
  if (!scratch_.empty()) {
    scratch = std::move(scratch_.back());
    scratch_.pop_back();
  }
  return std::make_unique<Reduction>(
      moves, settings_.self, std::move(settings),
      ReductionTensor{request.own, request.total, wire_.clock->now()}, std::move(scratch));
}

Result<CallNumber> Communicator::start(const CallRequest& request) {
  // If a death is reported during enter(), the attempt begins only after it: so the agreement
  // covers this call too, and can use what the other members have of it.
  if (recovery_ != nullptr) recovery_->defer(true);
  auto started = enter(request);
  if (recovery_ != nullptr) recovery_->defer(false);
  if (!started.ok()) return started.error();
  Call* const call = find_call(started.value());
  const bool prepared = call != nullptr && call->generation >= 0;
  if (!stopped() && prepared && !call->over && !call->begun) run_parts(started.value(), *call);
  return CallNumber{started.value()};
}

// Adds a call to those that have been started; does not begin its messages.
Result<int64_t> Communicator::enter(const CallRequest& request) {
  while (hear(Duration::zero())) continue;
  if (ended_) return *ended_;
  if (Status status = check_memory(request); !status.ok()) return status.error();
  if (calls_.size() >= kMostCalls) {
    return Error{Code::Exhausted, Reach::Call,
                 cat(calls_.size(), " calls are under way or not waited for, at most ", kMostCalls,
                     ": wait for one of them first")};
  }
  std::optional<Making> making;
  const auto waits = [this] { return recovery_ != nullptr && (stopped() || has_waiting()); };
  const bool asked = asks(request) && !waits();
  if (!asked && !waits()) {
    auto made = choose(request, next_);
    if (!made.ok()) return made.error();
    if (!waits()) making = std::move(made).value();  // choosing may have waited
  }
  const int64_t number = next_++;
  heard_at_ = std::max(heard_at_, wire_.clock->now());
  Call& call = calls_[number];
  call.request = request;
  call.bytes = static_cast<int64_t>(request.own.size());
  call.what = cat("call ", number, " (", name_of(request.kind), " of ", call.bytes, " bytes)");
  if (recovery_ != nullptr && request.kind == CallKind::AllReduce && request.own.empty()) {
    // An empty all-reduce needs messages, too: a member that ends it must know that all have begun
    // it.
    call.request.element = Element::UInt8;
    call.request.operation = Operation::Max;
    call.request.own = std::span<const std::byte>(&call.nothing[0], 1);
    call.request.total = std::span(&call.nothing[1], 1);
  }
  if (const auto lost = lost_calls_.find(number); lost != lost_calls_.end()) {
    call.over = true;
    call.status = Error{Code::Infeasible, Reach::Call, cat(call.what, ": ", lost->second)};
    lost_calls_.erase(lost);
  } else if (making) {
    prepare(call, *making);
  } else if (asked) {
    ask(number, call);
  }
  return number;
}

// Sets what is decided of a call before its first message.
void Communicator::prepare(Call& call, const Making& making) {
  const CallRequest& request = call.request;
  const size_t end = call.what.find(" bytes");
  call.what = cat(call.what.substr(0, end), " bytes by ", making.name.algorithm, ")");
  call.fingerprint = fingerprint_of(request, making);
  call.procedure = making.procedure;
  call.name = making.name;
  call.slices = making.slices;
  call.automatic = making.automatic;
  call.generation = generation();
}

bool Communicator::stopped() const { return recovery_ != nullptr && recovery_->active(); }

int64_t Communicator::generation() const {
  return recovery_ == nullptr ? 0 : recovery_->generation();
}

// Whether there are calls that were started while calls were stopped, or are to be made again.
bool Communicator::has_waiting() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const auto& each) {
    return !each.second.over && each.second.generation < 0 && !each.second.asked;
  });
}

// Begins the calls of has_waiting(), in their order, up to the first whose procedure cannot be
// chosen yet. Does not wait.
void Communicator::begin_waiting() {
  for (auto& [number, call] : calls_) {
    if (ended_ || recovery_->active()) return;
    if (call.over || call.generation >= 0 || call.asked) continue;
    if (asks(call.request)) {
      ask(number, call);
      continue;
    }
    if (is_automatic(call.request)) {
      const int64_t before = number - settings_.calls_ahead + 1;
      const bool told = std::all_of(told_.begin(), told_.end(), [before](const auto& each) {
        return each.second.here || each.first >= before;
      });
      if (!told) return;
    }
    CallRequest asked = call.request;
    if (call.bytes == 0) asked.own = {};  // as when it was started
    const auto made = choose(asked, number);
    if (made.ok()) {
      prepare(call, made.value());
      run_parts(number, call);
    } else {
      call.over = true;
      call.status = made.error();
    }
  }
}

// Makes the parts of a call and hands over their first messages.
void Communicator::run_parts(int64_t number, Call& call) {
  if (ended_) return;
  call.begun = true;
  const bool tells = call.automatic && member_count() > 1 && call.bytes >= settings_.told_bytes;
  call.parts[Word] = small_part(Element::UInt8, word_, std::span(&call.word, 1));
  if (tells) tell_away(number, call);
  call.parts[Tensor] = make_reduction(call);
  for (const Part part : {Word, Tensor, Away}) {
    if (call.parts[part] != nullptr) make_calls(number, call, part);
  }
}

Communicator::Call* Communicator::find_call(int64_t number) {
  if (const auto found = calls_.find(number); found != calls_.end()) return &found->second;
  const auto found = past_.find(number);
  return found == past_.end() ? nullptr : &found->second;
}

// Makes a part other than the tensor; its data are reduced in place.
std::unique_ptr<Reduction> Communicator::small_part(Element element, const Collective& moves,
                                                    std::span<std::byte> total) {
  ReductionSettings settings;
  settings.element = element;
  return std::make_unique<Reduction>(moves, settings_.self, std::move(settings),
                                     ReductionTensor{total, total, wire_.clock->now()});
}

void Communicator::note(std::string sentence) {
  if (notes_.size() >= kMostNotes) notes_.erase(notes_.begin());
  notes_.push_back(std::move(sentence));
}

// Hands a part's next messages to the wire; closes the call when all is over.
void Communicator::make_calls(int64_t number, Call& call, Part part) {
  for (const ReductionCall& message : call.parts[part]->startable()) {
    const Ticket ticket = fresh_ticket();
    const int64_t form = part == Rest ? recovery_->attempt_number() : call.generation;
    const Tag tag =
        tag_of(CallTag{settings_.number, form, number, part, message.round, message.chunk});
    const size_t bytes = message.send ? message.source.size() : message.target.size();
    const Flight flight{number, part, message.index, message.peer, message.send, false, tag, bytes};
    flights_.emplace(static_cast<uint64_t>(ticket), flight);
    Status status = ok();
    if (message.send) {
      const Stamp stamp{wire_.clock->now(), {}, call.fingerprint};
      status = wire_.transport->send(message.peer, tag, message.source, stamp, ticket);
    } else {
      status =
          message.taker.take == nullptr
              ? wire_.transport->recv(message.peer, tag, message.target, ticket)
              : wire_.transport->take(message.peer, tag, message.target, message.taker, ticket);
    }
    if (status.ok()) continue;
    flights_.erase(static_cast<uint64_t>(ticket));
    Error error = status.error();
    error.message = cat(about(call, flight), ": ", error.message);
    return fail(std::move(error));
  }
  if (part == Rest) return recovery_->finish(number, call);
  close(number, call);
}

void Communicator::close(int64_t number, Call& call) {
  for (const auto& part : call.parts) {
    if (part != nullptr && !part->done()) return;
  }
  last_end_ = std::max(last_end_.value_or(Duration::zero()), call.parts[Tensor]->done_at());
  if (const auto found = told_.find(number); found != told_.end()) {
    for (const int32_t each : call.away) {
      found->second.away.push_back(static_cast<uint32_t>(each));
    }
    found->second.here = true;
  }
  scratch_.push_back(call.parts[Tensor]->take_scratch());
  for (auto& part : call.parts) part.reset();
  call.over = true;
  call.contributors = settings_.members;
  if (recovery_ == nullptr) return;
  recovery_->note_end();
  // An all-reduce ends only after all members have begun it. Before that they waited for the same
  // calls as this member did, so none of them needs data of those calls any more.
  if (call.request.kind == CallKind::AllReduce) release(number);
  begin_waiting();
}

// Releases the calls that were kept until call `ended` or an earlier one is over.
void Communicator::release(int64_t ended) {
  std::erase_if(past_, [ended](const auto& each) { return each.second.released_by <= ended; });
}

// Takes a call that is over from the list and returns its status. The call is forgotten, or kept
// for members that may need data from here.
Status Communicator::take(std::map<int64_t, Call>::iterator found) {
  const Status status = found->second.status;
  if (status.ok()) contributors_ = found->second.contributors;
  if (recovery_ == nullptr || ended_) {
    calls_.erase(found);
    return status;
  }
  found->second.released_by = next_;
  past_.insert(calls_.extract(found));
  if (past_.size() > kMostPast) past_.erase(past_.begin());
  return status;
}

// Takes one report, if one comes within `limit`.
bool Communicator::hear(Duration limit) {
  const Result<Done> report = wire_.mailbox->wait(limit);
  if (!report.ok()) return false;
  handle(report.value());
  return true;
}

void Communicator::handle(const Done& done) {
  if (take_answer(done)) return;
  if (done.ticket == kNoTicket) {
    if (done.peer.value < 0 || done.status.ok()) return;
    const auto& members = settings_.members;
    if (std::find(members.begin(), members.end(), done.peer) == members.end()) return;
    return lose(done.peer, done.status.error());
  }
  if (recovery_ != nullptr && recovery_->handle(done)) return;
  const auto found = flights_.find(static_cast<uint64_t>(done.ticket));
  if (found == flights_.end()) return;  // of another user of the mailbox between calls
  const Flight flight = found->second;
  flights_.erase(found);
  heard_at_ = wire_.clock->now();
  if (ended_) return;
  if (flight.stopped) return recovery_->end_stopped(flight, done.status);
  Call& call = *find_call(flight.call);
  Reduction& part = *call.parts[flight.part];
  const ReductionCall message = part.about(flight.index);
  if (!done.status.ok()) {
    Error error = done.status.error();
    error.message = cat(about(call, flight), ": ", error.message);
    if (recovery_ != nullptr && error.code == Code::Disconnected) {
      lost_.emplace(flight.peer, error.message);
      return recovery_->lose(flight.peer);
    }
    return fail(std::move(error));
  }
  if (!message.send && done.tally != call.fingerprint) {
    return fail({Code::Invalid, Reach::Job,
                 cat(about(call, flight),
                     ": it received a message of another call; all "
                     "members must make the same calls in the same order, with equal sizes, "
                     "elements, operations and settings")});
  }
  // A call's end time is when its last message was received: the wire does not tell when a send
  // left.
  part.finish(flight.index, message.send ? Duration::zero() : done.finish);
  make_calls(flight.call, call, flight.part);
}

// A member is lost. If the ready service is lost, so is the member in whose process it runs.
void Communicator::lose(WorkerId member, const Error& error) {
  lost_.emplace(member, error.message);
  if (ended_) return;
  const bool survives = recovery_ != nullptr && member != settings_.self;
  survives ? recovery_->lose(member) : fail(error);
}

std::string Communicator::about(const Call& call, const Flight& flight) const {
  const ReductionCall message = call.parts[flight.part]->about(flight.index);
  const std::string whom = cat(message.send ? " to worker " : " from worker ", message.peer);
  if (flight.part == Word) return cat(call.what, ", the word", whom);
  return cat(call.what, ", ", flight.part == Away ? "times away of " : "", "chunk ", message.chunk,
             " in round ", message.round, whom);
}

// Ends every call that is under way, and the group. After a loss it first waits for reports of
// other losses: the first report may be of a live member that dropped its links because of a death.
void Communicator::fail(Error error) {
  if (ended_) return;
  ended_ = std::move(error);
  const bool loss = ended_->code == Code::Disconnected;
  const Duration until = wire_.clock->now() + kLossGrace;
  while (loss && wire_.clock->now() < until && hear(until - wire_.clock->now())) continue;
  for (const auto& [peer, why] : lost_) {
    if (ended_->message.find(why) == std::string::npos) ended_->message += cat("; ", why);
  }
  abandon(!loss);
  for (auto& [number, call] : calls_) {
    if (call.over) continue;
    call.over = true;
    call.status = *ended_;
  }
}

// Gives the memory of all calls back: drops the links over which something is still under way (with
// `all`, every link), and takes reports until what was under way has ended.
void Communicator::abandon(bool all) {
  std::set<WorkerId> peers;
  if (all) peers.insert(settings_.members.begin(), settings_.members.end());
  peers.erase(settings_.self);
  for (const auto& [ticket, flight] : flights_) peers.insert(flight.peer);
  if (recovery_ != nullptr) peers.merge(recovery_->peers());
  if (asker_ != nullptr && (all || !asker_->quiet())) asker_->give_up();
  for (const WorkerId peer : peers) {
    [[maybe_unused]] const Status status = wire_.transport->drop(peer);
  }
  const Duration limit = wire_.clock->now() + kRetireLimit;
  const auto quiet = [this] {
    return flights_.empty() && (recovery_ == nullptr || recovery_->quiet()) &&
           (asker_ == nullptr || asker_->quiet());
  };
  while (!quiet()) {
    const Duration left = limit - wire_.clock->now();
    if (left.count() <= 0 || !hear(left)) break;
  }
  std::vector<std::unique_ptr<Reduction>> parts;
  for (auto& [number, call] : calls_) {
    for (auto& part : call.parts) {
      if (part != nullptr) parts.push_back(std::move(part));
    }
  }
  if (quiet()) return;
  ended_->reach = Reach::Job;
  ended_->message += cat("; ", flights_.size(), " messages are still under way after ",
                         fixed(to_milliseconds(kRetireLimit), 0),
                         " ms, so their memory is in use: this process must end");
  keep_forever(std::move(parts));
  keep_forever(std::move(recovery_));
  keep_forever(std::move(asker_));
}

// The error for silence: names the message that has not come.
Error Communicator::silence(const Call& call) const {
  std::string what = call.asked ? cat(call.what, ", ", asker_->name()) : "nothing is under way";
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
              " ms: check that it is running and makes the same calls")};
}

void Communicator::silent(const Error& error) {
  if (recovery_ == nullptr) return fail(error);
  recovery_->ask_all(error);
}

Status Communicator::wait(CallNumber number) {
  const auto found = calls_.find(static_cast<int64_t>(number));
  if (found == calls_.end()) {
    return invalid(cat("there is no call ", static_cast<int64_t>(number),
                       " to wait for: wait for each call once"));
  }
  [[maybe_unused]] const Status status = await(found->second);
  return take(found);
}

// Takes reports until the call is over; returns its status. Silence is several waits in a row that
// bring nothing: if the process was suspended for a while, that ends only one of them.
Status Communicator::await(Call& call) {
  for (int quiet = 0; !call.over;) {
    if (!hear(settings_.silence_limit / kQuietWaits)) {
      ++quiet;
    } else if (recovery_ == nullptr || !recovery_->heard_no_news()) {
      quiet = 0;
    }
    if (quiet < kQuietWaits || call.over) continue;
    if (stopped()) {
      recovery_->look(wire_.clock->now());
    } else {
      silent(silence(call));
      quiet = 0;
    }
  }
  return call.status;
}

Result<bool> Communicator::test(CallNumber number) {
  while (hear(Duration::zero())) continue;
  const auto found = calls_.find(static_cast<int64_t>(number));
  if (found == calls_.end()) {
    return invalid(cat("there is no call ", static_cast<int64_t>(number), " to ask for"));
  }
  Call& call = found->second;
  const Duration limit = stopped() ? recovery_->limit() : heard_at_ + settings_.silence_limit;
  const bool quiet = wire_.clock->now() >= limit;
  if (!call.over && quiet && !hear(settings_.silence_limit / kQuietWaits)) {
    stopped() ? recovery_->look(wire_.clock->now()) : silent(silence(call));
  }
  if (!call.over) return false;
  const Status status = take(found);
  if (!status.ok()) return status.error();
  return true;
}

Status Communicator::run(const CallRequest& request) {
  const auto number = start(request);
  return number.ok() ? wait(number.value()) : Status(number.error());
}

std::vector<std::string> Communicator::take_notes() { return std::exchange(notes_, {}); }

}  // namespace tenuto
