#include "collective/late_rounds.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "collective/algorithm.h"

namespace tenuto {

namespace {

constexpr int32_t kNobody = -1;
constexpr int32_t kNoMeeting = std::numeric_limits<int32_t>::max();

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One node of the scheme: a member, or a pair in which one member sends and the other one takes. A
// round later the taker gives the sender the chunk that only the taker has; when the group turns to
// another chunk, the two swap roles.
struct Group {
  int32_t sender = 0, taker = 0;  // the same member in a group of one
  bool has_roles = true;          // false: a pair that has nothing yet, either may be the sender
  int32_t active = 0;             // the chunk that the group spreads; below 0: none exists yet
  std::vector<int32_t> meetings;  // rounds in which it meets the late member, next one last
  int32_t last_met = kNobody;     // which of the pair met it; kNobody after every second meeting

  bool pair() const { return sender != taker; }
  int32_t next_meeting() const { return meetings.empty() ? kNoMeeting : meetings.back(); }
};

// The scheme for every count of members but 2^L - 1.
class GroupScheme {
 public:
  GroupScheme(int32_t members, int32_t chunks) : late_(members - 1), chunks_(chunks) {
    const int32_t others = members - 1;
    const int32_t levels = doublings(members);
    depth_ = members == int32_t{1} << levels ? levels : levels - 1;
    const int32_t group_count = (int32_t{1} << depth_) - 1;
    pairs_ = others - group_count;
    for (int32_t g = 0, member = 0; g < group_count; ++g) {
      Group& group = groups_.emplace_back();
      group.sender = group.taker = member++;
      if (g < pairs_) {
        group.sender = member++;
        group.has_roles = false;
      }
    }
    arrange_meetings(others);
    has_.assign(at(members), std::vector<bool>(at(chunks), false));
    ahead_.resize(at(members));
    partner_.assign(at(members), kNobody);
    for (const Group& group : groups_) {
      if (!group.pair()) continue;
      partner_[at(group.sender)] = group.taker;
      partner_[at(group.taker)] = group.sender;
    }
    by_meeting_.resize(groups_.size());
    std::iota(by_meeting_.begin(), by_meeting_.end(), 0);
    std::sort(by_meeting_.begin(), by_meeting_.end(), Sooner{groups_});
    result_.owners.assign(at(chunks), kNobody);
    result_.rounds.reserve(at(chunks + depth_));
    offers_.resize(at(depth_ + 1));
  }

  Result<LateRounds> make() {
    begin();
    for (int32_t t = 0; t < chunks_ + depth_ - 1; ++t) {
      if (!play(t)) {
        return Error{Code::Infeasible, Reach::Call,
                     cat("no place for a member in round ", t, " of ", late_ + 1, " members and ",
                         chunks_, " chunks: take another count of chunks")};
      }
    }
    if (pairs_ > 0) close();
    return std::move(result_);
  }

 private:
  // In a period the late member meets the pairs, some singles, the pairs again, the other singles.
  // So a pair's two meetings are far enough apart for its members to take turns, and the last
  // meeting is with a single, which can answer at once. The meeting for the last chunk is the last
  // one of a period.
  void arrange_meetings(int32_t others) {
    const int32_t group_count = static_cast<int32_t>(groups_.size());
    int32_t between = 0;
    if (pairs_ > 0 && pairs_ < depth_) between = depth_ - pairs_;
    if (pairs_ == depth_ + 1) between = 1;
    std::vector<int32_t> period;
    for (int32_t g = 0; g < pairs_; ++g) period.push_back(g);
    for (int32_t g = pairs_; g < pairs_ + between; ++g) period.push_back(g);
    for (int32_t g = 0; g < pairs_; ++g) period.push_back(g);
    for (int32_t g = pairs_ + between; g < group_count; ++g) period.push_back(g);
    CHECK(static_cast<int32_t>(period.size()) == others, "a meeting for each member");
    const int32_t skipped = (others - chunks_ % others) % others;
    for (int32_t t = 0; t < chunks_; ++t) meets_.push_back(period[at((skipped + t) % others)]);
    for (int32_t t = chunks_ - 1; t >= 0; --t) groups_[at(meets_[at(t)])].meetings.push_back(t);
  }

