#include "collective/late.h"

#include <algorithm>
#include <map>

#include "base/contains.h"
#include "collective/algorithm.h"
#include "collective/circulant.h"

namespace tenuto {

std::vector<Round> early_rounds(const std::vector<WorkerId>& early,
                                const std::vector<WorkerId>& owners) {
  std::map<WorkerId, std::vector<ChunkId>> owned;
  for (size_t c = 0; c < owners.size(); ++c) {
    owned[owners[c]].push_back({static_cast<int32_t>(c)});
  }
  std::vector<WorkerId> circle = early;
  const bool some_own_nothing = owned.size() < early.size();
  if (some_own_nothing) {
    const auto owns = [&](WorkerId member) { return owned.count(member) > 0; };
    std::vector<WorkerId> with, without;
    for (const WorkerId member : early) (owns(member) ? with : without).push_back(member);
    circle.clear();
    for (size_t i = 0, taken = 0; i < early.size(); ++i) {
      const bool owner = taken * early.size() <= i * with.size() && taken < with.size();
      circle.push_back(owner ? with[taken] : without[i - taken]);
      taken += owner ? 1 : 0;
    }
  }
  Blocks blocks;
  for (const WorkerId member : circle) blocks.push_back(owned[member]);
  return some_own_nothing ? circulant_reduce_scatter(circle, blocks)
                          : ring_reduce_scatter(circle, blocks);
}

std::vector<WorkerId> without(const std::vector<WorkerId>& members,
                              const std::vector<WorkerId>& left_out) {
  std::vector<WorkerId> rest;
  for (const WorkerId member : members) {
    if (!contains(left_out, member)) rest.push_back(member);
  }
  return rest;
}

RoundLength length_of(const std::vector<Round>& rounds) {
  RoundLength length;
  length.rounds = static_cast<int32_t>(rounds.size());
  for (const Round& round : rounds) {
    size_t most = 0;
    for (size_t i = 0; i < round.moves.size();) {
      const MessageRange message = message_at(round, i);
      most = std::max(most, message.end - message.first);
      i = message.end;
    }
    length.chunks += static_cast<int32_t>(most);
  }
  return length;
}

RoundLength early_length(int32_t members, int32_t chunks) {
  const int64_t others = members - 1;
  int64_t owners = std::min<int64_t>(chunks, others);
  int64_t block = (chunks + others - 1) / others;  // the most chunks of an owner
  if (members == 3 && chunks > 2) {
    owners = 1;
    block = chunks;
  } else if (members > 3 && ((members + 1) & members) == 0) {
    // One member meets the late one once only (late_rounds.cc).
    block = std::max<int64_t>((chunks - 1 + others - 2) / (others - 1), 1);
  }
  RoundLength length;
  if (owners == others) {
    length.rounds = static_cast<int32_t>(others - 1);
    length.chunks = static_cast<int32_t>((others - 1) * block);
    return length;
  }
  // Owners are evenly spaced, so a run of neighbours has its share of them, rounded up.
  for (int64_t summed = others; summed > 1; summed = (summed + 1) / 2) {
    const int64_t sent = summed / 2;
    ++length.rounds;
    length.chunks += static_cast<int32_t>((sent * owners + others - 1) / others * block);
  }
  return length;
}

int32_t exchange_rounds(int32_t members, int32_t chunks) {
  return chunks + doublings(members) - 1 + (members == 3 && chunks > 2 ? 1 : 0);
}

std::vector<Round> rounds_among(LateRounds late_rounds, const std::vector<WorkerId>& others,
                                WorkerId late) {
  const auto member = [&](int32_t place) {
    const auto index = static_cast<size_t>(place);
    return index < others.size() ? others[index] : late;
  };
  std::vector<Round> rounds;
  rounds.reserve(late_rounds.rounds.size());
  for (std::vector<Transfer>& each : late_rounds.rounds) {
    // Freed here, so that the next round can use its memory: large groups have a million transfers.
    const std::vector<Transfer> transfers = std::move(each);
    Round& round = rounds.emplace_back();
    round.moves.reserve(transfers.size());
    for (const Transfer& of : transfers) {
      round.moves.push_back(
          {member(of.from), member(of.to), {of.chunk}, of.carries != Carries::Whole});
    }
  }
  return rounds;
}

}  // namespace tenuto
