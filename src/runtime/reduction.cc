#include "runtime/reduction.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Plain loops over restricted pointers: the compiler makes vector instructions of them, and the
// order of additions is that of the formula.
template <class Number>
void add_numbers(Number* __restrict total, const Number* __restrict came, size_t count) {
  for (size_t i = 0; i < count; ++i) total[i] += came[i];
}

template <class Number>
void sum_numbers(Number* __restrict total, const Number* __restrict own,
                 const Number* __restrict came, size_t count) {
  for (size_t i = 0; i < count; ++i) total[i] = own[i] + came[i];
}

template <class Number>
void sum_as(std::span<std::byte> total, std::span<const std::byte> own,
            std::span<const std::byte> came) {
  auto* const to = reinterpret_cast<Number*>(total.data());
  const auto* const from = reinterpret_cast<const Number*>(came.data());
  const size_t count = total.size() / sizeof(Number);
  if (own.data() == total.data()) {
    add_numbers(to, from, count);
  } else {
    sum_numbers(to, reinterpret_cast<const Number*>(own.data()), from, count);
  }
}

// total = own + came, where own may be the total.
void sum(Element element, std::span<std::byte> total, std::span<const std::byte> own,
         std::span<const std::byte> came) {
  element == Element::Float ? sum_as<float>(total, own, came) : sum_as<int64_t>(total, own, came);
}

void copy(std::span<std::byte> total, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(total.data(), from.data(), from.size());
}

}  // namespace

Reduction::Reduction(const Collective& collective, WorkerId self, Element element,
                     std::span<const std::byte> own, std::span<std::byte> total, Duration own_at,
                     std::vector<int64_t> scratch, uint64_t own_tally)
    : element_(element), own_(own), total_(total), scratch_(std::move(scratch)) {
  CHECK(own.size() == total.size() && own.size() % size_of(element) == 0,
        cat("own has ", own.size(), " bytes, total ", total.size()));
  chains_.resize(static_cast<size_t>(std::max(collective.chunk_count, 1)));
  const auto count = static_cast<int64_t>(own.size() / size_of(element));
  const auto chunks = static_cast<int64_t>(chains_.size());
  for (int64_t c = 0; c < chunks; ++c) {
    Chain& chain = chains_[static_cast<size_t>(c)];
    chain.first = c * count / chunks;
    chain.end = (c + 1) * count / chunks;
    chain.at = own_at;
    chain.tally = own_tally;
  }
  build(collective, self);
  open_ = static_cast<int32_t>(entries_.size());
  for (Chain& chain : chains_) advance(chain);
  post_receives();
  if (open_ == 0) close();
}

int32_t Reduction::call_count(const Collective& collective, WorkerId self) {
  int32_t count = 0;
  for (const Round& round : collective.rounds) {
    for (const Move& move : round.moves) count += (move.from == self) + (move.to == self);
  }
  return count;
}