  // Starts the groups in the middle of the scheme, as if they spread chunks of earlier rounds;
  // those chunks have numbers below 0 and do not exist.
  void begin() {
    size_t place = 0;
    for (int32_t level = depth_; level >= 1; --level) {
      for (int32_t i = 0; i < int32_t{1} << (level - 1); ++i) {
        groups_[at(by_meeting_[place++])].active = -level;
      }
    }
  }

  bool play(int32_t t) {
    const int32_t oldest = t - depth_;
    old_.clear();
    young_.clear();
    for (int32_t g = 0; g < static_cast<int32_t>(groups_.size()); ++g) {
      if (groups_[at(g)].active != oldest) young_.push_back(g);
    }
    for (const int32_t g : by_meeting_) {
      if (groups_[at(g)].active == oldest) old_.push_back(g);
    }
    moved_.clear();
    const int32_t met = t < chunks_ ? meets_[at(t)] : kNobody;
    if (met != kNobody) {
      const auto place = std::find(old_.begin(), old_.end(), met);
      if (place == old_.end()) return false;
      old_.erase(place);
    }
    for (int32_t g = 0; g < pairs_; ++g) {
      if (g != met && groups_[at(g)].has_roles) hand_over(groups_[at(g)]);
    }
    if (met != kNobody) {
      meet(groups_[at(met)], t, oldest);
      count_meeting(met);
    }
    if (old_.size() != young_.size() + (t >= chunks_ ? 1 : 0) || !match(t, oldest)) return false;
    end_round();
    return true;
  }

  // The taker of a pair gives the sender the chunk that only the taker has.
  void hand_over(const Group& group) {
    if (!ahead_[at(group.taker)].empty()) {
      send(group.taker, group.sender, ahead_[at(group.taker)].front());
    }
  }

  void meet(Group& group, int32_t t, int32_t oldest) {
    const int32_t owner = group.taker;
    send(late_, owner, t, Carries::Raw);
    result_.owners[at(t)] = owner;
    int32_t answer = t, from = owner;
    if (group.pair() && group.has_roles && !ahead_[at(owner)].empty()) {
      // The owner's port sends what its partner lacks. So the partner answers the late member, with
      // a chunk of earlier rounds that the late member still lacks.
      hand_over(group);
      from = group.sender;
      answer = first_lacking(from, oldest);
    } else if (!group.pair() && lacking(oldest) && t < chunks_ - 1) {
      answer = oldest;
    }
    if (answer != kNobody) {
      send(from, late_, answer, answer == t ? Carries::Part : Carries::Whole);
    }
    if (answer != t) now_lacking_ = t;
    if (group.pair()) group.last_met = group.last_met == kNobody ? owner : kNobody;
    turn(group, t, owner);
  }

  // The group has met the late member: sorts it in by its next meeting.
  void count_meeting(int32_t g) {
    by_meeting_.erase(std::find(by_meeting_.begin(), by_meeting_.end(), g));
    groups_[at(g)].meetings.pop_back();
    by_meeting_.insert(std::lower_bound(by_meeting_.begin(), by_meeting_.end(), g, Sooner{groups_}),
                       g);
  }

  // From the next round on the group spreads `chunk`, which `member` has.
  void turn(Group& group, int32_t chunk, int32_t member) {
    turned_.push_back({&group, chunk, member});
  }

  // Gives each group that spreads the oldest chunk a younger chunk to spread next: one that will be
  // the oldest no later than at the group's next meeting. False if there is none.
  bool match(int32_t t, int32_t oldest) {
    for (std::vector<int32_t>& offers : offers_) offers.clear();
    for (const int32_t g : young_) {
      offers_[at(groups_[at(g)].active - oldest)].push_back(g);
    }
    if (t >= chunks_) offers_[at(chunks_ - 1 - oldest)].push_back(kNobody);  // the late one
    std::vector<size_t> taken(offers_.size(), 0);
    for (const int32_t g : old_) {
      Group& group = groups_[at(g)];
      const int32_t meeting = group.next_meeting();
      const int32_t left = meeting == kNoMeeting ? kNoMeeting : meeting - t;
      int32_t life = 1;
      while (life <= depth_ &&
             (taken[at(life)] == offers_[at(life)].size() || spoils(group, life, left))) {
        ++life;
      }
      if (life > std::min(depth_, left)) return false;
      exchange(group, offers_[at(life)][taken[at(life)]++], oldest + life, oldest);
    }
    return true;
  }

