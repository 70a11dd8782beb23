// A group of members that make collectives over a wire: the collectives as a library, without a
// job.
//
// All members make the same calls in the same order. A call is started and waited for; several may
// be under way, each with names of its own on the wire (group, call, part, round, chunk), so that
// none blocks another. There is no thread here: calls advance only while start, test or wait of
// this object runs, and as far as the wire moves bytes by itself. A program that computes between
// start and wait should call test once in a while.
//
// Every message carries a hash of its sender's arguments of the call: algorithm, late members,
// chunks, bytes, element, operation. If the receiver has another hash, the call ends with an error,
// and its `total` is undefined. Members with different procedures may never exchange a message. So
// in every call each member also sends this hash to the next member. A call thus never succeeds at
// a member if the previous member makes a different one.
//
// Auto: an AlgorithmChooser (collective/choose.h) takes the algorithm that seems best for an
// all-reduce. It judges by the times at which the members came to earlier calls. For this, large
// calls also all-reduce a vector of the members' away times (see away_before), by the same moves as
// the tensor's last chunk. So all members know the same before the next choice, and the messages'
// hash includes the chooser's fingerprint.
//
// A call that fails ends all calls that are under way, and the group. The member then drops its
// links to all peers with which it has a message under way: so the calls' memory is free when the
// error is returned, and those peers learn of the failure. The wire itself reports a lost member to
// all members; after any other failure this member drops all links of the group.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/result.h"
#include "collective/choose.h"
#include "collective/slice.h"
#include "communicator/procedures.h"
#include "communicator/ready_service.h"
#include "runtime/element.h"
#include "runtime/reduction.h"
#include "transport/transport.h"

namespace tenuto {

// What a group runs on. While calls are under way, only the transport and this group use the
// mailbox; links between all members exist or are being made.
struct CommunicatorWire {
  Transport* transport = nullptr;
  Mailbox* mailbox = nullptr;
  const Clock* clock = &monotonic_clock();
  ReadyDesk* ready = nullptr;  // the service that auto asks who is late; set by all members or none
};

// The algorithm of a call.
struct CallWay {
  std::string algorithm;            // a name of `tenuto collective list`, or auto for an all-reduce
  int32_t chunks = 0;               // where the algorithm takes any count; 0 = by size
  std::vector<WorkerId> late = {};  // for algorithms with late members
};

// Who the members are, and how they make their calls. Equal at all members, except `self` and
// `silence_limit`.
struct CommunicatorSettings {
  std::vector<WorkerId> members;  // in the order that all agree on; a member's place is in here
  WorkerId self;
  int64_t number = 1;  // of the group: different for each group that uses the same links

  CallWay way{"auto"};  // of all-reduces
  // Chunks are cut into slices of about this size; 0 = never. If the group knows its link to be
  // slow, slices are smaller, because a slice's acknowledgement waits behind the data that its
  // receiver sends.
  int64_t slice_bytes = 512 << 10;
  // Sends of a call under way at once; 0 = no limit. If slices are smaller for a slow link, twice
  // as many where all sends go to one peer, as in a ring: acknowledgements take long there, and no
  // other peer has to wait. By late-one only one then: the next message goes to another peer, which
  // does not need it yet, and would take half of the port from the one that is needed.
  int32_t sends_at_once = 2;
  int32_t receives_at_once = 0;  // of a call, see ReductionSettings; 0 = as many as can be
  Duration silence_limit = std::chrono::seconds(30);  // a longer wait without any report fails

  // True: members that die do not end the group. The others agree on how the calls end: an
  // all-reduce ends with the sum over all members if survivors have all of it, else with the sum
  // over the survivors; contributors() returns the members in it. Then the group goes on without
  // the dead. If inputs are not kept (`own` is `total`), this may be impossible; the call then ends
  // with an error at all members. After a call was waited for, its own and total must stay
  // unchanged until an all-reduce that was started later has ended: other members may still need
  // them. So a member that leaves makes an all-reduce first, which may be empty.
  bool survive_deaths = false;
  // How many must survive; 0 = more than half of the group, so that of two parts that cannot reach
  // each other at most one goes on.
  int32_t least_survivors = 0;

