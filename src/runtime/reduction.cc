#include "runtime/reduction.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "collective/slice.h"
#include "runtime/combine.h"

namespace tenuto {

namespace {

void copy(std::span<std::byte> total, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(total.data(), from.data(), from.size());
}

}  // namespace

Reduction::Reduction(const Collective& collective, WorkerId self, ReductionSettings settings,
                     const ReductionTensor& tensor, std::vector<int64_t> scratch)
    : settings_(std::move(settings)),
      member_count_(static_cast<int64_t>(collective.members.size())),
      in_place_(tensor.own.data() == tensor.total.data()),
      own_(tensor.own),
      total_(tensor.total),
      scratch_(std::move(scratch)) {
  const size_t one = size_of(settings_.element);
  CHECK(own_.size() == total_.size() && own_.size() % one == 0,
        cat("own has ", own_.size(), " bytes, total ", total_.size()));
  chains_.resize(static_cast<size_t>(std::max(collective.chunk_count, 1)));
  CHECK(settings_.kept.empty() || settings_.kept.size() == chains_.size(),
        cat("kept says ", settings_.kept.size(), " of ", chains_.size(), " chunks"));
  CHECK(settings_.begun.empty() || settings_.begun.size() == chains_.size(),
        cat("begun says ", settings_.begun.size(), " of ", chains_.size(), " chunks"));
  CHECK(settings_.begun.empty() || !tensor.own_grows,
        "a total to begin with is complete, and an input that grows is not");
  const auto count = static_cast<int64_t>(own_.size() / one);
  const auto chunks = static_cast<int64_t>(chains_.size());
  for (int64_t c = 0; c < chunks; ++c) {
    Chain& chain = chains_[static_cast<size_t>(c)];
    chain.first = chunk_range(count, c, chunks).first;
    chain.end = chunk_range(count, c, chunks).end;
    chain.missing = tensor.own_grows ? chain.end - chain.first : 0;
    if (chain.missing > 0) ++growing_;
    chain.at = tensor.own_at;
    chain.tally = tensor.own_tally;
    chain.in_total = !settings_.begun.empty() && settings_.begun[static_cast<size_t>(c)];
  }
  build(collective, self);
  open_ = static_cast<int32_t>(entries_.size());
  for (Chain& chain : chains_) {
    if (chain.open == 0 && chain.missing == 0) complete(chain);
    advance(chain);
  }
  go_on();
}

int32_t Reduction::call_count(const Collective& collective, WorkerId self) {
  int32_t count = 0;
  for (const Round& round : collective.rounds) {
    for (const Move& move : round.moves) count += (move.from == self) + (move.to == self);
  }
  return count;
}

void Reduction::build(const Collective& collective, WorkerId self) {
  for (size_t r = 0; r < collective.rounds.size(); ++r) {
    const std::vector<Move>& moves = collective.rounds[r].moves;
    for (const bool send : {true, false}) {
      for (const Move& move : moves) {
        if ((send ? move.from : move.to) != self) continue;
        CHECK(move.chunk.value >= 0 && move.chunk.value < collective.chunk_count,
              cat("a move names chunk ", move.chunk, " of ", collective.chunk_count));
        add_entry(move, send, static_cast<int32_t>(r));
      }
    }
  }
  int64_t slot_size = 0;  // elements
  for (const Entry& entry : entries_) {
    const Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
    if (!entry.send && !entry.direct) slot_size = std::max(slot_size, chain.end - chain.first);
  }
  if (settings_.sends_at_once > 0) {
    in_turn(sends_);
    in_turn(receives_);
  } else {
    line_up();
  }
  for (int32_t index = 0; settings_.takers && index < std::ssize(entries_); ++index) {
    takings_.push_back({this, index});
  }
  const size_t slot_bytes = static_cast<size_t>(slot_size) * size_of(settings_.element);
  slot_words_ = (slot_bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  const size_t needed = kScratchSlots * slot_words_;
  if (scratch_.size() < needed) scratch_.resize(needed);
  for (int32_t slot = kScratchSlots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Reduction::add_entry(const Move& move, bool send, int32_t round) {
  Chain& chain = chains_[static_cast<size_t>(move.chunk.value)];
  Entry entry;
  entry.send = send;
  entry.add = move.add;
  entry.round = round;
  entry.peer = send ? move.to : move.from;
  entry.chunk = move.chunk;
  // A chunk that is sent and replaced in one round is received into scratch. Otherwise the receive
  // would have to wait for the send, and two members that swap would wait for each other.
  const bool swapped = !chain.entries.empty() &&
                       entries_[static_cast<size_t>(chain.entries.back())].round == entry.round;
  entry.direct = !send && !move.add && !swapped;
  const auto index = static_cast<int32_t>(entries_.size());
  chain.entries.push_back(index);
  ++chain.open;
  if (!send) ++chain.coming;
  (send ? sends_ : receives_).push_back(index);
  entries_.push_back(entry);
}

// Links each send to the next one to the same peer.
void Reduction::line_up() {
  std::map<WorkerId, int32_t> newest;
  for (const int32_t index : sends_) {
    const auto [last, first] = newest.try_emplace(entries_[static_cast<size_t>(index)].peer, index);
    if (first) {
      heads_.push_back(index);
    } else {
      entries_[static_cast<size_t>(last->second)].next_send = index;
      last->second = index;
    }
  }
}

// Puts calls into the order of rounds and chunks.
void Reduction::in_turn(std::vector<int32_t>& entries) const {
  std::stable_sort(entries.begin(), entries.end(), [this](int32_t left, int32_t right) {
    const Entry& one = entries_[static_cast<size_t>(left)];
    const Entry& other = entries_[static_cast<size_t>(right)];
    return std::tie(one.round, one.chunk) < std::tie(other.round, other.chunk);
  });
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
  if (chain.missing > 0 || chain.entries[chain.applied] != index) return false;
  return sends_over(chain, chain.applied);
}

// True when the next receive is not too far ahead of the first that has not come.
bool Reduction::in_window() {
  if (settings_.receives_at_once == 0) return true;
  const auto has_come = [&](int32_t index) {
    const State state = entries_[static_cast<size_t>(index)].state;
    return state == State::Landed || state == State::Done;
  };
  while (first_coming_ < next_receive_ && has_come(receives_[first_coming_])) ++first_coming_;
  return next_receive_ - first_coming_ < static_cast<size_t>(settings_.receives_at_once);
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
    if (!in_window() || !may_post(index)) return;
    if (!entry.direct) {
      entry.slot = free_slots_.back();
      free_slots_.pop_back();
    }
    entry.state = State::UnderWay;
    // A taker adds only a receive that is next in its chain: until its message has come, nothing
    // else uses the chunk.
    entry.taken = settings_.takers && entry.add && chain.missing == 0 &&
                  chain.entries[chain.applied] == index && sends_over(chain, chain.applied);
    ReductionCall& call = calls_.emplace_back(about(index));
    call.target = landing(entry);
    if (entry.taken) call.taker = {&Reduction::take, &takings_[static_cast<size_t>(index)]};
  }
}

// Goes along one chunk's chain as far as it can: queues its sends, and applies the receives that
// have landed.
void Reduction::advance(Chain& chain) {
  if (chain.missing > 0) return;
  while (chain.applied < chain.entries.size()) {
    const int32_t index = chain.entries[chain.applied];
    Entry& entry = entries_[static_cast<size_t>(index)];
    if (entry.send) {
      ++chain.applied;
      if (chain.first == chain.end) {
        finish_entry(chain, entry);
        continue;
      }
      // A queued send reads its chunk later. If own and total are the same memory, it counts as
      // reading the total, which then must not change until the send has ended.
      entry.from_total = chain.in_total || in_place_;
      entry.at = chain.at;
      entry.tally = chain.tally;
      entry.state = State::Queued;
      continue;
    }
    if (entry.state != State::Landed || !sends_over(chain, chain.applied)) return;
    ++chain.applied;
    apply(chain, entry);
  }
}

void Reduction::start_send(int32_t index) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  const Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
  entry.state = State::UnderWay;
  ++sending_;
  const auto all = entry.from_total ? std::span<const std::byte>(total_) : own_;
  ReductionCall& call = calls_.emplace_back(about(index));
  call.source = part(all, chain);
  call.ready = entry.at;
  call.tally = entry.tally;
}

// Starts the sends whose turn it is. Without a limit, the sends to each peer have an order of their
// own; with a limit, all sends have one order.
void Reduction::post_sends() {
  for (int32_t& head : heads_) {
    Duration turn{};
    for (; head >= 0; head = entries_[static_cast<size_t>(head)].next_send) {
      Entry& entry = entries_[static_cast<size_t>(head)];
      if (entry.state != State::Queued && entry.state != State::Done) break;
      entry.at = turn = std::max(entry.at, std::max(turn, entry.turn));
      if (entry.state == State::Queued) start_send(head);
      if (entry.next_send >= 0) entries_[static_cast<size_t>(entry.next_send)].turn = turn;
    }
  }
  if (settings_.sends_at_once == 0) return;
  for (; next_send_ < sends_.size(); ++next_send_) {
    const int32_t index = sends_[next_send_];
    const State state = entries_[static_cast<size_t>(index)].state;
    if (state == State::Done) continue;  // nothing to move
    if (state != State::Queued || sending_ >= settings_.sends_at_once) return;
    start_send(index);
  }
}

void Reduction::apply(Chain& chain, Entry& entry) {
  if (chain.first != chain.end && !entry.direct) {
    if (!entry.add) {
      copy(part(total_, chain), landing(entry));
    } else if (!entry.taken) {
      add(chain, landing(entry));
    }
    free_slots_.push_back(entry.slot);
  }
  chain.in_total = true;
  chain.tally = entry.add ? chain.tally + entry.tally : entry.tally;
  chain.at = std::max(chain.at, entry.at);
  --chain.coming;
  finish_entry(chain, entry);
}

void Reduction::add(const Chain& chain, std::span<const std::byte> came) {
  const std::span<std::byte> total = part(total_, chain);
  const auto here = chain.in_total ? std::span<const std::byte>(total) : part(own_, chain);
  combine(settings_.element, settings_.operation, total, here, came);
}

// Runs on a thread of the wire, while the entry's chain waits for it.
void Reduction::take(void* taking, std::span<const std::byte> message) {
  const auto& [of, index] = *static_cast<const Taking*>(taking);
  of->add(of->chain_of(of->entries_[static_cast<size_t>(index)].chunk), message);
}

void Reduction::finish_entry(Chain& chain, Entry& entry) {
  entry.state = State::Done;
  --open_;
  if (--chain.open == 0) complete(chain);
}

bool Reduction::kept(const Chain& chain) const {
  return settings_.kept.empty() || settings_.kept[static_cast<size_t>(&chain - chains_.data())];
}

// Nothing moves or reads this chunk any more. If nobody sent it here, its result is this member's
// input.
void Reduction::complete(Chain& chain) {
  if (!kept(chain)) return;
  const std::span<std::byte> total = part(total_, chain);
  if (!chain.in_total && !in_place_) copy(total, part(own_, chain));
  chain.in_total = true;
  if (settings_.operation == Operation::Average) divide(settings_.element, total, member_count_);
}

std::span<const ReductionCall> Reduction::startable() {
  if (returned_) calls_.clear();
  returned_ = true;
  return calls_;
}

void Reduction::grow(ElementRange more, Duration at) {
  if (returned_) calls_.clear();
  returned_ = false;
  for (Chain& chain : chains_) {
    const int64_t count = std::min(chain.end, more.end) - std::max(chain.first, more.first);
    if (count <= 0) continue;
    CHECK(count <= chain.missing, cat("elements ", more.first, " to ", more.end,
                                      " of a reduction's input are complete twice"));
    add_input(chain, count, at);
  }
  go_on();
}

void Reduction::grow_to_end(Duration at) {
  if (returned_) calls_.clear();
  returned_ = false;
  for (Chain& chain : chains_) {
    if (chain.missing > 0) add_input(chain, chain.missing, at);
  }
  go_on();
}

// So many more elements of the chunk's input are complete.
void Reduction::add_input(Chain& chain, int64_t count, Duration at) {
  chain.at = std::max(chain.at, at);
  chain.missing -= count;
  if (chain.missing > 0) return;
  --growing_;
  if (chain.open == 0) complete(chain);
  advance(chain);
}

void Reduction::finish(int32_t index, Duration at, uint64_t tally) {
  if (returned_) calls_.clear();
  returned_ = false;
  Entry& entry = entries_[static_cast<size_t>(index)];
  CHECK(entry.state == State::UnderWay, cat("call ", index, " of a reduction is not under way"));
  Chain& chain = chains_[static_cast<size_t>(entry.chunk.value)];
  if (entry.send) {
    --sending_;
    done_at_ = std::max(done_at_, at);
    finish_entry(chain, entry);
  } else {
    entry.state = State::Landed;
    entry.at = at;
    entry.tally = tally;
  }
  advance(chain);
  go_on();
}

// Makes the calls that have become possible, and ends the reduction after the last one.
void Reduction::go_on() {
  post_receives();
  post_sends();
  if (done()) close();
}

void Reduction::close() {
  for (const Chain& chain : chains_) done_at_ = std::max(done_at_, chain.at);
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

ReductionCall Reduction::about(int32_t index) const {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  ReductionCall call;
  call.index = index;
  call.send = entry.send;
  call.peer = entry.peer;
  call.round = entry.round;
  call.chunk = entry.chunk;
  return call;
}

ReductionCall Reduction::waiting() const {
  int32_t found = -1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].state != State::UnderWay) continue;
    if (!entries_[i].send) return about(static_cast<int32_t>(i));
    if (found < 0) found = static_cast<int32_t>(i);
  }
  return found < 0 ? ReductionCall{} : about(found);
}

