#include "collective/complete.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/text.h"
#include "collective/pack.h"
#include "collective/slice.h"

namespace tenuto {

namespace {

// Choices that the search for a cover may try for one chunk before it gives up.
constexpr int32_t kMostChoices = 20'000;

// A sum that is to be part of another one.
struct Piece {
  int32_t place = 0;
  bool own = false;  // the holder's own input, not what is in the total
  MemberSet members;
};

// Finds disjoint pieces whose members together are the survivors.
class Cover {
 public:
  Cover(const MemberSet& alive, std::vector<Piece> pieces)
      : alive_(alive), pieces_(std::move(pieces)) {}

  // First takes the largest pieces that fit, own inputs last; if that fails, searches all choices.
  std::optional<std::vector<Piece>> find(const MemberSet& nobody) {
    MemberSet covered = nobody;
    std::vector<Piece> taken;
    for (const Piece& piece : pieces_) {
      if (covered.meets(piece.members)) continue;
      covered |= piece.members;
      taken.push_back(piece);
    }
    if (covered == alive_) return taken;
    taken.clear();
    left_ = kMostChoices;
    if (search(nobody, taken)) return taken;
    return {};
  }

 private:
  bool search(const MemberSet& covered, std::vector<Piece>& taken) {
    if (covered == alive_) return true;
    int32_t next = 0;
    while (!alive_.has(next) || covered.has(next)) ++next;
    for (const Piece& piece : pieces_) {
      if (!piece.members.has(next) || covered.meets(piece.members)) continue;
      if (--left_ < 0) return false;
      MemberSet with = covered;
      with |= piece.members;
      taken.push_back(piece);
      if (search(with, taken)) return true;
      taken.pop_back();
    }
    return false;
  }

  const MemberSet& alive_;
  const std::vector<Piece> pieces_;
  int32_t left_ = 0;
};

// Makes one completion.
class Completer {
 public:
  Completer(const std::vector<WorkerId>& members, const MemberSet& alive,
            std::span<const MemberHolding> holdings, int32_t chunks, int64_t elements)
      : members_(members), alive_(alive), holdings_(holdings), chunks_(chunks) {
    for (int32_t place = 0; place < count(); ++place) {
      if (!alive.has(place)) continue;
      live_.push_back(place);
      made_.collective.members.push_back(members[static_cast<size_t>(place)]);
    }
    CHECK(!live_.empty() && chunks > 0, "a completion needs a survivor and a chunk");
    made_.collective.chunk_count = chunks;
    made_.contributors = MemberSet(count());
    made_.summed.resize(static_cast<size_t>(chunks));
    made_.begins.assign(members.size(), std::vector<ChunkBegin>(static_cast<size_t>(chunks)));
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      if (!chunk_range(elements, chunk, chunks).empty()) filled_.push_back(chunk);
    }
  }

  Completion make() && {
    if (ended_differently()) {
      made_.reason = "members have completed the call with different sums";
      made_.begins.clear();
      return std::move(made_);
    }
    if (const auto there = whole()) {
      made_.contributors = *there;
      made_.whole = true;
      made_.reason = cat("each chunk of the sum of ", there->count(), " members is at a survivor");
      for (const int32_t chunk : filled_) spread_whole(chunk);
    } else if (const int32_t lacking = gather_all(); lacking >= 0) {
      made_.reason = cat("chunk ", lacking,
                         " cannot be completed from what the survivors have: inputs "
                         "that are not kept are in sums with members that died");
      made_.begins.clear();
      return std::move(made_);
    } else {
      made_.contributors = alive_;
      made_.reason = cat("the sum of the ", live_.size(), " survivors");
    }
    made_.collective.rounds = pack_rounds(in_steps(), chunks_);
    return std::move(made_);
  }

 private:
  int32_t count() const { return static_cast<int32_t>(members_.size()); }
  const MemberHolding& at(int32_t place) const { return holdings_[static_cast<size_t>(place)]; }
  const MemberSet& total(int32_t place, int32_t chunk) const {
    const MemberHolding& holding = at(place);
    return holding.ended ? holding.contributors : holding.chunks[static_cast<size_t>(chunk)].total;
  }
  ChunkBegin& begin(int32_t place, int32_t chunk) {
    return made_.begins[static_cast<size_t>(place)][static_cast<size_t>(chunk)];
  }

