// What a member of a group does when others die in its calls: it stops them, agrees with those who
// live on who that is and what becomes of each call (agreement.h), makes what is left of the calls,
// and goes on in the group of the survivors.
//
// Messages of stopped calls stay in the wires of those who live, and hold memory there. So members
// also tell each other which these are, and whoever has not handed over the other end of one does
// so now, with bytes that nobody reads: then nothing is under way any more, no link has been
// dropped, and a tensor can be used again. What is left is made under names that say which attempt
// it is of. Who is through says so to the others, and nobody leaves the group before all have:
// calls that are over here may be lacking what is here elsewhere.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/agreement.h"
#include "runtime/call_tag.h"
#include "runtime/communicator.h"

namespace tenuto {

// The recovery of one member's group, for as long as the group lives.
class Communicator::Recovery {
 public:
  // Of a group that is being made, before its first call of the program's.
  explicit Recovery(Communicator& group);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // Whether calls are stopped now.
  bool active() const { return phase_ != Phase::Idle; }
  // Whether nothing of this is in the wire's hands.
  bool quiet() const { return errands_.empty(); }
  // Until when something has to be heard. Requires active()
  Duration limit() const;
  // The attempt after which the group began in its present form, and the one under way.
  int64_t generation() const { return generation_; }
  int64_t attempt_number() const { return agreement_.attempt(); }
  // A call has ended as it should: who was silent before was only late.
  void note_end() { silent_ = 0; }

  // A member is dead. While `defer` is set that is kept for later.
  void lose(WorkerId peer);
  void defer(bool on);
  // Nothing has been heard for too long: asks all who is there.
  void ask_all(const Error& why);
  // Gives up those that are awaited beyond the limit.
  void look(Duration now);
  // A report of the wire: true when it was for this, and the group need not look at it.
  bool handle(const Done& done);
  // Whether the last report said nothing new: that a member is through with an attempt. Those who
  // give up a silent one at different times must not keep each other waiting by that.
  bool heard_no_news() { return std::exchange(no_news_, false); }
  // A message of a stopped call has ended.
  void end_stopped(const Flight& flight, const Status& status);
  // The messages of a call's completion are over.
  void finish(int64_t number, Call& call);
  // With whom it has messages under way.
  std::set<WorkerId> peers() const;

 private:
  enum class Phase : uint8_t {
    Idle,
    Agree,  // words are awaited
    Drain,  // messages of stopped calls are awaited
    Make,   // completions are made
  };
  struct Errand {  // a message of this
    enum class Kind : uint8_t { Dead, Report, Through, Drain, Sent } kind = Kind::Sent;
    WorkerId peer;
    int64_t attempt = 0;
    std::vector<int64_t> words;
    std::vector<std::byte> nothing;  // Drain
  };

  int32_t place_of(WorkerId member) const;
  void attempt();
  void drop_dead();
  void stop_calls();
  void take_stock(int64_t number, Call& call);
  std::vector<MemberHolding> holdings_of(int64_t number) const;
  void stop_part(int64_t number, Call& call, Part part);
  MemberReport report() const;
  CallReport report_of(int64_t number, const Call& call) const;
  void tell();
  void send(WorkerId to, std::vector<int64_t> words, Saying what);
  void expect(WorkerId from, int64_t attempt, size_t words, Errand::Kind kind);
  void say_through();
  void post(Errand errand, bool send, const Tag& tag);
  void take_words(const Errand& errand);
  void drain(WorkerId peer, const std::vector<OpenMessage>& messages);
  bool handed(WorkerId peer, bool send, const Tag& tag) const;
  bool drained() const;
  void advance();
  void apply_verdicts();
  void complete(int64_t number, Call& call);
  static void divide_chunk(const Call& call, int32_t chunk, int64_t count);
  void lose_call(int64_t number, const std::string& reason);
  void end();

  Communicator& group_;
  const std::vector<WorkerId> all_;  // who the members were at first: places in sets
  Agreement agreement_;
  Phase phase_ = Phase::Idle;
  int64_t generation_ = 0;
  int silent_ = 0;  // attempts without a new death, one after the other
  bool deferred_ = false, due_ = false, advancing_ = false, no_news_ = false;
  Duration began_{};             // the attempt
  std::vector<WorkerId> asked_;  // in the attempt, by its words
  std::map<uint64_t, Errand> errands_;
  std::map<std::pair<int64_t, Part>, std::unique_ptr<Reduction>> stopped_;  // by step of tags
  std::set<std::tuple<WorkerId, bool, Tag>> drained_;
  std::map<int64_t, Completion> making_;
};

}  // namespace tenuto
