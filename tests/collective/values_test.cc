// Computes the sums without rounds: each member keeps the order of its own messages, and the next
// message that arrives is drawn from the possible ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <map>

#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/shapes.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// A send or a receive of one chunk at one member, in the chunk's own order.
struct Entry {
  size_t message = 0, part = 0;
  bool send = false, add = false;
};

struct Message {
  size_t from = 0, to = 0;
  std::vector<size_t> chunks;
  std::vector<double> values;  // as read, by chunk
  std::vector<bool> read;
  bool arrived = false;
};

class ProcedureRun {
 public:
  ProcedureRun(const Procedure& procedure, Random& random) : random_(random) {
    const Collective& collective = procedure.collective;
    std::map<WorkerId, size_t> place;
    for (const WorkerId member : collective.members) place.emplace(member, place.size());
    const auto chunks = static_cast<size_t>(collective.chunk_count);
    chains_.assign(place.size(), std::vector<std::deque<Entry>>(chunks));
    state_.assign(place.size(), std::vector<double>(chunks));
    for (auto& row : state_) {
      // Draw such magnitudes that the order of additions changes the sum.
      for (double& value : row) {
        value = std::ldexp(random_.uniform() - 0.5, static_cast<int>(random_.below(20)));
      }
    }
    own_ = state_;
    for (const Round& round : collective.rounds) {
      const size_t first = messages_.size();
      for (size_t i = 0; i < round.moves.size();) {
        const MessageRange range = message_at(round, i);
        Message message;
        message.from = place[round.moves[i].from];
        message.to = place[round.moves[i].to];
        for (size_t m = range.first; m < range.end; ++m) {
          const auto chunk = static_cast<size_t>(round.moves[m].chunk.value);
          chains_[message.from][chunk].push_back({messages_.size(), message.chunks.size(), true});
          message.chunks.push_back(chunk);
          adds_.push_back(round.moves[m].add);
        }
        message.values.resize(message.chunks.size());
        message.read.resize(message.chunks.size());
        messages_.push_back(std::move(message));
        i = range.end;
      }
      // Sends of a round read the state before it, so they stand before its receives.
      size_t flag = adds_.size();
      for (size_t m = messages_.size(); m-- > first;) {
        for (size_t part = messages_[m].chunks.size(); part-- > 0;) {
          const bool add = adds_[--flag];
          chains_[messages_[m].to][messages_[m].chunks[part]].push_back({m, part, false, add});
        }
      }
    }
    out_.resize(place.size());
    in_.resize(place.size());
    for (size_t m = 0; m < messages_.size(); ++m) {
      out_[messages_[m].from].push_back(m);
      in_[messages_[m].to].push_back(m);
    }
  }

  // Returns false on a deadlock: messages are left and none can arrive.
  bool run() {
    for (size_t done = 0; done < messages_.size(); ++done) {
      for (size_t member = 0; member < chains_.size(); ++member) advance(member);
      std::vector<size_t> possible;
      for (const auto& queue : out_) {
        if (queue.empty()) continue;
        const Message& message = messages_[queue.front()];
        const bool ready =
            std::all_of(message.read.begin(), message.read.end(), [](bool read) { return read; });
        if (ready && in_[message.to].front() == queue.front()) possible.push_back(queue.front());
      }
      if (possible.empty()) return false;
      const size_t next =
          possible[static_cast<size_t>(random_.below(static_cast<int64_t>(possible.size())))];
      messages_[next].arrived = true;
      out_[messages_[next].from].pop_front();
      in_[messages_[next].to].pop_front();
    }
    for (size_t member = 0; member < chains_.size(); ++member) advance(member);
    return true;
  }
  const std::vector<std::vector<double>>& own() const { return own_; }
  const std::vector<std::vector<double>>& state() const { return state_; }

 private:
  void advance(size_t member) {
    for (size_t chunk = 0; chunk < chains_[member].size(); ++chunk) {
      auto& chain = chains_[member][chunk];
      for (; !chain.empty(); chain.pop_front()) {
        const Entry& entry = chain.front();
        Message& message = messages_[entry.message];
        if (entry.send) {
          message.values[entry.part] = state_[member][chunk];
          message.read[entry.part] = true;
          continue;
        }
        if (!message.arrived) break;
        const double came = message.values[entry.part];
        state_[member][chunk] = entry.add ? state_[member][chunk] + came : came;
      }
    }
  }

  Random& random_;
  std::vector<Message> messages_;
  std::vector<bool> adds_;
  std::vector<std::vector<std::deque<Entry>>> chains_;  // [member][chunk]
  std::vector<std::deque<size_t>> out_, in_;
  std::vector<std::vector<double>> state_, own_;
};

void expect_goal(const Procedure& procedure, const ProcedureRun& run) {
  const auto& members = procedure.collective.members;
  for (size_t chunk = 0; chunk < run.own()[0].size(); ++chunk) {
    double sum = 0, size = 0;
    size_t owner = 0;
    for (size_t member = 0; member < members.size(); ++member) {
      sum += run.own()[member][chunk];
      size += std::abs(run.own()[member][chunk]);
      if (!procedure.owners.empty() && procedure.owners[chunk] == members[member]) owner = member;
    }
    if (procedure.goal == Goal::AllGather) sum = run.own()[owner][chunk];
    for (size_t member = 0; member < members.size(); ++member) {
      if (procedure.goal == Goal::ReduceScatter && member != owner) continue;
      const double found = run.state()[member][chunk];
      // n - 1 additions, each with a rounding error of half a unit of the sum of the magnitudes.
      EXPECT_LE(std::abs(found - sum), size * static_cast<double>(members.size()) * 2.3e-16);
      EXPECT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(run.state()[owner][chunk]));
    }
  }
}

TEST(Values, EveryAlgorithmInDrawnOrders) {
  const int times = kSanitized ? 1 : 4;
  for (const NamedAlgorithm& algorithm : algorithms()) {
    for (int32_t count = 2; count <= (kSanitized ? 9 : 17); ++count) {
      for (const int32_t chunks : {0, 1, 3, 2 * count}) {
        if (chunks != 0 && !algorithm.card.free_chunks) continue;
        const auto made =
            make_procedure(algorithm.card.name, shape_for(algorithm.card, count, chunks));
        ASSERT_TRUE(made.ok()) << made.error().message;
        for (int time = 0; time < times; ++time) {
          SCOPED_TRACE(cat(algorithm.card.name, " n ", count, " k ", chunks, " time ", time));
          Random random(mix(static_cast<uint64_t>(count), static_cast<uint64_t>(chunks),
                            static_cast<uint64_t>(time)));
          ProcedureRun run(made.value(), random);
          ASSERT_TRUE(run.run());
          expect_goal(made.value(), run);
        }
      }
    }
  }
}

// Different orders of arrival give the same bits.
TEST(Values, OrderOfArrivalChangesNoBit) {
  const NamedAlgorithm& algorithm = *find_algorithm("late-one");
  for (int32_t count = 2; count <= 12; ++count) {
    const auto made = make_procedure("late-one", shape_for(algorithm.card, count));
    std::vector<std::vector<double>> first;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      // Every run draws the same contributions first. Then skip `seed` numbers, so that the orders
      // of arrival differ.
      Random values(7);
      ProcedureRun run(made.value(), values);
      for (uint64_t skipped = 0; skipped < seed; ++skipped) values.next();
      ASSERT_TRUE(run.run());
      if (seed == 0) first = run.state();
      EXPECT_EQ(run.state(), first) << count;
    }
  }
}

}  // namespace
}  // namespace tenuto
