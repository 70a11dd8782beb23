// For tests: the moves of an all-reduce and of its completion, played chunk by chunk, with the
// contributions counted in each sum.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "collective/complete.h"

namespace tenuto {

using ChunkCut = std::vector<int32_t>;       // [place] sends and receives of a chunk that are over
using ContributorCounts = std::vector<int>;  // [place] how often a member's contribution is in it

// What a member's memory of a chunk really holds.
struct ChunkMemory {
  ContributorCounts own, total;  // the contributions in each; none = nothing, or torn
  auto operator<=>(const ChunkMemory&) const = default;
};

// The sends and receives of one chunk at each member, and the states that they can be in.
class ChunkFlow {
 public:
  ChunkFlow(const Collective& collective, int32_t chunk) : entries_(collective.members.size()) {
    std::map<WorkerId, size_t> place;
    for (const WorkerId member : collective.members) place.emplace(member, place.size());
    std::map<const Move*, Sender> sent_as;
    for (const Round& round : collective.rounds) {
      for (const bool send : {true, false}) {
        for (const Move& move : round.moves) {
          if (move.chunk.value != chunk) continue;
          const size_t at = place[send ? move.from : move.to];
          const auto index = static_cast<int32_t>(entries_[at].size());
          if (send) sent_as[&move] = {at, index};
          entries_[at].push_back({send, move.add, send ? Sender{} : sent_as[&move]});
        }
      }
    }
  }

  // Sends happen as soon as they can, so states differ only in the receives that are over.
  ChunkCut begin() const {
    ChunkCut cut(entries_.size());
    for (size_t at = 0; at < cut.size(); ++at) pass_sends(cut, at);
    return cut;
  }
  std::vector<size_t> possible(const ChunkCut& cut) const {
    std::vector<size_t> found;
    for (size_t at = 0; at < cut.size(); ++at) {
      const auto next = static_cast<size_t>(cut[at]);
      if (next == entries_[at].size()) continue;
      const Sender& sender = entries_[at][next].sender;
      if (cut[sender.place] > sender.index) found.push_back(at);
    }
    return found;
  }
  ChunkCut after(ChunkCut cut, size_t at) const {
    ++cut[at];
    pass_sends(cut, at);
    return cut;
  }
  ChunkCut all_over() const {
    ChunkCut cut;
    for (const auto& each : entries_) cut.push_back(static_cast<int32_t>(each.size()));
    return cut;
  }
  // Every reachable state, or none when there are more than `most`.
  std::vector<ChunkCut> all(size_t most) const {
    std::set<ChunkCut> seen{begin()};
    std::deque<ChunkCut> open{begin()};
    for (; !open.empty(); open.pop_front()) {
      for (const size_t at : possible(open.front())) {
        ChunkCut next = after(open.front(), at);
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
      if (seen.size() > most) return {};
    }
    return {seen.begin(), seen.end()};
  }
  ChunkCut draw(Random& random) const {
    ChunkCut cut = begin();
    size_t length = 0;
    for (const auto& each : entries_) length += each.size();
    for (int64_t left = random.below(static_cast<int64_t>(length) + 1); left > 0; --left) {
      const auto ways = possible(cut);
      if (ways.empty()) return cut;
      cut = after(cut, ways[static_cast<size_t>(random.below(std::ssize(ways)))]);
    }
    return cut;
  }
  // What the members' memory holds after the sends and receives in `cut`, played message by
  // message.
  std::vector<ChunkMemory> play(const ChunkCut& cut, const std::vector<bool>& keeps) const {
    std::vector<ContributorCounts> sums;
    for (size_t at = 0; at < cut.size(); ++at) {
      sums.emplace_back(cut.size(), 0);
      sums.back()[at] = 1;
    }
    std::vector<ChunkMemory> memory;
    for (const ContributorCounts& sum : sums) memory.push_back({sum, {}});
    std::map<std::pair<size_t, int32_t>, ContributorCounts> sent;
    ChunkCut over(cut.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t at = 0; at < cut.size(); ++at) {
        for (; over[at] < cut[at]; ++over[at], moved = true) {
          const Entry& entry = entries_[at][static_cast<size_t>(over[at])];
          if (entry.send) {
            sent[{at, over[at]}] = sums[at];
            continue;
          }
          const auto came = sent.find({entry.sender.place, entry.sender.index});
          if (came == sent.end()) break;
          for (size_t i = 0; i < cut.size(); ++i) {
            sums[at][i] = came->second[i] + (entry.add ? sums[at][i] : 0);
          }
          memory[at].total = sums[at];
          if (!keeps[at]) memory[at].own.clear();
        }
      }
    }
    EXPECT_EQ(over, cut);
    return memory;
  }
  // True when the next entry of member `at` is a receive that overwrites the total.
  bool may_tear(const ChunkCut& cut, size_t at) const {
    const auto next = static_cast<size_t>(cut[at]);
    return next < entries_[at].size() && !entries_[at][next].send && !entries_[at][next].add;
  }

 private:
  struct Sender {
    size_t place = 0;
    int32_t index = 0;
  };
  struct Entry {
    bool send = false, add = false;
    Sender sender;
  };
  void pass_sends(ChunkCut& cut, size_t at) const {
    auto& over = cut[at];
    while (static_cast<size_t>(over) < entries_[at].size() &&
           entries_[at][static_cast<size_t>(over)].send) {
      ++over;
    }
  }

