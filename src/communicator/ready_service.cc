#include "communicator/ready_service.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "communicator/call_tag.h"
#include "runtime/worker.h"

namespace tenuto {

namespace {

// Words of a message, before the set of members.
enum Place : uint8_t { kGroup, kGeneration, kCall, kBase, kEarly, kExchange, kMembers };
constexpr size_t kAnswerWords = 5;  // generation, call, kind, late, patience

size_t words_of_a_question(const std::vector<WorkerId>& members) {
  return kMembers + MemberSet::words_for(static_cast<int32_t>(members.size()));
}

std::optional<int32_t> place_in(const std::vector<WorkerId>& members, WorkerId member) {
  const auto found = std::find(members.begin(), members.end(), member);
  if (found == members.end()) return std::nullopt;
  return static_cast<int32_t>(found - members.begin());
}

}  // namespace

ReadyService::ReadyService(const ReadyWire& wire, std::vector<WorkerId> members)
    : wire_(wire), members_(std::move(members)) {
  for (size_t place = 0; place < members_.size(); ++place) listen(static_cast<int32_t>(place), 0);
}

void ReadyService::listen(int32_t place, int64_t number) {
  const Ticket ticket = fresh_ticket();
  PostedReceive& posted = receives_[static_cast<uint64_t>(ticket)];
  posted = {place, number, std::vector<int64_t>(words_of_a_question(members_))};
  const Status status =
      wire_.transport->recv(members_[static_cast<size_t>(place)], tag_of_ready(number),
                            std::as_writable_bytes(std::span(posted.words)), ticket);
  // A member that cannot be reached counts as one that does not come.
  if (!status.ok()) receives_.erase(static_cast<uint64_t>(ticket));
}

void ReadyService::serve(Duration limit) {
  const Duration begin = wire_.clock->now();
  for (const auto& [group, board] : boards_) {
    if (const auto due = board.due()) limit = std::min(limit, *due - begin);
  }
  const auto report = wire_.mailbox->wait(std::max(limit, Duration::zero()));
  if (report.ok()) {
    const auto ticket = static_cast<uint64_t>(report.value().ticket);
    answers_sent_.erase(ticket);
    if (auto heard = receives_.extract(ticket); !heard.empty() && report.value().status.ok()) {
      hear(heard.mapped());
    }
  }
  answer();
}

void ReadyService::hear(const PostedReceive& posted) {
  listen(posted.place, posted.number + 1);
  ReadyMessage word{
      posted.words[kGeneration], posted.words[kCall], {}, MemberSet(std::ssize(members_))};
  word.costs.base_ns = posted.words[kBase];
  word.costs.early_ns = posted.words[kEarly];
  word.costs.exchange_ns = posted.words[kExchange];
  const auto members = word.members.words();
  std::copy_n(posted.words.begin() + kMembers, members.size(), members.begin());
  const int64_t group = posted.words[kGroup];
  asked_[{posted.place, group, word.generation, word.call}] = posted.number;
  const auto board = boards_.try_emplace(group, static_cast<int32_t>(members_.size())).first;
  board->second.arrive(posted.place, word, wire_.clock->now());
}

// Sends the answers of the boards that are due by now.
void ReadyService::answer() {
  for (auto& [group, board] : boards_) {
    for (const ReadyAnswer& each : board.take(wire_.clock->now())) {
      const auto asked = asked_.extract({each.place, group, each.generation, each.call});
      if (asked.empty()) continue;  // the member asked twice; it has its answer
      const Ticket ticket = fresh_ticket();
      auto& words = answers_sent_[static_cast<uint64_t>(ticket)];
      words = {each.generation, each.call, static_cast<int64_t>(each.kind), each.late,
               each.patience.count()};
      const Status status = wire_.transport->send(
          members_[static_cast<size_t>(each.place)], tag_of_ready(asked.mapped()),
          std::as_bytes(std::span(words)), {wire_.clock->now(), {}, 0}, ticket);
      if (!status.ok()) answers_sent_.erase(static_cast<uint64_t>(ticket));
    }
  }
}

std::string ReadyAsker::name() const {
  return cat("the ready service (worker ", desk_.service, " of the wire, in the process of worker ",
             desk_.host, ")");
}

Status ReadyAsker::ask(int64_t generation, int64_t call, const CallCosts& costs,
                       std::span<const WorkerId> members) {
  std::vector<int64_t> words(kMembers);
  words[kGroup] = group_;
  words[kGeneration] = generation;
  words[kCall] = call;
  words[kBase] = costs.base_ns;
  words[kEarly] = costs.early_ns;
  words[kExchange] = costs.exchange_ns;
  MemberSet those(static_cast<int32_t>(desk_.members.size()));
  for (const WorkerId each : members) {
    const auto place = place_in(desk_.members, each);
    CHECK(place, "who makes a call may ask");
    those.add(*place);
  }
  words.insert(words.end(), those.words().begin(), those.words().end());
  if (Status status = post(true, std::move(words)); !status.ok()) return status;
  Status status = post(false, std::vector<int64_t>(kAnswerWords));
  ++desk_.asked;
  return status;
}

Status ReadyAsker::post(bool send, std::vector<int64_t> words) {
  const Ticket ticket = fresh_ticket();
  Flight& flight = flights_[static_cast<uint64_t>(ticket)] = {send, std::move(words)};
  const Tag tag = tag_of_ready(desk_.asked);
  const auto bytes = std::as_writable_bytes(std::span(flight.words));
  const Stamp stamp{clock_.now(), {}, 0};
  Status status = send ? transport_.send(desk_.service, tag, bytes, stamp, ticket)
                       : transport_.recv(desk_.service, tag, bytes, ticket);
  if (!status.ok()) flights_.erase(static_cast<uint64_t>(ticket));
  return status;
}

ReadyAsker::Heard ReadyAsker::handle(const Done& done) {
  const auto flight = flights_.extract(static_cast<uint64_t>(done.ticket));
  if (flight.empty()) return {};
  Heard heard{true, {}, {}};
  if (!in_force_ || flight.mapped().send) return heard;
  if (!done.status.ok()) {
    heard.error = done.status.error();
  } else {
    const std::vector<int64_t>& words = flight.mapped().words;
    const auto late = static_cast<size_t>(words[3]);
    ReadyAnswer answer{0,  words[0],          words[1], static_cast<ReadyAnswer::Kind>(words[2]),
                       -1, Duration(words[4])};
    if (answer.kind == ReadyAnswer::Kind::Late && late >= desk_.members.size()) {
      heard.error = {Code::Corrupt, Reach::Job, "the ready service names nobody as late"};
      return heard;
    }
    answer.late = static_cast<int32_t>(words[3]);
    heard.answer = answer;
  }
  return heard;
}

void ReadyAsker::give_up() {
  if (!std::exchange(in_force_, false)) return;
  [[maybe_unused]] const Status status = transport_.drop(desk_.service);
}

}  // namespace tenuto