  // The first step of every chunk, then the second of every chunk, and so on.
  std::vector<Move> in_steps() const {
    std::vector<Move> moves;
    for (size_t step = 0;; ++step) {
      const size_t before = moves.size();
      for (const auto& [chunk, steps] : steps_) {
        if (step < steps.size()) moves.push_back(steps[step]);
      }
      if (moves.size() == before) return moves;
    }
  }

  bool ended_differently() const {
    const MemberHolding* first = nullptr;
    for (const int32_t place : live_) {
      if (!at(place).ended) continue;
      if (first == nullptr) first = &at(place);
      if (first->contributors != at(place).contributors) return true;
    }
    return false;
  }

  // Of the sums whose chunks are all at survivors, the one over the most members.
  std::optional<MemberSet> whole() const {
    std::set<MemberSet> possible;
    for (const int32_t place : live_) {
      if (at(place).ended) return at(place).contributors;
      if (filled_.empty()) continue;
      const MemberSet& sum = total(place, filled_.front());
      if (sum.contains(alive_)) possible.insert(sum);
    }
    std::optional<MemberSet> best;
    for (const MemberSet& sum : possible) {
      if (best && best->count() >= sum.count()) continue;
      const bool here = std::all_of(filled_.begin(), filled_.end(), [&](int32_t chunk) {
        return std::any_of(live_.begin(), live_.end(),
                           [&](int32_t place) { return total(place, chunk) == sum; });
      });
      if (here) best = sum;
    }
    return best;
  }

  void add_move(int32_t from, int32_t to, int32_t chunk, bool add) {
    steps_[chunk].push_back(
        {members_[static_cast<size_t>(from)], members_[static_cast<size_t>(to)], {chunk}, add});
  }

  void spread_whole(int32_t chunk) {
    std::vector<bool> has(live_.size());
    for (size_t i = 0; i < live_.size(); ++i) {
      has[i] = total(live_[i], chunk) == made_.contributors;
      if (has[i]) begin(live_[i], chunk) = ChunkBegin::Total;
    }
    spread(chunk, has);
  }

  // Sends a chunk from the survivors that have it whole to the others.
  void spread(int32_t chunk, std::vector<bool> has) {
    const size_t size = live_.size();
    if (filled_.size() >= size) {
      const auto first = static_cast<size_t>(std::find(has.begin(), has.end(), true) - has.begin());
      for (size_t i = 1; i < size; ++i) {
        const size_t to = (first + i) % size, from = (to + size - 1) % size;
        if (!has[to]) add_move(live_[from], live_[to], chunk, false);
      }
      return;
    }
    std::vector<int32_t> holders, others;
    for (size_t i = 0; i < size; ++i) (has[i] ? holders : others).push_back(live_[i]);
    for (size_t done = 0, giver = 0, round = holders.size(); done < others.size(); ++done) {
      if (giver == round) {
        giver = 0;
        round = holders.size();
      }
      add_move(holders[giver++], others[done], chunk, false);
      holders.push_back(others[done]);
    }
  }

  // The sums of a chunk that may be parts of the survivors' sum, the largest first, own inputs
  // last. Among equals each chunk begins with another holder, so that holders share the work.
  std::vector<Piece> pieces(int32_t chunk) const {
    std::vector<Piece> found;
    for (const int32_t place : live_) {
      const ChunkHolding& holding = at(place).chunks[static_cast<size_t>(chunk)];
      if (!holding.total.empty() && alive_.contains(holding.total) && holding.total.has(place)) {
        found.push_back({place, false, holding.total});
      }
      if (!holding.own) continue;
      found.push_back({place, true, MemberSet(count())});
      found.back().members.add(place);
    }
    const auto rank = [&](const Piece& piece) {
      const int32_t turn = (piece.place + count() - chunk % count()) % count();
      return std::tuple(-piece.members.count(), piece.own, turn);
    };
    std::sort(found.begin(), found.end(),
              [&](const Piece& left, const Piece& right) { return rank(left) < rank(right); });
    return found;
  }

  // Sums up every chunk at one survivor and spreads it. Returns the first chunk for which that is
  // not possible, or -1.
  int32_t gather_all() {
    for (const int32_t chunk : filled_) {
      auto found = Cover(alive_, pieces(chunk)).find(MemberSet(count()));
      if (!found) return chunk;
      for (const Piece& piece : *found) {
        begin(piece.place, chunk) = piece.own ? ChunkBegin::Own : ChunkBegin::Total;
      }
      made_.summed[static_cast<size_t>(chunk)] = found->size() > 1 || found->front().own;
      for (size_t size = found->size(); size > 1;) {
        const size_t kept = (size + 1) / 2;
        for (size_t i = kept; i < size; ++i) {
          add_move((*found)[i].place, (*found)[i - kept].place, chunk, true);
        }
        size = kept;
      }
      std::vector<bool> has(live_.size());
      for (size_t i = 0; i < live_.size(); ++i) has[i] = live_[i] == found->front().place;
      spread(chunk, has);
    }
    return -1;
  }