  // For auto.
  std::optional<AlphaBeta> link;  // what most links are like; none = measured by make
  int64_t told_bytes = 64 << 10;  // least size of an all-reduce by auto that carries away times
  // The away times that call c carries are used by the choice for call c + calls_ahead and later
  // ones, so the `start` of that call first waits for the end of call c. Set it to the number of
  // calls that the program has under way at once.
  int32_t calls_ahead = 1;
  ChooserRules rules;
};

// What a call does with the members' tensors.
enum class CallKind : uint8_t {
  AllReduce,      // all end with the result
  ReduceScatter,  // the member at place p of n ends with chunk p of n of it
  AllGather,      // chunk p of n is the one of the member at place p; all end with all of them
  Broadcast,      // all end with the root's
};

// The goal of a kind of call.
Goal goal_of(CallKind kind);
// Its name, for people.
std::string_view name_of(CallKind kind);
// Whether a kind of call combines the members' inputs.
bool reduces(CallKind kind);

// One call. `own` is this member's input, `total` its result: of equal sizes, the same memory or
// apart, and both in use by the call until it has ended. Parts of `own` that are not this member's
// input are not read. Parts of `total` that a reduce-scatter does not give to this member are left
// undefined. Operations are for AllReduce and ReduceScatter.
struct CallRequest {
  CallKind kind = CallKind::AllReduce;
  Element element = Element::Float32;
  Operation operation = Operation::Sum;
  std::span<const std::byte> own;
  std::span<std::byte> total;
  WorkerId root;  // of a broadcast; none = the first member
  CallWay way;    // empty = for an all-reduce the group's, for other kinds one by size
};

// Numbers the calls of a group, from 0.
enum class CallNumber : int64_t {};

// A member's own part of a tensor of `elements`: chunk number `place` of `members` chunks.
inline ElementRange own_range(int64_t elements, int32_t place, int32_t members) {
  return chunk_range(elements, place, members);
}

// The most calls that a group holds, under way or over and not waited for: each may hold scratch.
inline constexpr size_t kMostCalls = 256;
// Sentences that a group keeps for take_notes.
inline constexpr size_t kMostNotes = 256;

// One member of a group. Used by one thread.
//
// Source: A. Devraj et al., "Efficient AllReduce with Stragglers" (arXiv 2505.23523), needs to know
//         who is late. Our own: each member reports how long it was away since its previous call
//         ended, which needs no common clock (docs/decisions/039).
class Communicator {
 public:
  // If the link has to be measured, this waits for all members and makes calls with them.
  //
  // Errors: Invalid/Call   no member or one twice, self not among them, no such algorithm
  //         as wait
  static Result<std::unique_ptr<Communicator>> make(const CommunicatorWire& wire,
                                                    CommunicatorSettings settings);
  // Abandons the calls that are under way. If there are any, the other members may also lose what
  // this one has sent in calls that are over here.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Begins a call, which uses the given memory until wait or test has returned its end.
  //
  // Errors: Invalid/Call    memory of unequal sizes, not of whole elements, not aligned for them or
  //                         overlapping in part; an algorithm for another kind of call
  //         Exhausted/Call  kMostCalls are under way or not waited for
  //         the error that ended the group before
  Result<CallNumber> start(const CallRequest& request);
  // Waits for the end of a call and forgets it.
  //
  // Errors: Disconnected/Worker  a member is lost; the sentence names it
  //         Infeasible/Call      members are lost, and the call cannot end without them; the
  //                              group goes on
  //         Infeasible/Job       so many are lost that the others cannot go on
  //         Timeout/Worker       no report for silence_limit; names call, peer, round and chunk
  //         Invalid/Job          members made different calls
  //         others as the wire reports them, with call, peer, round and chunk
  Status wait(CallNumber number);
  // Whether the call is over; if so it is forgotten. Errors as wait.
  Result<bool> test(CallNumber number);
  // start and wait, one after the other.
  Status run(const CallRequest& request);

  // The members in the result of the call whose end wait or test returned last.
  const std::vector<WorkerId>& contributors() const { return contributors_; }
  // Who the members are now.
  const std::vector<WorkerId>& members() const { return settings_.members; }
  // Place of this member, and how many there are.
  int32_t place() const { return place_; }
  int32_t member_count() const { return static_cast<int32_t>(settings_.members.size()); }
  // Members that were reported as lost, each with the report.
  const std::map<WorkerId, std::string>& lost() const { return lost_; }
  // The decisions since the last call of this, a sentence each, the newest kMostNotes: which
  // algorithm auto uses for a call size from now on, which algorithm replaced another one, and how
  // calls in which members died ended.
  std::vector<std::string> take_notes();
  // The assumed costs of a link; none if they were neither given nor measured.
  const std::optional<AlphaBeta>& link() const { return settings_.link; }
  // How long the members were away before call `number`, in microseconds by place, from their ends
  // of the call before to their arrivals; empty when the call did not carry these times or was long
  // ago.
  std::vector<uint32_t> away_before(CallNumber number) const;