  // A pair swaps roles with every chunk, and at its second meeting the taker must be the member
  // that has not met the late one. True when the roles would be wrong at that meeting, `left`
  // rounds from now, if the pair's next chunk becomes the oldest in `life` rounds.
  static bool spoils(const Group& group, int32_t life, int32_t left) {
    if (!group.pair() || group.last_met == kNobody || left == kNoMeeting) return false;
    const int32_t other = group.last_met == group.sender ? group.taker : group.sender;
    return life == (other == group.taker ? left : left - 1);
  }

  void exchange(Group& group, int32_t giver, int32_t chunk, int32_t oldest) {
    const int32_t member = group.taker;
    if (giver == kNobody) {
      const int32_t lacks = first_lacking(group.sender, oldest);
      if (lacks != kNobody) send(group.sender, late_, lacks);
      send(late_, member, chunk);
    } else {
      const Group& other = groups_[at(giver)];
      if (oldest >= 0) send(group.sender, other.taker, oldest);
      if (chunk >= 0) send(other.sender, member, chunk);
    }
    turn(group, chunk, chunk >= 0 ? member : kNobody);
  }

  bool lacking(int32_t chunk) const {
    return std::find(lacking_.begin(), lacking_.end(), chunk) != lacking_.end();
  }
  // The chunk that `member` gives the late one: `first` if the late one lacks it, else the oldest
  // that the late one lacks and `member` has.
  int32_t first_lacking(int32_t member, int32_t first) const {
    if (lacking(first)) return first;
    for (const int32_t chunk : lacking_) {
      if (has_[at(member)][at(chunk)]) return chunk;
    }
    return kNobody;
  }

  void send(int32_t from, int32_t to, int32_t chunk, Carries carries = Carries::Whole) {
    moved_.push_back({from, to, chunk, carries});
  }

  // Applies what was decided in the round, all from the state before it.
  void end_round() {
    for (const Transfer& move : moved_) receive(move);
    if (now_lacking_ != kNobody) lacking_.push_back(now_lacking_);
    now_lacking_ = kNobody;
    for (const Turn& turn : turned_) {
      Group& group = *turn.group;
      group.active = turn.chunk;
      if (!group.pair() || turn.member == kNobody) continue;
      if (group.taker == turn.member) std::swap(group.taker, group.sender);
      group.has_roles = true;
    }
    turned_.clear();
    result_.rounds.push_back(moved_);
  }

  void receive(const Transfer& move) {
    has_[at(move.to)][at(move.chunk)] = true;
    if (move.to == late_) {
      lacking_.erase(std::remove(lacking_.begin(), lacking_.end(), move.chunk), lacking_.end());
      return;
    }
    const int32_t partner = partner_[at(move.to)];
    if (partner == kNobody) return;
    std::vector<int32_t>& ahead = ahead_[at(partner)];
    const auto place = std::find(ahead.begin(), ahead.end(), move.chunk);
    if (place != ahead.end()) {
      ahead.erase(place);
    } else {
      ahead_[at(move.to)].push_back(move.chunk);
    }
  }

  // The last round: the members of each pair give each other what only one of them has.
  void close() {
    moved_.clear();
    for (const Group& group : groups_) {
      if (!group.pair()) continue;
      for (const auto& [from, to] :
           {std::pair(group.sender, group.taker), std::pair(group.taker, group.sender)}) {
        if (!ahead_[at(from)].empty()) send(from, to, ahead_[at(from)].front());
      }
    }
    if (!lacking_.empty()) send(groups_.back().sender, late_, lacking_.front());
    result_.rounds.push_back(moved_);
  }

