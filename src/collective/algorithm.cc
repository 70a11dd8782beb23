#include "collective/algorithm.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr int32_t kMostChunks = 1 << 20;
// The most members x chunks, which is about half the number of moves. 4,096 members with one chunk
// each reach it; their moves take half a gigabyte.
constexpr int64_t kMostPieces = int64_t{1} << 24;

Error infeasible(std::string message) {
  return {Code::Infeasible, Reach::Call, std::move(message)};
}

Status check_members(const CollectiveShape& shape) {
  std::set<WorkerId> members;
  for (const WorkerId member : shape.members) {
    if (member.value >= 0 && members.insert(member).second) continue;
    return invalid(cat("the members must be different workers, found ", member.value, " again"));
  }
  if (members.empty()) return invalid("a collective needs a member");
  std::set<WorkerId> late;
  for (const WorkerId member : shape.late) {
    if (members.count(member) == 0) return invalid(cat("late worker ", member, " is no member"));
    if (!late.insert(member).second) return invalid(cat("late worker ", member, " comes twice"));
  }
  if (shape.root.value >= 0 && members.count(shape.root) == 0) {
    return invalid(cat("root ", shape.root, " is no member"));
  }
  if (shape.chunks < 0 || shape.chunks > kMostChunks) {
    return invalid(cat("expected 1 to ", kMostChunks, " chunks, found ", shape.chunks));
  }
  return ok();
}

}  // namespace

const std::vector<NamedAlgorithm>& algorithms() {
  static const std::vector<NamedAlgorithm> all = {
      algorithm_ring(),                    //
      algorithm_halving(),                 //
      algorithm_tree(),                    //
      algorithm_direct(),                  //
      algorithm_late_one(),                //
      algorithm_late_join(),               //
      algorithm_late_together(),           //
      algorithm_slow_one(),                //
      algorithm_reduce_scatter_ring(),     //
      algorithm_reduce_scatter_halving(),  //
      algorithm_all_gather_ring(),         //
      algorithm_all_gather_doubling(),     //
      algorithm_broadcast(),               //
  };
  return all;
}

const NamedAlgorithm* find_algorithm(std::string_view name) {
  for (const NamedAlgorithm& algorithm : algorithms()) {
    if (algorithm.card.name == name) return &algorithm;
  }
  return nullptr;
}

Result<Procedure> make_procedure(std::string_view name, const CollectiveShape& shape) {
  const NamedAlgorithm* algorithm = find_algorithm(name);
  if (algorithm == nullptr) {
    std::vector<std::string_view> names;
    for (const NamedAlgorithm& known : algorithms()) names.push_back(known.card.name);
    const std::string near = nearest(std::string(name), names.data(), names.size());
    return invalid(cat("there is no algorithm '", name, "'",
                       near.empty() ? "; tenuto collective list names them"
                                    : cat(": did you mean '", near, "'?")));
  }
  if (const Status status = check_members(shape); !status.ok()) return status.error();
  const AlgorithmCard& card = algorithm->card;
  const auto count = static_cast<int32_t>(shape.members.size());
  const auto late = static_cast<int32_t>(shape.late.size());
  if (const int64_t pieces = int64_t{count} * std::max(shape.chunks, card.free_chunks ? 1 : count);
      pieces > kMostPieces) {
    return infeasible(cat("members x chunks are ", pieces, ": expected ", kMostPieces,
                          " at most, take fewer chunks"));
  }
  if (shape.chunks > 0 && !card.free_chunks && shape.chunks != count) {
    return infeasible(cat(name, " has one chunk for each member, found ", shape.chunks, " for ",
                          count, ": leave the chunks out"));
  }
  if (card.late_most != 0 && count < 2) {
    return infeasible(cat(name, " needs two members, found ", count));
  }
  const int32_t most = card.late_most < 0 ? std::max(count - 2, 1) : card.late_most;
  if (card.late_most != 0 && (late < card.late_least || late > most)) {
    return infeasible(cat(name, " of ", count, " members takes ", card.late_least,
                          card.late_least == most ? "" : cat(" to ", most), " late ",
                          most == 1 ? "one" : "ones", ", found ", late));
  }
  return algorithm->make(shape);
}

void append(Procedure& made, std::vector<Round> rounds, std::string section) {
  if (rounds.empty()) return;
  auto& all = made.collective.rounds;
  all.reserve(all.size() + rounds.size());
  for (Round& round : rounds) all.push_back(std::move(round));
  made.sections.push_back({std::move(section), static_cast<int32_t>(all.size())});
}

int32_t doublings(int32_t count) {
  CHECK(count > 0, "a count of members");
  int32_t rounds = 0;
  while ((int64_t{1} << rounds) < count) ++rounds;
  return rounds;
}

}  // namespace tenuto
