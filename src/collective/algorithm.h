// Collective algorithms: each has a function that makes its rounds, and a card that describes it.
//
// A new algorithm is a file here and a line in the table of algorithm.cc (docs/collectives.md shows
// one).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/procedure.h"

namespace tenuto {

// What collective is wanted.
struct CollectiveShape {
  std::vector<WorkerId> members;
  int32_t chunks = 0;          // 0 = the algorithm decides
  std::vector<WorkerId> late;  // in the order in which they are expected
  WorkerId root;               // of a broadcast; none = the first member
};

// What is known of an algorithm: n members, k chunks, L = ceil(log2 n), s bytes, w late members.
struct AlgorithmCard {
  std::string name, summary;
  Goal goal = Goal::AllReduce;
  std::string rounds, bytes, phases, source;
  std::string good_for;
  bool free_chunks = false;               // takes any count of chunks
  int32_t late_least = 0, late_most = 0;  // members that may be late, -1 = all but two
  // The number of rounds for n members and k chunks; nullptr if there is no closed form. For
  // algorithms with late members: the rounds after the late member has come.
  std::optional<int32_t> (*round_count)(int32_t members, int32_t chunks) = nullptr;
};

// Makes the procedure of a shape that `make_procedure` has checked: at least one member, all
// different; chunks not negative; late members and root among the members.
using ProcedureMaker = Result<Procedure> (*)(const CollectiveShape& shape);

// An algorithm: what is known of it, and what makes it.
struct NamedAlgorithm {
  AlgorithmCard card;
  ProcedureMaker make = nullptr;
};

// The table: every algorithm, as `tenuto collective list` shows them.
const std::vector<NamedAlgorithm>& algorithms();
// The algorithm of a name, or nullptr.
const NamedAlgorithm* find_algorithm(std::string_view name);

// The procedure of the algorithm `name` for a shape.
//
// Errors: Invalid/Call     there is no such algorithm, or the shape contradicts itself
//         Infeasible/Call  the algorithm cannot have this shape; the message says what it can have
Result<Procedure> make_procedure(std::string_view name, const CollectiveShape& shape);

// Appends `rounds` to those of `made` as a section named `section`; does nothing without rounds.
void append(Procedure& made, std::vector<Round> rounds, std::string section);

// ceil(log2 count): rounds until `count` members have what one of them had. Requires count > 0
int32_t doublings(int32_t count);

// A ring: growing sums travel round it, then the finished sums.
NamedAlgorithm algorithm_ring();
// Distances halve while sums are made and double while they are spread.
NamedAlgorithm algorithm_halving();
// Two binary trees, each with half of the chunks.
NamedAlgorithm algorithm_tree();
// Each member sums its own chunk: what all others send it.
NamedAlgorithm algorithm_direct();
// The others make their sums while one member is late, then exchange with it at its port's rate.
NamedAlgorithm algorithm_late_one();
// Several members are late and come one after the other: each joins those that have the sums.
NamedAlgorithm algorithm_late_join();
// Several members are late and come together.
NamedAlgorithm algorithm_late_together();
// One member has slow links: the tensor goes through them once in each direction.
NamedAlgorithm algorithm_slow_one();
// The first halves of ring and halving.
NamedAlgorithm algorithm_reduce_scatter_ring();
NamedAlgorithm algorithm_reduce_scatter_halving();
// The second halves of ring and halving.
NamedAlgorithm algorithm_all_gather_ring();
NamedAlgorithm algorithm_all_gather_doubling();
// Every chunk from one member to all, in the least possible rounds.
NamedAlgorithm algorithm_broadcast();

}  // namespace tenuto