  // The order of groups by their next meetings; by their numbers where those are the same.
  struct Sooner {
    const std::vector<Group>& groups;
    bool operator()(int32_t left, int32_t right) const {
      const int32_t one = groups[at(left)].next_meeting(), other = groups[at(right)].next_meeting();
      return one != other ? one < other : left < right;
    }
  };

  struct Turn {
    Group* group;
    int32_t chunk, member;
  };

  const int32_t late_, chunks_;
  int32_t depth_ = 0;  // chunks that are spread at once
  int32_t pairs_ = 0;  // the first groups
  std::vector<Group> groups_;
  std::vector<int32_t> meets_;               // [round] the group that meets the late member
  std::vector<std::vector<bool>> has_;       // [member][chunk] the whole sum
  std::vector<std::vector<int32_t>> ahead_;  // [member] what its partner lacks
  std::vector<int32_t> partner_;
  std::vector<int32_t>
      lacking_;  // chunks that the late member has sent and not got back whole, old first
  int32_t now_lacking_ = kNobody;
  std::vector<int32_t> by_meeting_;           // groups, by the next meeting of each
  std::vector<int32_t> old_, young_;          // groups of this round: by meeting, by number
  std::vector<std::vector<int32_t>> offers_;  // [rounds until their chunk is oldest] groups
  std::vector<Transfer> moved_;
  std::vector<Turn> turned_;
  LateRounds result_;
};

// The scheme for 2^L - 1 members, L >= 3. It is the scheme for 2^L with one member missing: member
// 0, which meets the late one first and never again, acts as two nodes, a holder of the oldest
// chunk and a holder of a younger one.
class DoubleScheme {
 public:
  DoubleScheme(int32_t members, int32_t chunks)
      : late_(members - 1), chunks_(chunks), levels_(doublings(members)) {
    active_.assign(at(late_), 0);
    next_.resize(at(late_));
    std::iota(next_.begin(), next_.end(), 0);
    meets_.push_back(0);
    for (int32_t t = 1; t < chunks; ++t) meets_.push_back(1 + (t - 1) % (late_ - 1));
    int32_t place = 1;
    for (int32_t level = levels_ - 1; level >= 1; --level) {
      // The oldest chunk has one holder fewer than a power of two: member 0 replaces that one.
      const int32_t holders = (int32_t{1} << level) - (level == levels_ - 1 ? 1 : 0);
      for (int32_t i = 0; i < holders; ++i) active_[at(place++)] = -level;
    }
    CHECK(place == late_, "a chunk for each member");
  }

  Result<LateRounds> make() {
    result_.owners = meets_;
    result_.rounds.push_back({{late_, 0, 0, Carries::Raw}, {0, late_, 0, Carries::Part}});
    for (int32_t t = 1; t < chunks_ + levels_ - 1; ++t) {
      if (!play(t)) {
        return Error{Code::Infeasible, Reach::Call,
                     cat("no place for a member in round ", t, " of ", late_ + 1, " members")};
      }
    }
    return std::move(result_);
  }

 private:
  bool play(int32_t t) {
    const int32_t oldest = t - levels_;
    std::vector<int32_t> old, young;
    for (int32_t member = 1; member < late_; ++member) {
      (active_[at(member)] == oldest ? old : young).push_back(member);
    }
    moved_.clear();
    const int32_t met = t < chunks_ ? meets_[at(t)] : kNobody;
    if (met != kNobody) {
      const auto place = std::find(old.begin(), old.end(), met);
      if (place == old.end()) return false;
      old.erase(place);
      moved_.push_back({late_, met, t, Carries::Raw});
      moved_.push_back({met, late_, t, Carries::Part});
    }
    if (old.size() < young.size()) return false;
    for (size_t i = 0; i < young.size(); ++i) send(old[i], young[i], oldest);
    // Members that have a younger chunk offer it, the oldest first.
    std::vector<std::pair<int32_t, int32_t>> offers;  // chunk, member
    for (const int32_t member : young) offers.push_back({active_[at(member)], member});
    offers.push_back({active_[0], 0});
    if (t >= chunks_) offers.push_back({chunks_ - 1, late_});
    std::sort(offers.begin(), offers.end());
    if (!serve_double(offers, oldest)) return false;
    if (old.size() > offers.size()) return false;
    std::vector<std::pair<int32_t, int32_t>> takers;  // next meeting, member
    takers.reserve(old.size());
    for (const int32_t member : old) takers.push_back({next_[at(member)], member});
    std::sort(takers.begin(), takers.end());
    for (size_t i = 0; i < takers.size(); ++i) {
      const auto [chunk, giver] = offers[i];
      send(giver, takers[i].second, chunk);
      active_[at(takers[i].second)] = chunk;
    }
    if (met != kNobody) {
      active_[at(met)] = t;
      next_[at(met)] = t + late_ - 1;
    }
    result_.rounds.push_back(moved_);
    return true;
  }

