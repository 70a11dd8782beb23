#include "communicator/recovery.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/slice.h"
#include "communicator/call_tag.h"
#include "runtime/combine.h"
#include "runtime/worker.h"

namespace tenuto {

namespace {

// Attempts without a new death, one after the other, before a group is given up.
constexpr int kMostSilent = 3;
// The most words of a report: a wrong count cannot ask for more memory than that.
constexpr int64_t kMostWords = int64_t{1} << 26;

// Whether a message has ended because the other end is gone, or the link has been dropped.
bool is_loss(const Status& status) {
  return !status.ok() &&
         (status.error().code == Code::Disconnected || status.error().code == Code::Cancelled);
}

int32_t more_than_half(int32_t count) { return count / 2 + 1; }

}  // namespace

Communicator::Recovery::Recovery(Communicator& group)
    : group_(group),
      all_(group.settings_.members),
      agreement_(group.member_count(), group.place_,
                 group.settings_.least_survivors > 0 ? group.settings_.least_survivors
                                                     : more_than_half(group.member_count())) {}

int32_t Communicator::Recovery::place_of(WorkerId member) const {
  const auto found = std::find(all_.begin(), all_.end(), member);
  return found == all_.end() ? -1 : static_cast<int32_t>(found - all_.begin());
}

// In an attempt a member waits for the others' messages for two silence limits: the others may need
// one to notice that something is wrong.
Duration Communicator::Recovery::limit() const {
  const Duration silence = group_.settings_.silence_limit;
  return phase_ == Phase::Agree ? began_ + 2 * silence : group_.heard_at_ + silence;
}

void Communicator::Recovery::lose(WorkerId peer) {
  const int32_t place = place_of(peer);
  if (place < 0 || agreement_.dead().has(place)) return;
  agreement_.lose(place);
  silent_ = 0;
  if (deferred_) {
    due_ = true;
  } else {
    attempt();
  }
}

void Communicator::Recovery::defer(bool on) {
  deferred_ = on;
  if (!on && due_) attempt();
}

void Communicator::Recovery::ask_all(const Error& why) {
  if (++silent_ > kMostSilent) return group_.fail(why);
  attempt();
}

void Communicator::Recovery::look(Duration now) {
  if (phase_ == Phase::Idle || now < limit()) return;
  const double waited = to_milliseconds(now - (phase_ == Phase::Agree ? began_ : group_.heard_at_));
  if (phase_ != Phase::Agree) {
    return ask_all(
        {Code::Timeout, Reach::Worker,
         cat("no message of the interrupted calls has come for ", fixed(waited, 0), " ms")});
  }
  const MemberSet missing = agreement_.missing();
  for (size_t place = 0; place < all_.size(); ++place) {
    if (!missing.has(static_cast<int32_t>(place))) continue;
    agreement_.lose(static_cast<int32_t>(place));
    group_.lost_.emplace(all_[place], cat("it has not sent its report for ", fixed(waited, 0),
                                          " ms after others were lost or silent"));
  }
  silent_ = 0;
  attempt();
}

// Begins the next attempt with all that is known.
void Communicator::Recovery::attempt() {
  due_ = false;
  if (group_.ended_) return;
  drop_dead();
  say_through();
  stop_calls();
  agreement_.begin(report());
  began_ = group_.wire_.clock->now();
  phase_ = Phase::Agree;
  if (agreement_.stand() != Agreement::Stand::Refused) tell();
  advance();
}

// Drops the links to members that are declared dead. A live one among them sees the loss.
void Communicator::Recovery::drop_dead() {
  for (size_t place = 0; place < all_.size(); ++place) {
    const auto at = static_cast<int32_t>(place);
    if (!agreement_.dead().has(at) || !agreement_.alive().has(at)) continue;
    group_.lost_.emplace(all_[place], "other members have declared it dead");
    [[maybe_unused]] const Status status = group_.wire_.transport->drop(all_[place]);
    ReadyAsker* const asker = group_.asker_.get();
    if (asker != nullptr && asker->desk().host == all_[place]) asker->give_up();
  }
}

// Stops all calls: from here on no message that comes for them counts.
void Communicator::Recovery::stop_calls() {
  for (auto& [ticket, flight] : group_.flights_) flight.stopped = true;
  for (auto* const calls : {&group_.calls_, &group_.past_}) {
    for (auto& [number, call] : *calls) {
      call.asked = false;  // the service is to be asked again
      if (!call.over && call.generation >= 0) take_stock(number, call);
      for (const Part part : {Tensor, Word, Away, Rest}) stop_part(number, call, part);
    }
  }
  making_.clear();
  group_.told_.clear();
}

void Communicator::Recovery::stop_part(int64_t number, Call& call, Part part) {
  if (call.parts[part] == nullptr) return;
  const int64_t generation = part == Rest ? agreement_.attempt() : call.generation;
  const Tag tag = tag_of(CallTag{group_.settings_.number, generation, number, part, 0, {0}});
  stopped_[{tag.step, part}] = std::move(call.parts[part]);
}

// Notes what is here of each chunk of a call at this moment.
void Communicator::Recovery::take_stock(int64_t number, Call& call) {
  const CallRequest& request = call.request;
  if (request.kind != CallKind::AllReduce) return;
  const auto members = static_cast<int32_t>(all_.size());
  const bool keeps = request.own.data() != request.total.data();
  const bool average = request.operation == Operation::Average;
  const int32_t chunks = call.procedure->chunks * call.slices;
  if (call.holdings.empty()) {
    call.holdings.assign(static_cast<size_t>(chunks), {true, MemberSet(members)});
    call.divided.assign(static_cast<size_t>(chunks), false);
  }
  if (const Reduction* const rest = call.parts[Rest].get(); rest != nullptr) {
    const Completion& completion = making_.at(number);
    const ChunkHistory history(completion, all_, holdings_of(number));
    for (int32_t c = 0; c < chunks; ++c) {
      const auto at = static_cast<size_t>(c);
      call.holdings[at] = history.holding(place_of(group_.settings_.self), c, rest->progress({c}),
                                          keeps, call.holdings[at]);
      call.divided[at] =
          average && !completion.summed[at] && call.holdings[at].total == completion.contributors;
    }
  }
  const Reduction* const tensor = call.parts[Tensor].get();
  if (tensor == nullptr) return;
  const auto whole =
      make_procedure(call.name.algorithm,
                     {group_.settings_.members, call.name.chunks, call.name.late, call.name.root});
  CHECK(whole.ok(), "a call's procedure can be made again");
  const ChunkHistory history(whole.value().collective);
  const auto elements = static_cast<int64_t>(request.own.size() / size_of(request.element));
  const ChunkHolding before{true, MemberSet(group_.member_count())};
  for (int32_t c = 0; c < chunks; ++c) {
    // The input of a chunk without elements is always there.
    const bool empty = chunk_range(elements, c, chunks).empty();
    const ChunkHolding now = history.holding(group_.place_, c / call.slices, tensor->progress({c}),
                                             keeps || empty, before);
    ChunkHolding& holding = call.holdings[static_cast<size_t>(c)];
    holding = {now.own, MemberSet(members)};
    for (int32_t place = 0; place < group_.member_count(); ++place) {
      if (!now.total.has(place)) continue;
      holding.total.add(place_of(group_.settings_.members[static_cast<size_t>(place)]));
    }
    call.divided[static_cast<size_t>(c)] = average && tensor->is_complete({c});
  }
}

std::vector<MemberHolding> Communicator::Recovery::holdings_of(int64_t number) const {
  std::vector<MemberHolding> holdings(all_.size());
  for (size_t place = 0; place < all_.size(); ++place) {
    for (const CallReport& call : agreement_.reports()[place].calls) {
      if (call.number == number) holdings[place] = call.holding;
    }
  }
  return holdings;
}

MemberReport Communicator::Recovery::report() const {
  MemberReport report;
  report.next = group_.next_;
  for (const auto* const calls : {&group_.past_, &group_.calls_}) {
    for (const auto& [number, call] : *calls) report.calls.push_back(report_of(number, call));
  }
  for (const auto& [number, why] : group_.lost_calls_) {
    report.calls.emplace_back().number = number;
    report.calls.back().lost = true;
  }
  for (const auto& [ticket, flight] : group_.flights_) {
    report.messages.push_back(
        {flight.peer, flight.send, flight.tag, static_cast<int64_t>(flight.bytes)});
  }
  return report;
}

CallReport Communicator::Recovery::report_of(int64_t number, const Call& call) const {
  const CallRequest& request = call.request;
  CallReport report;
  report.number = number;
  report.generation = call.generation;
  report.fingerprint = call.fingerprint;
  report.elements = static_cast<int64_t>(request.own.size() / size_of(request.element));
  report.completes = request.kind == CallKind::AllReduce;
  report.lost = call.over && !call.status.ok();
  if (call.procedure != nullptr) report.chunks = call.procedure->chunks * call.slices;
  if (report.lost) return report;
  report.holding.ended = call.over;
  if (call.over) {
    report.holding.contributors = MemberSet(static_cast<int32_t>(all_.size()));
    for (const WorkerId each : call.contributors) {
      report.holding.contributors.add(place_of(each));
    }
    return report;
  }
  report.holding.chunks = call.holdings;
  const bool kept = std::all_of(call.holdings.begin(), call.holdings.end(),
                                [](const ChunkHolding& chunk) { return chunk.own; });
  report.intact =
      call.generation < 0 || request.kind == CallKind::Broadcast || (report.completes && kept);
  return report;
}

void Communicator::Recovery::tell() {
  const std::vector<int64_t> report =
      to_words(agreement_.reports()[static_cast<size_t>(place_of(group_.settings_.self))]);
  std::vector<int64_t> dead{agreement_.attempt(), std::ssize(report)};
  const auto places = agreement_.dead().words();
  dead.insert(dead.end(), places.begin(), places.end());
  for (size_t place = 0; place < all_.size(); ++place) {
    if (!agreement_.alive().has(static_cast<int32_t>(place))) continue;
    const WorkerId peer = all_[place];
    if (peer == group_.settings_.self) continue;
    asked_.push_back(peer);
    expect(peer, agreement_.attempt(), dead.size(), RecoveryMessage::Kind::Dead);
    expect(peer, agreement_.attempt(), 1, RecoveryMessage::Kind::Through);
    send(peer, dead, Saying::Dead);
    send(peer, report, Saying::Report);
  }
}

// Tells the live members that nothing more is needed of them in the attempt. No member leaves the
// group before all have said so: when one leaves, the others begin an attempt without it, and that
// attempt may give a call another outcome than it had at the members that are through.
void Communicator::Recovery::say_through() {
  for (const WorkerId peer : std::exchange(asked_, {})) {
    if (!agreement_.dead().has(place_of(peer))) send(peer, {agreement_.attempt()}, Saying::Through);
  }
}

void Communicator::Recovery::send(WorkerId to, std::vector<int64_t> words, Saying what) {
  RecoveryMessage recovery_message{
      RecoveryMessage::Kind::Sent, to, agreement_.attempt(), std::move(words), {}};
  post(std::move(recovery_message), true,
       tag_of_word(group_.settings_.number, agreement_.attempt(), what));
}

void Communicator::Recovery::expect(WorkerId from, int64_t attempt, size_t words,
                                    RecoveryMessage::Kind kind) {
  const Saying what = kind == RecoveryMessage::Kind::Dead     ? Saying::Dead
                      : kind == RecoveryMessage::Kind::Report ? Saying::Report
                                                              : Saying::Through;
  RecoveryMessage recovery_message{kind, from, attempt, std::vector<int64_t>(words), {}};
  post(std::move(recovery_message), false, tag_of_word(group_.settings_.number, attempt, what));
}

void Communicator::Recovery::post(RecoveryMessage recovery_message, bool send, const Tag& tag) {
  const Ticket ticket = fresh_ticket();
  RecoveryMessage& posted = recovery_messages_[static_cast<uint64_t>(ticket)] =
      std::move(recovery_message);
  const std::span<std::byte> bytes = posted.kind == RecoveryMessage::Kind::Drain
                                         ? std::span<std::byte>(posted.nothing)
                                         : std::as_writable_bytes(std::span(posted.words));
  Transport& wire = *group_.wire_.transport;
  const Stamp stamp{group_.wire_.clock->now(), {}, 0};
  const Status status = send ? wire.send(posted.peer, tag, bytes, stamp, ticket)
                             : wire.recv(posted.peer, tag, bytes, ticket);
  if (status.ok()) return;
  recovery_messages_.erase(static_cast<uint64_t>(ticket));
  group_.fail(status.error());
}

std::set<WorkerId> Communicator::Recovery::peers() const {
  std::set<WorkerId> peers;
  for (const auto& [ticket, recovery_message] : recovery_messages_)
    peers.insert(recovery_message.peer);
  return peers;
}

bool Communicator::Recovery::handle(const Done& done) {
  const auto found = recovery_messages_.find(static_cast<uint64_t>(done.ticket));
  if (found == recovery_messages_.end()) return false;
  const RecoveryMessage recovery_message = std::move(found->second);
  recovery_messages_.erase(found);
  no_news_ = recovery_message.kind == RecoveryMessage::Kind::Through && done.status.ok();
  if (no_news_) return true;
  group_.heard_at_ = group_.wire_.clock->now();
  if (group_.ended_) return true;
  if (is_loss(done.status)) {
    lose(recovery_message.peer);
  } else if (!done.status.ok()) {
    group_.fail(done.status.error());
  } else if (recovery_message.kind == RecoveryMessage::Kind::Dead ||
             recovery_message.kind == RecoveryMessage::Kind::Report) {
    take_recovery_message(recovery_message);
  }
  advance();
  return true;
}

void Communicator::Recovery::end_stopped(const Flight& flight, const Status& status) {
  if (is_loss(status)) lose(flight.peer);
  advance();
}

void Communicator::Recovery::take_recovery_message(const RecoveryMessage& recovery_message) {
  const auto members = static_cast<int32_t>(all_.size());
  const int32_t from = place_of(recovery_message.peer);
  if (agreement_.dead().has(from)) return;  // sent before its link was dropped
  if (recovery_message.kind == RecoveryMessage::Kind::Dead) {
    const int64_t size = recovery_message.words[1];
    if (recovery_message.words[0] != recovery_message.attempt || size < 0 || size > kMostWords) {
      return group_.fail(
          {Code::Corrupt, Reach::Job,
           cat("worker ", recovery_message.peer, " sent a malformed recovery message: check that ",
               "all members run the same version")});
    }
    // Receives the peer's report even if this attempt is over here, so that it does not stay in the
    // peer's wire.
    expect(recovery_message.peer, recovery_message.attempt, static_cast<size_t>(size),
           RecoveryMessage::Kind::Report);
    MemberSet dead(members);
    std::copy_n(recovery_message.words.begin() + 2, dead.words().size(), dead.words().begin());
    return agreement_.hear_dead(recovery_message.attempt, from, dead);
  }
  auto report = report_from_words(recovery_message.words, members);
  if (!report.ok()) return group_.fail(report.error());
  // Drains the peer's messages even if this attempt is over here but not at the peer: they stay in
  // the peer's wire until this member posts the matching sends and receives.
  if (active()) drain(recovery_message.peer, report.value().messages);
  agreement_.hear_report(recovery_message.attempt, from, std::move(report).value());
}

// Posts the matching sends and receives of the messages that a live member has in its wire, as far
// as this member has not posted them yet.
void Communicator::Recovery::drain(WorkerId peer, const std::vector<OpenMessage>& messages) {
  for (const OpenMessage& each : messages) {
    if (each.peer != group_.settings_.self || each.bytes < 0) continue;
    if (handed(peer, !each.send, each.tag)) continue;
    if (!drained_.emplace(peer, !each.send, each.tag).second) continue;
    RecoveryMessage recovery_message{
        RecoveryMessage::Kind::Drain, peer, agreement_.attempt(), {}, {}};
    recovery_message.nothing.resize(static_cast<size_t>(each.bytes));
    post(std::move(recovery_message), !each.send, each.tag);
  }
}

// Whether this member has posted its own send or receive of a message of a call.
bool Communicator::Recovery::handed(WorkerId peer, bool send, const Tag& tag) const {
  const CallTag named = call_tag_of(tag);
  const auto part = static_cast<Part>(named.part);
  if (const auto found = stopped_.find({tag.step, part}); found != stopped_.end()) {
    return found->second->returned(send, peer, named.round, named.chunk);
  }
  // When the last recovery ended, this member had posted its sends and receives of all earlier
  // generations and of that recovery's completions (Rest).
  if (part == Rest) return named.generation <= generation_;
  if (named.generation != generation_) return named.generation < generation_;
  if (named.call >= group_.next_) return false;
  // If the call is over, all of its sends and receives have been posted.
  const Call* const call = group_.find_call(named.call);
  return call == nullptr || (call->generation == named.generation && call->begun && call->over);
}

bool Communicator::Recovery::drained() const {
  return group_.flights_.empty() &&
         std::none_of(recovery_messages_.begin(), recovery_messages_.end(), [](const auto& each) {
           return each.second.kind == RecoveryMessage::Kind::Drain;
         });
}

void Communicator::Recovery::advance() {
  if (advancing_ || group_.ended_) return;
  advancing_ = true;
  if (phase_ == Phase::Agree) {
    switch (agreement_.stand()) {
      case Agreement::Stand::Waits:
        break;
      case Agreement::Stand::Agreed:
        phase_ = Phase::Drain;
        break;
      case Agreement::Stand::Next:
        advancing_ = false;
        return attempt();
      case Agreement::Stand::Refused:
        advancing_ = false;
        return group_.fail({Code::Infeasible, Reach::Job, agreement_.refusal()});
    }
  }
  if (phase_ == Phase::Drain && drained()) {
    phase_ = Phase::Make;
    apply_outcomes();
  }
  if (phase_ == Phase::Make && making_.empty() && !group_.ended_) end();
  advancing_ = false;
}

void Communicator::Recovery::apply_outcomes() {
  CallOutcomes outcomes = outcomes_of_calls(all_, agreement_.alive(), agreement_.reports());
  if (outcomes.broken) {
    return group_.fail({Code::Infeasible, Reach::Job, std::move(*outcomes.broken)});
  }
  group_.heard_at_ = group_.wire_.clock->now();
  for (auto& [number, outcome] : outcomes.calls) {
    Call* const call = group_.find_call(number);
    if (outcome.kind == CallOutcome::Kind::Lost) lose_call(number, outcome.reason);
    if (call == nullptr) continue;
    if (outcome.kind == CallOutcome::Kind::Again) {
      call->generation = -1;
      call->holdings.clear();
    } else if (outcome.kind == CallOutcome::Kind::Complete) {
      if (!call->over) group_.note(cat(call->what, ": ", outcome.reason));
      making_.emplace(number, std::move(outcome.completion));
    }
  }
  std::vector<int64_t> numbers;
  for (const auto& [number, completion] : making_) numbers.push_back(number);
  for (const int64_t number : numbers) complete(number, *group_.find_call(number));
}

void Communicator::Recovery::lose_call(int64_t number, const std::string& reason) {
  Call* const call = group_.find_call(number);
  if (call == nullptr) {
    group_.lost_calls_[number] = reason;
  } else if (!call->over) {
    call->over = true;
    call->status = Error{Code::Infeasible, Reach::Call, cat(call->what, ": ", reason)};
  }
}

void Communicator::Recovery::divide_chunk(const Call& call, int32_t chunk, int64_t count) {
  const CallRequest& request = call.request;
  const size_t one = size_of(request.element);
  const auto elements = static_cast<int64_t>(request.own.size() / one);
  const int64_t chunks = int64_t{call.procedure->chunks} * call.slices;
  const auto [first, end] = chunk_range(elements, chunk, chunks);
  divide(request.element,
         request.total.subspan(static_cast<size_t>(first) * one,
                               static_cast<size_t>(end - first) * one),
         count);
}

// Begins this member's part of the completion of a call.
void Communicator::Recovery::complete(int64_t number, Call& call) {
  const Completion& completion = making_.at(number);
  const CallRequest& request = call.request;
  const auto& begins = completion.begins[static_cast<size_t>(place_of(group_.settings_.self))];
  ReductionSettings settings;
  settings.element = request.element;
  const bool average = request.operation == Operation::Average;
  settings.operation = average ? Operation::Sum : request.operation;
  settings.sends_at_once = group_.settings_.sends_at_once;
  for (size_t c = 0; c < begins.size(); ++c) {
    settings.begun.push_back(begins[c] != ChunkBegin::Own);
    // A chunk of an average that the completion only copies to others is divided before that.
    const bool divide = average && !call.over && !completion.summed[c] &&
                        begins[c] == ChunkBegin::Total && !call.divided[c];
    if (!divide) continue;
    divide_chunk(call, static_cast<int32_t>(c), completion.contributors.count());
    call.divided[c] = true;
  }
  const auto own = call.over ? std::span<const std::byte>(request.total) : request.own;
  call.parts[Rest] = std::make_unique<Reduction>(
      own_moves(completion.collective, group_.settings_.self), group_.settings_.self,
      std::move(settings), ReductionTensor{own, request.total, group_.wire_.clock->now()});
  group_.make_calls(number, call, Rest);
}

void Communicator::Recovery::finish(int64_t number, Call& call) {
  if (group_.ended_ || !call.parts[Rest]->done()) return;
  const Completion& completion = making_.at(number);
  if (!call.over) {
    const bool average = call.request.operation == Operation::Average;
    for (size_t c = 0; c < completion.summed.size() && average; ++c) {
      if (!completion.summed[c]) continue;
      divide_chunk(call, static_cast<int32_t>(c), completion.contributors.count());
    }
    for (size_t place = 0; place < all_.size(); ++place) {
      if (completion.contributors.has(static_cast<int32_t>(place))) {
        call.contributors.push_back(all_[place]);
      }
    }
    call.over = true;
    silent_ = 0;
  }
  stop_part(number, call, Rest);
  making_.erase(number);
  advance();
}

// Ends the recovery: the survivors are the group now.
void Communicator::Recovery::end() {
  phase_ = Phase::Idle;
  say_through();
  generation_ = agreement_.attempt();
  stopped_.clear();
  drained_.clear();
  std::vector<WorkerId> survivors;
  for (size_t place = 0; place < all_.size(); ++place) {
    if (agreement_.alive().has(static_cast<int32_t>(place))) survivors.push_back(all_[place]);
  }
  const auto count = static_cast<int32_t>(survivors.size());
  if (count < group_.member_count()) {
    group_.note(cat(count, " of ", group_.member_count(), " members continue"));
    if (group_.settings_.least_survivors == 0) {
      agreement_.set_least(more_than_half(count));
    }
    group_.set_members(std::move(survivors));
  }
  group_.begin_waiting();
}

}  // namespace tenuto