  std::vector<std::vector<Entry>> entries_;
};

// Executes a completion without knowing how it was made: each member runs the sends and receives
// of its chunks in order, and the next step is drawn.
class CompletionRun {
 public:
  CompletionRun(const Completion& completion, const std::vector<WorkerId>& members,
                const std::vector<std::vector<ChunkMemory>>& memory)
      : completion_(completion), members_(members) {
    std::map<WorkerId, size_t> place;
    for (const WorkerId member : members) place.emplace(member, place.size());
    const auto chunks = static_cast<size_t>(completion.collective.chunk_count);
    sums_.assign(members.size(), std::vector<ContributorCounts>(chunks));
    over_.assign(members.size(), std::vector<int32_t>(chunks));
    chains_.assign(members.size(), std::vector<std::deque<Entry>>(chunks));
    for (const WorkerId member : completion.collective.members) {
      const size_t at = place[member];
      for (size_t chunk = 0; chunk < chunks; ++chunk) {
        fill(at, chunk, memory[at][chunk], completion.begins[at][chunk]);
      }
    }
    for (const Round& round : completion.collective.rounds) {
      std::set<WorkerId> out, in;
      for (const Move& move : round.moves) {
        if (!out.insert(move.from).second || !in.insert(move.to).second) fault("a port is taken");
      }
      for (const bool send : {true, false}) {
        for (size_t i = 0; i < round.moves.size(); ++i) {
          const Move& move = round.moves[i];
          const size_t message = messages_.size() - (send ? 0 : round.moves.size() - i);
          const Chain chain{place[send ? move.from : move.to],
                            static_cast<size_t>(move.chunk.value)};
          entries_of(chain).push_back({message, send, move.add});
          if (send) messages_.push_back({});
          if (!send) messages_[message].to = chain;
          adds_ += send && move.add;
          ++left_;
        }
      }
    }
    for (size_t at = 0; at < members.size(); ++at) {
      for (size_t chunk = 0; chunk < chunks; ++chunk) offer({at, chunk});
    }
  }

  // Makes `steps` steps; -1 = all.
  void run(Random& random, int64_t steps = -1) {
    for (; steps != 0 && !ready_.empty(); --steps) {
      const auto pick = static_cast<size_t>(random.below(std::ssize(ready_)));
      const Chain chain = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
      step(chain);
      offer(chain);
    }
  }

  // How often each member's contribution is in a chunk of the total at a place.
  const ContributorCounts& sum(size_t at, size_t chunk) const { return sums_[at][chunk]; }
  int32_t over(size_t at, size_t chunk) const { return over_[at][chunk]; }
  bool received(size_t at, size_t chunk) const { return received_.count({at, chunk}) != 0; }
  bool may_tear(size_t at, size_t chunk) const {
    const auto& chain = chains_[at][chunk];
    return !chain.empty() && !chain.front().send && !chain.front().add;
  }
  int64_t adds() const { return adds_; }
  int64_t steps() const { return left_; }
  bool over() const { return left_ == 0; }
  const std::string& fault() const { return fault_; }

 private:
  struct Entry {
    size_t message = 0;
    bool send = false, add = false;
  };
  struct Chain {
    size_t at = 0, chunk = 0;
  };
  struct Message {
    bool sent = false;
    ContributorCounts sum;
    Chain to;
  };

  std::deque<Entry>& entries_of(Chain chain) { return chains_[chain.at][chain.chunk]; }
  // Adds a chain to the ready ones if it can go on.
  void offer(Chain chain) {
    const auto& entries = entries_of(chain);
    if (entries.empty()) return;
    if (entries.front().send || messages_[entries.front().message].sent) ready_.push_back(chain);
  }

  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  void fill(size_t at, size_t chunk, const ChunkMemory& memory, ChunkBegin begin) {
    if (begin == ChunkBegin::Nothing) return;
    sums_[at][chunk] = begin == ChunkBegin::Own ? memory.own : memory.total;
    if (sums_[at][chunk].empty()) fault("it begins with what is not there");
  }

  void step(Chain chain) {
    const Entry entry = entries_of(chain).front();
    entries_of(chain).pop_front();
    --left_;
    ++over_[chain.at][chain.chunk];
    Message& message = messages_[entry.message];
    auto& sum = sums_[chain.at][chain.chunk];
    if (!entry.send) received_.insert({chain.at, chain.chunk});
    if (entry.send) {
      if (sum.empty()) fault("nothing is sent");
      message.sum = sum;
      message.sent = true;
      const auto& waiting = entries_of(message.to);
      if (!waiting.empty() && waiting.front().message == entry.message && !waiting.front().send) {
        ready_.push_back(message.to);
      }
    } else if (!entry.add) {
      if (sum == message.sum) fault("what is put is there");
      for (size_t i = 0; i < members_.size(); ++i) {
        const bool due = completion_.contributors.has(static_cast<int32_t>(i));
        if (message.sum.at(i) != int{due}) fault("what is put is not the result");
      }
      sum = message.sum;
    } else {
      if (sum.empty()) fault("it adds to nothing");
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += message.sum.at(i);
    }
  }

  const Completion& completion_;
  const std::vector<WorkerId>& members_;
  std::vector<std::vector<ContributorCounts>> sums_;  // [place][chunk]
  std::vector<std::vector<int32_t>> over_;            // [place][chunk]
  std::vector<std::vector<std::deque<Entry>>> chains_;
  std::vector<Message> messages_;
  std::set<std::pair<size_t, size_t>> received_;
  std::vector<Chain> ready_;
  int64_t adds_ = 0, left_ = 0;
  std::string fault_;
};

}  // namespace tenuto
