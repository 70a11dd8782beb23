#include "communicator/agreement.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Reads words one by one; a missing word makes the whole wrong.
class WordReader {
 public:
  explicit WordReader(std::span<const int64_t> words) : words_(words) {}
  int64_t next() {
    if (at_ >= words_.size()) {
      wrong_ = true;
      return 0;
    }
    return words_[at_++];
  }
  // A count of things that take at least `least` words each.
  size_t count(size_t least) {
    const int64_t count = next();
    if (count < 0 || static_cast<size_t>(count) > (words_.size() - at_) / least) wrong_ = true;
    return wrong_ ? 0 : static_cast<size_t>(count);
  }
  MemberSet set(int32_t members) {
    MemberSet set(members);
    for (uint64_t& word : set.words()) word = static_cast<uint64_t>(next());
    return set;
  }
  bool right() const { return !wrong_ && at_ == words_.size(); }

 private:
  std::span<const int64_t> words_;
  size_t at_ = 0;
  bool wrong_ = false;
};

void append(std::vector<int64_t>& words, const MemberSet& set) {
  words.insert(words.end(), set.words().begin(), set.words().end());
}

}  // namespace

std::vector<int64_t> to_words(const MemberReport& report) {
  std::vector<int64_t> words{report.next, std::ssize(report.calls)};
  for (const CallReport& call : report.calls) {
    words.insert(words.end(),
                 {call.number, call.generation, static_cast<int64_t>(call.fingerprint),
                  call.elements, call.chunks, int64_t{call.completes}, int64_t{call.intact},
                  int64_t{call.lost}, int64_t{call.holding.ended}});
    if (call.holding.ended) append(words, call.holding.contributors);
    words.push_back(std::ssize(call.holding.chunks));
    for (const ChunkHolding& chunk : call.holding.chunks) {
      words.push_back(int64_t{chunk.own});
      append(words, chunk.total);
    }
  }
  words.push_back(std::ssize(report.messages));
  for (const OpenMessage& each : report.messages) {
    words.insert(words.end(), {each.peer.value, int64_t{each.send}, each.tag.epoch, each.tag.step,
                               static_cast<int64_t>(each.tag.name), each.bytes});
  }
  return words;
}

Result<MemberReport> report_from_words(std::span<const int64_t> words, int32_t members) {
  WordReader reader(words);
  MemberReport report;
  report.next = reader.next();
  report.calls.resize(reader.count(10));
  for (CallReport& call : report.calls) {
    call.number = reader.next();
    call.generation = reader.next();
    call.fingerprint = static_cast<uint64_t>(reader.next());
    call.elements = reader.next();
    call.chunks = static_cast<int32_t>(reader.next());
    call.completes = reader.next() != 0;
    call.intact = reader.next() != 0;
    call.lost = reader.next() != 0;
    call.holding.ended = reader.next() != 0;
    if (call.holding.ended) call.holding.contributors = reader.set(members);
    call.holding.chunks.resize(reader.count(1 + MemberSet::words_for(members)));
    for (ChunkHolding& chunk : call.holding.chunks) {
      chunk.own = reader.next() != 0;
      chunk.total = reader.set(members);
    }
  }
  report.messages.resize(reader.count(6));
  for (OpenMessage& each : report.messages) {
    each.peer.value = static_cast<int32_t>(reader.next());
    each.send = reader.next() != 0;
    each.tag.epoch = reader.next();
    each.tag.step = reader.next();
    each.tag.name = static_cast<uint64_t>(reader.next());
    each.bytes = reader.next();
  }
  if (reader.right()) return report;
  return Error{Code::Corrupt, Reach::Job,
               cat("a member's report of its calls has ", words.size(),
                   " words and is malformed: check that all members run the same version")};
}

Agreement::Agreement(int32_t members, int32_t self, int32_t least)
    : members_(members),
      self_(self),
      least_(least),
      dead_(members),
      alive_(members),
      told_dead_(members),
      told_(members),
      reports_(static_cast<size_t>(members)) {
  for (int32_t place = 0; place < members; ++place) alive_.add(place);
}

MemberSet Agreement::missing() const {
  MemberSet missing(members_);
  for (int32_t place = 0; place < members_; ++place) {
    if (alive_.has(place) && !(told_dead_.has(place) && told_.has(place))) missing.add(place);
  }
  return missing;
}

void Agreement::begin(MemberReport own) {
  ++attempt_;
  for (int32_t place = 0; place < members_; ++place) {
    if (dead_.has(place)) alive_.remove(place);
  }
  told_dead_ = told_ = MemberSet(members_);
  differs_ = false;
  reports_.assign(reports_.size(), {});
  reports_[static_cast<size_t>(self_)] = std::move(own);
  told_dead_.add(self_);
  told_.add(self_);
}

void Agreement::hear_dead(int64_t attempt, int32_t from, const MemberSet& dead) {
  if (attempt != attempt_ || !alive_.has(from)) return;
  told_dead_.add(from);
  if (dead.has(self_)) {
    taken_for_dead_ = true;
    return;
  }
  differs_ = differs_ || dead.meets(alive_) || alive_.count() + dead.count() != members_;
  dead_ |= dead;
}

void Agreement::hear_report(int64_t attempt, int32_t from, MemberReport report) {
  if (attempt != attempt_ || !alive_.has(from)) return;
  told_.add(from);
  reports_[static_cast<size_t>(from)] = std::move(report);
}

