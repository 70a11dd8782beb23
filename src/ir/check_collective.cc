// The symbolic check of a collective: what each member's chunk is made of, as a set of
// contributors.
#include <algorithm>
#include <bit>
#include <map>

#include "base/text.h"
#include "ir/check.h"
#include "ir/text.h"

namespace tenuto {

namespace {

// Sets of contributors, one of `words_` words for each member and chunk.
class Contributions {
 public:
  Contributions(size_t members, size_t chunks)
      : members_(members), chunks_(chunks), words_((members + 63) / 64) {
    bits_.assign(members_ * chunks_ * words_, 0);
    for (size_t member = 0; member < members_; ++member) {
      for (size_t chunk = 0; chunk < chunks_; ++chunk) {
        bits_[place(member, chunk) + member / 64] |= uint64_t{1} << (member % 64);
      }
    }
  }

  std::vector<uint64_t> of(size_t member, size_t chunk) const {
    const auto begin = bits_.begin() + static_cast<std::ptrdiff_t>(place(member, chunk));
    return {begin, begin + static_cast<std::ptrdiff_t>(words_)};
  }
  // Puts or adds a set; false when an add would count somebody twice.
  bool arrive(size_t member, size_t chunk, const std::vector<uint64_t>& set, bool add) {
    uint64_t* target = &bits_[place(member, chunk)];
    for (size_t i = 0; i < words_; ++i) {
      if (add && (target[i] & set[i]) != 0) return false;
      target[i] = add ? target[i] | set[i] : set[i];
    }
    return true;
  }
  size_t count(size_t member, size_t chunk) const {
    size_t sum = 0;
    for (const uint64_t word : of(member, chunk)) sum += static_cast<size_t>(std::popcount(word));
    return sum;
  }

 private:
  size_t place(size_t member, size_t chunk) const { return (member * chunks_ + chunk) * words_; }

  size_t members_, chunks_, words_;
  std::vector<uint64_t> bits_;
};

Error fault(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

}  // namespace

Status check(const Collective& collective) {
  std::map<WorkerId, size_t> members;
  for (const WorkerId member : collective.members) {
    if (member.value < 0 || !members.emplace(member, members.size()).second) {
      return fault(cat("the members must be different workers, found ", member.value, " again"));
    }
  }
  if (members.empty()) return fault("a collective needs a member");
  if (collective.chunk_count < 1) return fault("a collective needs at least one chunk");
  size_t moves = 0;
  for (const Round& round : collective.rounds) moves += round.moves.size();
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  // Every chunk must reach every member but one: also what bounds the memory of this check.
  if (moves / chunks < members.size() - 1) {
    return fault(cat("it has ", moves, " moves; ", chunks, " chunks and ", members.size(),
                     " members need at least ", chunks * (members.size() - 1)));
  }
  if (members.size() == 1 && moves == 0) return ok();
  Contributions sums(members.size(), chunks);
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    std::vector<std::vector<uint64_t>> carried;
    std::map<std::pair<WorkerId, ChunkId>, bool> targets;
    for (const Move& move : collective.rounds[r].moves) {
      if (members.count(move.from) == 0 || members.count(move.to) == 0 || move.from == move.to ||
          move.chunk.value < 0 || static_cast<size_t>(move.chunk.value) >= chunks) {
        return fault(cat("round ", r, ", move ", to_text(move), ": expected two different members",
                         " and a chunk of 0 to ", chunks - 1));
      }
      const auto [place, fresh] = targets.try_emplace({move.to, move.chunk}, move.add);
      if (!fresh && !(place->second && move.add)) {
        return fault(cat("round ", r, ", move ", to_text(move),
                         ": another move of the round puts something in the same place"));
      }
      carried.push_back(sums.of(members[move.from], static_cast<size_t>(move.chunk.value)));
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      const Move& move = collective.rounds[r].moves[i];
      if (sums.arrive(members[move.to], static_cast<size_t>(move.chunk.value), carried[i],
                      move.add)) {
        continue;
      }
      return fault(cat("round ", r, ", move ", to_text(move),
                       ": it adds a contribution that is in the sum already"));
    }
  }
  for (const auto& [worker, member] : members) {
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      if (sums.count(member, chunk) == members.size()) continue;
      return fault(cat("worker ", worker, " ends with ", sums.count(member, chunk), " of ",
                       members.size(), " contributions in chunk ", chunk, ": expected all"));
    }
  }
  return ok();
}

}  // namespace tenuto