void Reduction::build(const Collective& collective, WorkerId self) {
  int64_t slot_size = 0;  // elements
  std::map<WorkerId, int32_t> newest_send;
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    const std::vector<Move>& moves = collective.rounds[r].moves;
    for (const bool send : {true, false}) {
      for (const Move& move : moves) {
        if ((send ? move.from : move.to) != self) continue;
        CHECK(move.chunk.value >= 0 && move.chunk.value < collective.chunk_count,
              cat("a move names chunk ", move.chunk, " of ", collective.chunk_count));
        Chain& chain = chains_[static_cast<size_t>(move.chunk.value)];
        Entry entry;
        entry.send = send;
        entry.add = move.add;
        entry.round = static_cast<int32_t>(r);
        entry.peer = send ? move.to : move.from;
        entry.chunk = move.chunk;
        // A chunk that is sent and replaced in one round must not land on what is being sent: two
        // members that swap would wait for each other.
        const bool swapped =
            !chain.entries.empty() &&
            entries_[static_cast<size_t>(chain.entries.back())].round == entry.round;
        entry.direct = !send && !move.add && !swapped;
        const auto index = static_cast<int32_t>(entries_.size());
        chain.entries.push_back(index);
        if (send) {
          const auto [newest, first] = newest_send.try_emplace(entry.peer, index);
          entry.may_go = first;
          if (!first) {
            entries_[static_cast<size_t>(newest->second)].next_send = index;
            newest->second = index;
          }
        }
        if (!send) receives_.push_back(index);
        if (!send && !entry.direct) slot_size = std::max(slot_size, chain.end - chain.first);
        entries_.push_back(entry);
      }
    }
  }
  const size_t slot_bytes = static_cast<size_t>(slot_size) * size_of(element_);
  slot_words_ = (slot_bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  const size_t needed = kScratchSlots * slot_words_;
  if (scratch_.size() < needed) scratch_.resize(needed);
  for (int32_t slot = kScratchSlots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

std::span<std::byte> Reduction::landing(const Entry& entry) {
  const Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
  const std::span<std::byte> there = part(total_, chain);
  if (entry.direct) return there;
  const auto slots = std::as_writable_bytes(std::span(scratch_));
  return slots.subspan(static_cast<size_t>(entry.slot) * slot_words_ * sizeof(int64_t),
                       there.size());
}

// True when no send among the chain's first `before` entries still reads the total.
bool Reduction::sends_over(const Chain& chain, size_t before) const {
  for (size_t i = 0; i < before; ++i) {
    const Entry& entry = entries_[static_cast<size_t>(chain.entries[i])];
    if (entry.send && entry.from_total && entry.state != State::Done) return false;
  }
  return true;
}

bool Reduction::may_post(int32_t index) const {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  if (!entry.direct) return !free_slots_.empty();
  const Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
  if (chain.entries[chain.applied] != index) return false;
  return sends_over(chain, chain.applied);
}

void Reduction::post_receives() {
  for (; next_receive_ < receives_.size(); ++next_receive_) {
    const int32_t index = receives_[next_receive_];
    Entry& entry = entries_[static_cast<size_t>(index)];
    Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
    if (chain.first == chain.end) {  // nothing to move, on either side
      entry.state = State::Landed;
      advance(chain);
      continue;
    }
    if (!may_post(index)) return;
    if (!entry.direct) {
      entry.slot = free_slots_.back();
      free_slots_.pop_back();
    }
    entry.state = State::UnderWay;
    calls_.push_back(
        {index, false, entry.peer, entry.round, entry.chunk, {}, landing(entry), {}, 0});
  }
}

// The send behind this one to the same peer may go, if what it reads is here.
void Reduction::let_next_go(const Entry& sent, Duration at) {
  if (sent.next_send < 0) return;
  Entry& next = entries_[static_cast<size_t>(sent.next_send)];
  next.may_go = true;
  next.turn = at;
  unlocked_.push_back(sent.next_send);
}

// Goes along one chunk's chain as far as it can: starts the sends whose state is here, applies the
// receives that have landed. Then along those chains whose next send it has let go.
void Reduction::advance(Chain& chain) {
  while (chain.applied < chain.entries.size() && advance_entry(chain)) {
  }
  while (!unlocked_.empty()) {
    const Entry& entry = entries_[static_cast<size_t>(unlocked_.back())];
    unlocked_.pop_back();
    Chain& other = chains_[static_cast<size_t>(entry.chunk.value)];
    while (other.applied < other.entries.size() && advance_entry(other)) {
    }
  }
}

// One step along a chain; false where it has to wait.
bool Reduction::advance_entry(Chain& chain) {
  const int32_t index = chain.entries[chain.applied];
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.send) {
    if (!entry.may_go) return false;
    ++chain.applied;
    const Duration ready = std::max(chain.at, entry.turn);
    let_next_go(entry, ready);
    if (chain.first == chain.end) {
      entry.state = State::Done;
      --open_;
      return true;
    }
    entry.state = State::UnderWay;
    entry.from_total = chain.in_total;
    const auto all = chain.in_total ? std::span<const std::byte>(total_) : own_;
    calls_.push_back({index,
                      true,
                      entry.peer,
                      entry.round,
                      entry.chunk,
                      part(all, chain),
                      {},
                      ready,
                      chain.tally});
    return true;
  }
  if (entry.state != State::Landed || !sends_over(chain, chain.applied)) return false;
  apply(chain, entry);
  ++chain.applied;
  return true;
}

void Reduction::apply(Chain& chain, Entry& entry) {
  if (chain.first != chain.end && !entry.direct) {
    const std::span<std::byte> total = part(total_, chain);
    const std::span<const std::byte> came = landing(entry);
    if (entry.add) {
      sum(element_, total, chain.in_total ? total : part(own_, chain), came);
    } else {
      copy(total, came);
    }
    free_slots_.push_back(entry.slot);
  }
  chain.in_total = true;
  chain.tally = entry.add ? chain.tally + entry.tally : entry.tally;
  chain.at = std::max(chain.at, entry.at);
  entry.state = State::Done;
  --open_;
}

std::span<const ReductionCall> Reduction::startable() {
  if (returned_) calls_.clear();
  returned_ = true;
  return calls_;
}

void Reduction::finish(int32_t index, Duration at, uint64_t tally) {
  if (returned_) calls_.clear();
  returned_ = false;
  Entry& entry = entries_[static_cast<size_t>(index)];
  CHECK(entry.state == State::UnderWay, cat("call ", index, " of a reduction is not under way"));
  if (entry.send) {
    entry.state = State::Done;
    --open_;
    done_at_ = std::max(done_at_, at);
  } else {
    entry.state = State::Landed;
    entry.at = at;
    entry.tally = tally;
  }
  advance(chains_[static_cast<size_t>(entry.chunk.value)]);
  post_receives();
  if (open_ == 0) close();
}

// All is over: chunks that nobody sent here are this member's own.
void Reduction::close() {
  for (Chain& chain : chains_) {
    if (!chain.in_total) copy(part(total_, chain), part(own_, chain));
    chain.in_total = true;
    done_at_ = std::max(done_at_, chain.at);
  }
}

uint64_t Reduction::tally_beside(uint64_t wanted) const {
  for (const Chain& chain : chains_) {
    if (chain.first < chain.end && chain.tally != wanted) return chain.tally;
  }
  return wanted;
}

WorkerId Reduction::peer_of(int32_t index) const {
  return entries_[static_cast<size_t>(index)].peer;
}

std::vector<int64_t> Reduction::take_scratch() {
  CHECK(done(), "a reduction under way keeps its scratch");
  return std::move(scratch_);
}

}  // namespace tenuto
