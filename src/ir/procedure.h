// A procedure: a collective that states its goal, and keeps rules that an executor, a price and a
// picture may rely on.
//
// Rounds say which state a move reads, not when it runs. An executor and a price keep each member's
// messages in order, and start a message as soon as what it reads is present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/collective.h"

namespace tenuto {

// What a collective achieves, for each chunk.
enum class Goal : uint8_t {
  AllReduce,      // every member ends with the sum over all members
  ReduceScatter,  // the chunk's owner ends with the sum over all members
  AllGather,      // every member ends with what the owner began with; with one owner of all chunks
                  // this is a broadcast
};

// A named part of a procedure: the rounds from the end of the previous part up to `round_end`.
struct Section {
  std::string name;
  int32_t round_end = 0;
  auto operator<=>(const Section&) const = default;
};

// A collective, and what an executor, a price and a picture need to know beside its moves.
//
// In each round a member sends at most one message and receives at most one; a message is
// consecutive moves of the round from one member to another. A put only moves a chunk that the
// destination needs for the goal and does not have yet. `check` enforces both rules.
struct Procedure {
  std::string name;  // of the algorithm
  Goal goal = Goal::AllReduce;
  Collective collective;
  std::vector<WorkerId> owners;  // of each chunk; none where the algorithm has no owners
  std::vector<WorkerId> late;    // late members, in order of arrival: the others begin without them
  std::vector<Section> sections;
  auto operator<=>(const Procedure&) const = default;
};

// Neighbouring moves [first, end) of a round that go from one member to another as one message.
struct MessageRange {
  size_t first = 0, end = 0;
};
// The message of `round` whose first move is `first`.
inline MessageRange message_at(const Round& round, size_t first) {
  size_t end = first + 1;
  while (end < round.moves.size() && round.moves[end].from == round.moves[first].from &&
         round.moves[end].to == round.moves[first].to) {
    ++end;
  }
  return {first, end};
}

// Counts of a collective's rounds, messages and buffers, made while it is checked.
struct CollectiveFacts {
  int32_t rounds = 0;
  int64_t moves = 0, messages = 0;
  int32_t port_messages = 0;                 // most that a member sends, or receives, in a round
  int64_t most_sent = 0, most_received = 0;  // chunks of one member, over all rounds
  int32_t peak_scratch = 0;  // most chunks that a member receives into a side buffer in a round:
                             // those to add, and those that replace a chunk being sent
  int64_t idle_puts = 0;     // puts of an incomplete chunk, or to a member that has it complete
};

// Refuses a procedure that does not reach its goal, or breaks a rule of procedures: each member
// sends and receives at most one message in a round, and no put is useless.
//
// Errors: Invalid/Job   a sentence with the round and the move, or the worker and the chunk
// Cost:   moves x members / 64 in time; memory for the contributor sets of one chunk
Result<CollectiveFacts> check(const Procedure& procedure);

// The facts of any collective that reaches its goal, even if it breaks the rules of a procedure.
// `owners`: of each chunk, where the goal is not an all-reduce.
Result<CollectiveFacts> examine(const Collective& collective, Goal goal = Goal::AllReduce,
                                const std::vector<WorkerId>& owners = {});

// What a goal is called: all-reduce, reduce-scatter, all-gather.
std::string_view name_of(Goal goal);

// The procedure as text (docs/collectives.md): a line that says what it is, then its rounds, each
// section's below a line with its name.
//
//     late-one all-reduce members 0 1 2 chunks 2 late 2 owners 0 1
//       section early reduce-scatter
//       round 0>1.1+ 1>0.0+
//
// "from>to.chunk" puts, "from>to.chunk+" adds. What follows a # is a comment.
std::string to_text(const Procedure& procedure);
// Reads the text back: the same procedure. Only `check` says whether it is correct.
//
// Errors: Invalid/Call with `source` and line, what was expected and what was found
Result<Procedure> procedure_from_text(std::string_view text, std::string_view source);

}  // namespace tenuto