 private:
  // Parts of a call, each with messages of its own. Word: the check that the next member makes the
  // same call. Away: the away times. Rest: the completion of an all-reduce in which members died.
  enum Part : uint8_t { Tensor, Word, Away, Rest, PartCount };
  struct Call {
    std::string what;  // for errors: "call 3 (all-reduce of 1024 bytes by ring)"
    uint64_t fingerprint = 0;
    std::shared_ptr<OwnProcedure> procedure;
    std::unique_ptr<Reduction> parts[PartCount];
    std::byte word{};           // the tensor of Word, in place; its value has no meaning
    std::vector<int32_t> away;  // input and result of Away: by place, modulo 2^32
    int64_t bytes = 0;
    bool over = false;
    Status status = ok();
    std::vector<WorkerId> contributors;  // over: the members that are in the result
    CallRequest request;
    ProcedureName name;
    int32_t slices = 1;
    bool automatic = false;  // the chooser has chosen its procedure
    bool begun = false;      // its first messages have been handed over
    bool asked = false;      // the ready service has been asked how to make it
    std::byte nothing[2]{};  // own and total in place of an empty tensor
    // For groups that survive deaths.
    int64_t generation = -1;             // of the group, when it was begun; -1 = it is not
    std::vector<ChunkHolding> holdings;  // stopped: what is here of each chunk
    std::vector<bool> divided;           // stopped: chunks of an average that are divided
    int64_t released_by = 0;  // released when the call of this number or a later one ends
  };
  struct Flight {  // a message in the wire's hands
    int64_t call = 0;
    Part part = Tensor;
    int32_t index = 0;
    WorkerId peer;
    bool send = false, stopped = false;
    Tag tag;
    size_t bytes = 0;
  };
  struct Told {  // the away times that a call carries
    int64_t bytes = 0;
    bool here = false, noted = false;
    std::vector<uint32_t> away;
  };
  struct Making {  // how a call is executed
    ProcedureName name;
    std::shared_ptr<OwnProcedure> procedure;
    int32_t slices = 1;
    bool automatic = false;  // the chooser has chosen it
  };

  class Recovery;

  Communicator(const CommunicatorWire& wire, CommunicatorSettings settings, int32_t place);

  void set_members(std::vector<WorkerId> those);
  Result<int64_t> enter(const CallRequest& request);
  void prepare(Call& call, const Making& making);
  bool stopped() const;        // calls are stopped, for a recovery
  int64_t generation() const;  // number of the attempt that formed the present group; 0 = none
  bool has_waiting() const;
  void begin_waiting();
  void run_parts(int64_t number, Call& call);
  Call* find_call(int64_t number);
  Status take(std::map<int64_t, Call>::iterator found);
  void release(int64_t ended);
  void silent(const Error& error);
  Result<Making> choose(const CallRequest& request, int64_t number);
  bool asks(const CallRequest& request) const;
  void ask(int64_t number, Call& call);
  CallCosts costs_of(const CallRequest& request) const;
  bool take_answer(const Done& done);
  void begin_asked(const ReadyAnswer& answer);
  void lose(WorkerId member, const Error& error);
  void lose_service(Error error);
  static Status check_algorithm(const std::string& name, CallKind kind);
  bool is_automatic(const CallRequest& request) const;
  Result<ProcedureName> name_for(const CallRequest& request, int64_t number);
  Result<Making> making_of(ProcedureName name, const CallRequest& request);
  uint64_t fingerprint_of(const CallRequest& request, const Making& making) const;
  int64_t slice_bytes() const;
  int32_t sends_at_once(const Call& call, const Collective& moves) const;
  std::unique_ptr<Reduction> make_reduction(const Call& call);
  Status measure_link();
  Result<Duration> shortest(int tries, int64_t bytes);
  Status take_told(int64_t before);
  ProcedureName choose_by_calls(int64_t bytes);
  void note_choice(int64_t bytes, const std::string& algorithm, int32_t late,
                   const std::string& reason);
  std::unique_ptr<Reduction> small_part(Element element, const Collective& moves,
                                        std::span<std::byte> total);
  void tell_away(int64_t number, Call& call);
  Status await(Call& call);
  void note(std::string sentence);
  void make_calls(int64_t number, Call& call, Part part);
  void close(int64_t number, Call& call);
  bool hear(Duration limit);
  void handle(const Done& done);
  void fail(Error error);
  void abandon(bool all);
  Error silence(const Call& call) const;
  std::string about(const Call& call, const Flight& flight) const;

  CommunicatorWire wire_;
  CommunicatorSettings settings_;
  int32_t place_;
  Procedures procedures_;
  Collective word_;  // the moves of part Word: what this member sends and receives
  int64_t next_ = 0;
  std::map<int64_t, Call> calls_;  // under way, or over and not waited for
  std::map<int64_t, Call> past_;   // waited for; others may still need data from their memory
  std::map<int64_t, std::string> lost_calls_;  // not started here; why they end with an error
  std::vector<WorkerId> contributors_;
  std::unique_ptr<Recovery> recovery_;
  std::unordered_map<uint64_t, Flight> flights_;
  std::vector<std::vector<int64_t>> scratch_;  // of calls that are over
  Duration heard_at_{};                        // when the last news came
  std::map<WorkerId, std::string> lost_;
  std::optional<Error> ended_;  // what has ended the group
  std::optional<AlgorithmChooser> chooser_;
  std::unique_ptr<ReadyAsker> asker_;  // none = nobody is asked
  std::map<int64_t, Told> told_;       // by call: those not noted yet, and the last noted ones
  std::optional<Duration> last_end_;   // of a call; none before the first
  std::map<int, std::string> chosen_;  // by size (its count of bits): what auto took last
  std::vector<std::string> notes_;
};

}  // namespace tenuto