  const std::vector<WorkerId>& members_;
  const MemberSet& alive_;
  const std::span<const MemberHolding> holdings_;
  const int32_t chunks_;
  std::vector<int32_t> live_;                   // places of the survivors
  std::vector<int32_t> filled_;                 // chunks that have elements
  std::map<int32_t, std::vector<Move>> steps_;  // of each chunk, one after the other
  Completion made_;
};

}  // namespace

ChunkHistory::ChunkHistory(const Collective& collective)
    : members_(static_cast<int32_t>(collective.members.size())), chunks_(collective.chunk_count) {
  states_.resize(static_cast<size_t>(members_) * static_cast<size_t>(chunks_));
  for (int32_t place = 0; place < members_; ++place) {
    State begin{MemberSet(members_), false};
    begin.total.add(place);
    for (int32_t chunk = 0; chunk < chunks_; ++chunk) {
      states_[static_cast<size_t>(place * chunks_ + chunk)].push_back(begin);
    }
  }
  play(collective, collective.members);
}

ChunkHistory::ChunkHistory(const Completion& completion, const std::vector<WorkerId>& members,
                           std::span<const MemberHolding> holdings)
    : members_(static_cast<int32_t>(members.size())), chunks_(completion.collective.chunk_count) {
  states_.resize(static_cast<size_t>(members_) * static_cast<size_t>(chunks_));
  for (int32_t place = 0; place < members_; ++place) {
    const MemberHolding& holding = holdings[static_cast<size_t>(place)];
    for (int32_t chunk = 0; chunk < chunks_; ++chunk) {
      State begin{MemberSet(members_), false};
      switch (completion.begins[static_cast<size_t>(place)][static_cast<size_t>(chunk)]) {
        case ChunkBegin::Nothing:
          break;
        case ChunkBegin::Own:
          begin.total.add(place);
          break;
        case ChunkBegin::Total:
          begin.total = holding.ended ? holding.contributors
                                      : holding.chunks[static_cast<size_t>(chunk)].total;
      }
      states_[static_cast<size_t>(place * chunks_ + chunk)].push_back(std::move(begin));
    }
  }
  play(completion.collective, members);
}

void ChunkHistory::play(const Collective& collective, const std::vector<WorkerId>& members) {
  std::map<WorkerId, int32_t> places;
  for (const WorkerId member : members) {
    places.emplace(member, static_cast<int32_t>(places.size()));
  }
  const auto at = [&](WorkerId member, ChunkId chunk) -> std::vector<State>& {
    return states_[static_cast<size_t>(places.at(member) * chunks_ + chunk.value)];
  };
  std::vector<MemberSet> carried;
  for (const Round& round : collective.rounds) {
    carried.clear();
    for (const Move& move : round.moves) {
      std::vector<State>& from = at(move.from, move.chunk);
      from.push_back(State(from.back()));
      carried.push_back(from.back().total);
    }
    for (size_t i = 0; i < round.moves.size(); ++i) {
      const Move& move = round.moves[i];
      std::vector<State>& to = at(move.to, move.chunk);
      State after{carried[i], true};
      if (move.add) after.total |= to.back().total;
      to.push_back(std::move(after));
    }
  }
}

int32_t ChunkHistory::length(int32_t place, int32_t chunk) const {
  return static_cast<int32_t>(states(place, chunk).size()) - 1;
}

ChunkHolding ChunkHistory::holding(int32_t place, int32_t chunk, ChunkProgress progress, bool keeps,
                                   const ChunkHolding& before) const {
  CHECK(progress.over >= 0 && progress.over <= length(place, chunk),
        cat(progress.over, " of ", length(place, chunk), " sends and receives are over"));
  const State& state = states(place, chunk)[static_cast<size_t>(progress.over)];
  if (progress.torn) return {keeps, MemberSet(members_)};
  return state.received ? ChunkHolding{keeps, state.total} : before;
}

Completion complete(const std::vector<WorkerId>& members, const MemberSet& alive,
                    std::span<const MemberHolding> holdings, int32_t chunks, int64_t elements) {
  return Completer(members, alive, holdings, chunks, elements).make();
}

}  // namespace tenuto