const Reduction::Chain& Reduction::chain_of(ChunkId chunk) const {
  CHECK(chunk.value >= 0 && static_cast<size_t>(chunk.value) < chains_.size(),
        cat("chunk ", chunk, " of ", chains_.size()));
  return chains_[static_cast<size_t>(chunk.value)];
}

ChunkProgress Reduction::progress(ChunkId chunk) const {
  const Chain& chain = chain_of(chunk);
  ChunkProgress progress{static_cast<int32_t>(chain.applied), false};
  if (chain.applied == chain.entries.size()) return progress;
  const Entry& next = entries_[static_cast<size_t>(chain.entries[chain.applied])];
  progress.torn = (next.direct || next.taken) && next.state == State::UnderWay;
  return progress;
}

bool Reduction::returned(bool send, WorkerId peer, int32_t round, ChunkId chunk) const {
  const Chain& chain = chain_of(chunk);
  return std::any_of(chain.entries.begin(), chain.entries.end(), [&](int32_t index) {
    const Entry& entry = entries_[static_cast<size_t>(index)];
    return entry.send == send && entry.peer == peer && entry.round == round &&
           entry.state != State::Waiting && entry.state != State::Queued;
  });
}

ChunkState Reduction::chunk_state(ChunkId chunk) const {
  const Chain& chain = chain_of(chunk);
  if (kept(chain) && chain.coming == 0 && chain.missing == 0) return ChunkState::Whole;
  return chain.in_total ? ChunkState::Part : ChunkState::Own;
}

std::vector<int64_t> Reduction::take_scratch() {
  CHECK(done(), "a reduction under way keeps its scratch");
  return std::move(scratch_);
}

}  // namespace tenuto