  // Member 0 needs the chunk that is the oldest in the next round. If its younger chunk is that one
  // already, it takes a still younger one; in the last round there is none.
  bool serve_double(std::vector<std::pair<int32_t, int32_t>>& offers, int32_t oldest) {
    const bool keeps = active_[0] > oldest + 1;
    const auto place = std::find_if(offers.begin(), offers.end(), [&](const auto& offer) {
      if (offer.second == 0) return false;
      return keeps ? offer.first == oldest + 1 : offer.first > oldest + 1;
    });
    if (place == offers.end()) return !keeps && oldest + 2 == chunks_;
    send(place->second, 0, place->first);
    if (!keeps) active_[0] = place->first;
    offers.erase(place);
    return true;
  }

  void send(int32_t from, int32_t to, int32_t chunk) {
    if (chunk >= 0) moved_.push_back({from, to, chunk, Carries::Whole});
  }

  const int32_t late_, chunks_, levels_;
  std::vector<int32_t> active_, meets_;
  std::vector<int32_t> next_;  // [member] round of its next meeting if chunks never ended
  std::vector<Transfer> moved_;
  LateRounds result_;
};

// Three members: for two chunks the late member meets each of the others once; more chunks go round
// all three.
LateRounds three_rounds(int32_t chunks) {
  LateRounds result;
  if (chunks == 1) {
    result.rounds = {{{2, 0, 0, Carries::Raw}, {0, 2, 0, Carries::Part}}, {{2, 1, 0}}};
    result.owners = {0};
    return result;
  }
  if (chunks == 2) {
    result.rounds = {{{2, 0, 0, Carries::Raw}, {0, 2, 0, Carries::Part}},
                     {{2, 1, 1, Carries::Raw}, {1, 2, 1, Carries::Part}},
                     {{0, 1, 0}, {1, 0, 1}}};
    result.owners = {0, 1};
    return result;
  }
  result.rounds.resize(at(chunks) + 2);
  result.owners.assign(at(chunks), 1);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    result.rounds[at(chunk)].push_back({2, 1, chunk, Carries::Raw});
    result.rounds[at(chunk) + 1].push_back({1, 0, chunk});
    result.rounds[at(chunk) + 2].push_back({0, 2, chunk});
  }
  return result;
}

// Two members: each chunk is exchanged.
LateRounds two_rounds(int32_t chunks) {
  LateRounds result;
  result.owners.assign(at(chunks), 0);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    result.rounds.push_back({{1, 0, chunk, Carries::Raw}, {0, 1, chunk, Carries::Part}});
  }
  return result;
}

}  // namespace

int32_t late_chunks(int32_t members, int32_t chunks) {
  return members == 6 && chunks > 5 ? (chunks + 4) / 5 * 5 : chunks;
}

Result<LateRounds> late_rounds(int32_t members, int32_t chunks) {
  CHECK(members >= 2 && chunks >= 1, "two members and a chunk at least");
  chunks = late_chunks(members, chunks);
  if (members == 2) return two_rounds(chunks);
  if (members == 3) return three_rounds(chunks);
  if (((members + 1) & members) == 0) return DoubleScheme(members, chunks).make();
  return GroupScheme(members, chunks).make();
}

}  // namespace tenuto
