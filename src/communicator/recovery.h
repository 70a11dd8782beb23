// What a member of a group does when others die in its calls: it stops the calls, agrees with the
// other survivors on who lives and on how each call ends (agreement.h), completes the calls, and
// goes on in the group of the survivors.
//
// Messages of stopped calls stay in the wires of the survivors, and hold memory there. So members
// also tell each other which messages these are. If a member has not posted the matching send or
// receive of such a message, it posts it now, with bytes that nobody reads. After that nothing is
// under way, no link between survivors has been dropped, and the tensors can be used again. The
// messages that complete a call have the number of the attempt in their names. A member that needs
// nothing more of the others tells them that it is through, and no member leaves the group before
// all have done so: after a call has ended at one member, another member may still need that
// member's data for it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "communicator/agreement.h"
#include "communicator/call_tag.h"
#include "communicator/communicator.h"

namespace tenuto {

// The recovery of one member's group, for as long as the group lives.
class Communicator::Recovery {
 public:
  // For a group that is being made, before the first call of the program.
  explicit Recovery(Communicator& group);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // Whether calls are stopped now.
  bool active() const { return phase_ != Phase::Idle; }
  // Whether no message of this object is under way.
  bool quiet() const { return recovery_messages_.empty(); }
  // The time until which the awaited messages must come. Requires active()
  Duration limit() const;
  // Numbers of the attempt that formed the present group (0 = none) and of the last one begun.
  int64_t generation() const { return generation_; }
  int64_t attempt_number() const { return agreement_.attempt(); }
  // A call has ended without an error, so members that were silent before were only late.
  void note_end() { silent_ = 0; }

  // A member is dead. After defer(true) an attempt begins only with defer(false).
  void lose(WorkerId peer);
  void defer(bool on);
  // No report has come for too long: begins an attempt, which shows who is there.
  void ask_all(const Error& why);
  // If the limit has passed: declares dead the members whose messages have not come, and begins the
  // next attempt.
  void look(Duration now);
  // Handles a report of the wire. True when it was for this object: then the group need not look at
  // it.
  bool handle(const Done& done);
  // Whether the last report only said that a member is through with an attempt. Such a report must
  // not restart the silence limit: otherwise members whose limits for a silent member end at
  // different times would keep each other waiting.
  bool heard_no_news() { return std::exchange(no_news_, false); }
  // A message of a stopped call has ended.
  void end_stopped(const Flight& flight, const Status& status);
  // Messages of a call's completion have ended: closes the call if these were the last.
  void finish(int64_t number, Call& call);
  // The members with which it has messages under way.
  std::set<WorkerId> peers() const;

 private:
  enum class Phase : uint8_t {
    Idle,
    Agree,  // messages of the attempt are awaited
    Drain,  // messages of stopped calls are awaited
    Make,   // completions are made
  };
  struct RecoveryMessage {  // a message of the recovery
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
  void expect(WorkerId from, int64_t attempt, size_t words, RecoveryMessage::Kind kind);
  void say_through();
  void post(RecoveryMessage recovery_message, bool send, const Tag& tag);
  void take_recovery_message(const RecoveryMessage& recovery_message);
  void drain(WorkerId peer, const std::vector<OpenMessage>& messages);
  bool handed(WorkerId peer, bool send, const Tag& tag) const;
  bool drained() const;
  void advance();
  void apply_outcomes();
  void complete(int64_t number, Call& call);
  static void divide_chunk(const Call& call, int32_t chunk, int64_t count);
  void lose_call(int64_t number, const std::string& reason);
  void end();

  Communicator& group_;
  const std::vector<WorkerId> all_;  // who the members were at first: places in sets
  Agreement agreement_;
  Phase phase_ = Phase::Idle;
  int64_t generation_ = 0;
  int silent_ = 0;  // successive attempts without a new death
  bool deferred_ = false, due_ = false, advancing_ = false, no_news_ = false;
  Duration began_{};             // when the attempt began
  std::vector<WorkerId> asked_;  // members to which this attempt's report was sent
  std::map<uint64_t, RecoveryMessage> recovery_messages_;
  std::map<std::pair<int64_t, Part>, std::unique_ptr<Reduction>> stopped_;  // by step in tags
  std::set<std::tuple<WorkerId, bool, Tag>> drained_;
  std::map<int64_t, Completion> making_;
};

}  // namespace tenuto