Agreement::Stand Agreement::stand() const {
  if (taken_for_dead_ || members_ - dead_.count() < least_) return Stand::Refused;
  if (differs_ || dead_.meets(alive_)) return Stand::Next;
  return missing().empty() ? Stand::Agreed : Stand::Waits;
}

std::string Agreement::refusal() const {
  if (taken_for_dead_) return "the other members have declared this one dead";
  return cat("of ", members_, " members ", members_ - dead_.count(),
             " are alive, expected at least ", least_,
             ": the others may be alive and continue without these");
}

namespace {

// What all live members tell of one call.
struct Told {
  std::vector<const CallReport*> by_place;  // null = not started, released, or lost there
  const CallReport* open = nullptr;         // of a member where it has not ended
  bool ended = false, lost = false, released = false;
  bool all_started = true, all_intact = true, same = true;
};

Told told_of(int64_t number, const MemberSet& alive, const std::vector<MemberReport>& reports) {
  Told told;
  told.by_place.resize(reports.size());
  for (size_t place = 0; place < reports.size(); ++place) {
    if (!alive.has(static_cast<int32_t>(place))) continue;
    const MemberReport& report = reports[place];
    const auto found = std::find_if(report.calls.begin(), report.calls.end(),
                                    [&](const CallReport& call) { return call.number == number; });
    const bool started = report.next > number;
    told.all_started = told.all_started && started;
    if (found == report.calls.end()) {
      told.released = told.released || started;
      continue;
    }
    if (found->lost) {
      told.lost = true;
      continue;
    }
    told.by_place[place] = &*found;
    told.ended = told.ended || found->holding.ended;
    if (found->holding.ended) continue;
    told.all_intact = told.all_intact && found->intact;
    if (told.open == nullptr) told.open = &*found;
  }
  for (const CallReport* const each : told.by_place) {
    if (each == nullptr || told.open == nullptr) continue;
    const bool begun = each->generation >= 0;
    told.same = told.same && begun && each->generation == told.open->generation;
  }
  return told;
}

// Whether members that have begun this call number in the same attempt mean the same call.
bool fits(const Told& told) {
  return std::all_of(told.by_place.begin(), told.by_place.end(), [&](const CallReport* each) {
    if (each == nullptr) return true;
    const bool chunks = each->holding.ended || !each->completes ||
                        std::ssize(each->holding.chunks) == std::ptrdiff_t{each->chunks};
    return each->fingerprint == told.open->fingerprint && each->elements == told.open->elements &&
           each->chunks == told.open->chunks && each->completes == told.open->completes && chunks;
  });
}

}  // namespace

CallOutcomes outcomes_of_calls(const std::vector<WorkerId>& members, const MemberSet& alive,
                               const std::vector<MemberReport>& reports) {
  CallOutcomes outcomes;
  std::set<int64_t> numbers;
  for (size_t place = 0; place < reports.size(); ++place) {
    if (!alive.has(static_cast<int32_t>(place))) continue;
    for (const CallReport& call : reports[place].calls) numbers.insert(call.number);
  }
  for (const int64_t number : numbers) {
    const Told told = told_of(number, alive, reports);
    // Skip a call that is over everywhere. A lost call is over only when all have started it.
    if (told.open == nullptr && (!told.lost || told.all_started)) continue;
    const auto broken = [&](std::string_view why) {
      outcomes.broken =
          cat("call ", number, " has completed at some members, and others cannot get its ",
              "result: ", why);
    };
    if (told.released) {
      broken("members that completed it have released its memory");
      return outcomes;
    }
    CallOutcome& outcome = outcomes.calls[number];
    if (told.lost) {
      if (told.ended) {
        broken("it has ended with an error at another member");
        return outcomes;
      }
      outcome.reason = "it has ended with an error at a member";
      continue;
    }
    const bool begun = told.all_started && told.same;
    if (begun && !fits(told)) {
      outcomes.broken = cat("members have made different calls as call ", number,
                            ": all members must make the same calls in the same order");
      return outcomes;
    }
    if (!begun || !told.open->completes) {
      const std::string_view why = "only an all-reduce can be completed without its dead members";
      if (told.ended) {
        broken(begun ? why : "some members had not begun it");
        return outcomes;
      }
      outcome.kind = told.all_intact ? CallOutcome::Kind::Again : CallOutcome::Kind::Lost;
      outcome.reason = begun ? why
                       : told.all_intact
                           ? "not all survivors had begun it"
                           : "not all survivors had begun it, and inputs are not kept";
      continue;
    }
    std::vector<MemberHolding> holdings(members.size());
    for (size_t place = 0; place < members.size(); ++place) {
      if (told.by_place[place] != nullptr) holdings[place] = told.by_place[place]->holding;
    }
    outcome.completion = complete(members, alive, holdings, told.open->chunks, told.open->elements);
    outcome.reason = outcome.completion.reason;
    const bool had = !outcome.completion.contributors.empty();
    outcome.kind = had ? CallOutcome::Kind::Complete : CallOutcome::Kind::Lost;
    if (!had && told.ended) {
      broken(outcome.reason);
      return outcomes;
    }
  }
  return outcomes;
}

}  // namespace tenuto
