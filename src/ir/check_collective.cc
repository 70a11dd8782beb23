// The symbolic check of a collective: what each member's chunk is made of, as a set of
// contributors. Chunks are independent, so they are simulated one after the other, and only one
// chunk's state is kept.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/text.h"
#include "ir/check.h"
#include "ir/procedure.h"
#include "ir/text.h"

namespace tenuto {

namespace {

Error fault(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

// A move, its members as indices, and its place in the collective.
struct PlacedMove {
  uint32_t from = 0, to = 0, round = 0, index = 0;
  bool add = false;
};

// A sentence about a move, or about what is missing in the end (round = kNever).
struct Fault {
  uint32_t round = kNever, index = kNever;
  std::string sentence;
};

// Simulates a collective and counts its CollectiveFacts.
class Player {
 public:
  Player(const Collective& collective, Goal goal, const std::vector<WorkerId>& owners)
      : collective_(collective), goal_(goal), owners_(owners) {}

  Result<CollectiveFacts> play() {
    if (auto error = malformed()) return *error;
    if (auto error = sort_moves()) return *error;
    for (size_t chunk = 0; chunk + 1 < first_of_.size(); ++chunk) play_chunk(chunk);
    if (first_fault_) return fault(std::move(first_fault_->sentence));
    count_scratch();
    return facts_;
  }
  // The first message that shares a port with another in its round, and the first useless put.
  const std::optional<std::string>& crowded() const { return crowded_; }
  const std::optional<Fault>& idle_put() const { return idle_put_; }

 private:
  // The most chunks of a collective with one member. For other collectives, malformed() bounds the
  // chunks by the number of moves; one member has no moves.
  static constexpr size_t kMostChunksOfOne = 1 << 20;

  size_t count() const { return collective_.members.size(); }
  size_t chunks() const { return static_cast<size_t>(collective_.chunk_count); }

  std::optional<Error> malformed() {
    for (const WorkerId member : collective_.members) {
      if (member.value < 0 || !place_.emplace(member, place_.size()).second) {
        return fault(cat("the members must be different workers, found ", member.value, " again"));
      }
    }
    if (place_.empty()) return fault("a collective needs a member");
    if (collective_.chunk_count < 1) return fault("a collective needs at least one chunk");
    if (count() == 1 && chunks() > kMostChunksOfOne) {
      return fault(cat("it has ", chunks(), " chunks of one member, which moves none: expected ",
                       kMostChunksOfOne, " at most"));
    }
    for (const Round& round : collective_.rounds) {
      facts_.moves += static_cast<int64_t>(round.moves.size());
    }
    facts_.rounds = static_cast<int32_t>(collective_.rounds.size());
    if (owners_.size() != chunks() && (goal_ != Goal::AllReduce || !owners_.empty())) {
      return fault(cat("it names ", owners_.size(), " owners: expected one for each of ", chunks(),
                       " chunks"));
    }
    for (const WorkerId owner : owners_) {
      if (place_.count(owner) == 0) return fault(cat("owner ", owner, " is not a member"));
    }
    // All members but one must receive each chunk or, in a reduce-scatter, send it. This also
    // bounds the memory of the check.
    if (static_cast<size_t>(facts_.moves) / chunks() >= count() - 1) return {};
    return fault(cat("it has ", facts_.moves, " moves; ", chunks(), " chunks and ", count(),
                     " members need at least ", chunks() * (count() - 1)));
  }

  // The moves of each chunk, in round order; counts what needs no simulation.
  std::optional<Error> sort_moves() {
    std::vector<PlacedMove> placed;
    placed.reserve(static_cast<size_t>(facts_.moves));
    first_of_.assign(chunks() + 1, 0);
    sent_.assign(count(), 0);
    received_ = sent_;
    for (size_t r = 0; r < collective_.rounds.size(); ++r) {
      const Round& round = collective_.rounds[r];
      for (size_t i = 0; i < round.moves.size(); ++i) {
        const Move& move = round.moves[i];
        const auto from = place_.find(move.from), to = place_.find(move.to);
        if (from == place_.end() || to == place_.end() || move.from == move.to ||
            move.chunk.value < 0 || move.chunk.value >= collective_.chunk_count) {
          return fault(cat("round ", r, ", move ", to_text(move), ": expected two different",
                           " members and a chunk of 0 to ", chunks() - 1));
        }
        placed.push_back({from->second, to->second, static_cast<uint32_t>(r),
                          static_cast<uint32_t>(i), move.add});
        ++first_of_[static_cast<size_t>(move.chunk.value) + 1];
        ++sent_[from->second];
        ++received_[to->second];
      }
      count_ports(r);
    }
    for (size_t chunk = 0; chunk < chunks(); ++chunk) first_of_[chunk + 1] += first_of_[chunk];
    std::vector<size_t> next(first_of_.begin(), first_of_.end() - 1);
    moves_.resize(placed.size());
    for (const PlacedMove& move : placed) {
      moves_[next[static_cast<size_t>(original(move).chunk.value)]++] = move;
    }
    facts_.most_sent = *std::max_element(sent_.begin(), sent_.end());
    facts_.most_received = *std::max_element(received_.begin(), received_.end());
    return {};
  }

  void count_ports(size_t r) {
    const Round& round = collective_.rounds[r];
    std::unordered_map<WorkerId, int32_t> out, in;
    for (size_t i = 0; i < round.moves.size(); i = message_at(round, i).end) {
      const Move& move = round.moves[i];
      ++facts_.messages;
      const int32_t sends = ++out[move.from], receives = ++in[move.to];
      facts_.port_messages = std::max({facts_.port_messages, sends, receives});
      if (crowded_ || (sends == 1 && receives == 1)) continue;
      crowded_ =
          cat("round ", r, ", move ", to_text(move), ": worker ", sends > 1 ? move.from : move.to,
              sends > 1 ? " sends" : " receives", " another message in the same round");
    }
  }

  const Move& original(const PlacedMove& move) const {
    return collective_.rounds[move.round].moves[move.index];
  }
  uint64_t* set_of(uint32_t member) { return &sets_[member * words_]; }
  void note(const PlacedMove& move, const char* sentence) {
    if (first_fault_ &&
        std::pair(first_fault_->round, first_fault_->index) <= std::pair(move.round, move.index)) {
      return;
    }
    first_fault_ = Fault{move.round, move.index,
                         cat("round ", move.round, ", move ", to_text(original(move)), sentence)};
  }

  // Sets what each member begins with, and the set that is wanted in the end.
  void begin(size_t chunk) {
    words_ = (count() + 63) / 64;
    sets_.assign(count() * words_, 0);
    wanted_.assign(words_, 0);
    owner_ = owners_.empty() ? kNever : place_.at(owners_[chunk]);
    for (uint32_t member = 0; member < count(); ++member) {
      if (goal_ == Goal::AllGather && member != owner_) continue;
      set_of(member)[member / 64] |= uint64_t{1} << (member % 64);
      wanted_[member / 64] |= uint64_t{1} << (member % 64);
    }
    put_in_.assign(count(), kNever);
    added_in_ = sent_in_ = put_in_;
  }

  void play_chunk(size_t chunk) {
    begin(chunk);
    for (size_t first = first_of_[chunk], end = first; first < first_of_[chunk + 1]; first = end) {
      while (end < first_of_[chunk + 1] && moves_[end].round == moves_[first].round) ++end;
      carried_.resize((end - first) * words_);
      for (size_t i = first; i < end; ++i) {
        const uint64_t* source = set_of(moves_[i].from);
        std::copy(source, source + words_, &carried_[(i - first) * words_]);
        sent_in_[moves_[i].from] = moves_[i].round;
      }
      for (size_t i = first; i < end; ++i) arrive(moves_[i], &carried_[(i - first) * words_]);
    }
    for (uint32_t member = 0; member < count(); ++member) finish(chunk, member);
  }

  void arrive(const PlacedMove& move, const uint64_t* came) {
    const bool with_put = put_in_[move.to] == move.round;
    if (with_put || (!move.add && added_in_[move.to] == move.round)) {
      return note(move, ": another move of the round puts something in the same place");
    }
    (move.add ? added_in_ : put_in_)[move.to] = move.round;
    uint64_t* target = set_of(move.to);
    const bool nothing = std::all_of(came, came + words_, [](uint64_t word) { return word == 0; });
    if (nothing) return note(move, ": the sender has nothing of this chunk yet");
    if (move.add) {
      if (std::all_of(target, target + words_, [](uint64_t word) { return word == 0; })) {
        return note(move, ": it adds to what is not there");
      }
      for (size_t i = 0; i < words_; ++i) {
        if ((target[i] & came[i]) != 0) {
          return note(move, ": it adds a contribution that is in the sum already");
        }
        target[i] |= came[i];
      }
      return;
    }
    if (sent_in_[move.to] == move.round) swapped_.push_back({move.round, move.to});
    const bool useful = std::equal(came, came + words_, wanted_.begin()) &&
                        !std::equal(target, target + words_, wanted_.begin());
    if (!useful) {
      ++facts_.idle_puts;
      if (!idle_put_ ||
          std::pair(idle_put_->round, idle_put_->index) > std::pair(move.round, move.index)) {
        idle_put_ = Fault{move.round, move.index,
                          cat("round ", move.round, ", move ", to_text(original(move)),
                              ": it puts what is not the whole, or is there already")};
      }
    }
    std::copy(came, came + words_, target);
  }

  void finish(size_t chunk, uint32_t member) {
    if (goal_ == Goal::ReduceScatter && member != owner_) return;
    const uint64_t* set = set_of(member);
    if (std::equal(set, set + words_, wanted_.begin())) return;
    // A fault of a move is reported first; else the missing chunk of the lowest worker.
    const auto id = static_cast<uint32_t>(collective_.members[member].value);
    if (first_fault_ && (first_fault_->round != kNever || first_fault_->index <= id)) return;
    const auto bits = [&](const uint64_t* from) {
      size_t sum = 0;
      for (size_t i = 0; i < words_; ++i) sum += static_cast<size_t>(std::popcount(from[i]));
      return sum;
    };
    first_fault_ = Fault{kNever, id,
                         cat("worker ", id, " ends with ", bits(set), " of ", bits(wanted_.data()),
                             " contributions in chunk ", chunk, ": expected all")};
  }

  // An added chunk is received into scratch, and so is one that replaces a chunk being sent.
  void count_scratch() {
    std::sort(swapped_.begin(), swapped_.end());
    auto swapped = swapped_.begin();
    std::vector<int32_t> landing(count(), 0);
    for (uint32_t r = 0; r < collective_.rounds.size(); ++r) {
      const std::vector<Move>& moves = collective_.rounds[r].moves;
      for (const Move& move : moves) landing[place_.at(move.to)] = 0;
      const auto land = [&](uint32_t member) {
        facts_.peak_scratch = std::max(facts_.peak_scratch, ++landing[member]);
      };
      for (const Move& move : moves) {
        if (move.add) land(place_.at(move.to));
      }
      for (; swapped != swapped_.end() && swapped->first == r; ++swapped) land(swapped->second);
    }
  }

  const Collective& collective_;
  const Goal goal_;
  const std::vector<WorkerId>& owners_;
  std::unordered_map<WorkerId, uint32_t> place_;
  std::vector<PlacedMove> moves_;  // by chunk, then in order
  std::vector<size_t> first_of_;   // [chunk] into moves_, and the end
  std::vector<int64_t> sent_, received_;
  CollectiveFacts facts_;
  std::optional<Fault> first_fault_, idle_put_;
  std::optional<std::string> crowded_;
  std::vector<std::pair<uint32_t, uint32_t>> swapped_;  // round, member
  // The state of the chunk that is simulated now.
  size_t words_ = 0;
  uint32_t owner_ = kNever;
  std::vector<uint64_t> sets_, wanted_, carried_;
  std::vector<uint32_t> put_in_, added_in_, sent_in_;  // [member] the last round with a put to it,
                                                       // an add to it, a send from it
};

}  // namespace

Result<CollectiveFacts> examine(const Collective& collective, Goal goal,
                                const std::vector<WorkerId>& owners) {
  return Player(collective, goal, owners).play();
}

Status check(const Collective& collective) {
  const auto facts = examine(collective);
  if (!facts.ok()) return facts.error();
  return ok();
}

Result<CollectiveFacts> check(const Procedure& procedure) {
  Player player(procedure.collective, procedure.goal, procedure.owners);
  auto facts = player.play();
  if (!facts.ok()) return facts;
  if (player.crowded()) return fault(*player.crowded());
  if (player.idle_put()) return fault(player.idle_put()->sentence);
  return facts;
}

}  // namespace tenuto
