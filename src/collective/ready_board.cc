#include "collective/ready_board.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tenuto {

namespace {

// The time from when all members but one were there to the end of the call.
Duration call_time(Duration gap, Duration patience, const CallCosts& costs) {
  if (gap <= patience) return gap + Duration(costs.base_ns);
  return std::max(patience + Duration(costs.early_ns), gap) + Duration(costs.exchange_ns);
}

}  // namespace

bool worth_asking(const CallCosts& costs, Duration alpha, int32_t margin_thousandths) {
  const int64_t margin = costs.base_ns * margin_thousandths / 1000;
  return costs.chunks > 0 && costs.base_ns - costs.exchange_ns > margin &&
         2 * alpha.count() <= margin;
}

Duration best_patience(std::span<const Duration> gaps, const CallCosts& costs) {
  const Duration most(std::max<int64_t>(costs.break_even_ns(), 0));
  if (gaps.size() < kLeastGaps) return most;
  const auto total = [&](Duration patience) {
    Duration sum{};
    for (const Duration gap : gaps) sum += call_time(gap, patience, costs);
    return sum;
  };
  Duration best = most, least = total(most);
  const auto consider = [&](Duration patience) {
    if (patience > most) return;
    const Duration sum = total(patience);
    if (sum > least || (sum == least && patience >= best)) return;
    best = patience;
    least = sum;
  };
  consider(Duration::zero());
  // A quarter more, so that a member that comes after the same gap again is not just missed.
  for (const Duration gap : gaps) consider(gap + gap / 4);
  return best;
}

int32_t ReadyBoard::missing(const Open& open) const {
  for (int32_t place = 0; place < members_; ++place) {
    if (open.word.members.has(place) && !open.there.has(place)) return place;
  }
  return -1;
}

// Whether the member was late in an earlier call and has not come to it yet.
bool ReadyBoard::awaited_before(int64_t call, int32_t place) const {
  return std::any_of(open_.begin(), open_.lower_bound(call), [place](const auto& each) {
    return each.second.late == place && !each.second.there.has(place);
  });
}

void ReadyBoard::note(Duration gap) {
  if (gaps_.size() < kKept) {
    gaps_.push_back(gap);
  } else {
    gaps_[next_gap_] = gap;
  }
  next_gap_ = (next_gap_ + 1) % kKept;
}

void ReadyBoard::answer_void(int32_t place, const ReadyMessage& word) {
  answers_.push_back({place, word.generation, word.call, ReadyAnswer::Kind::Void, -1, {}});
}

void ReadyBoard::arrive(int32_t place, const ReadyMessage& word, Duration now) {
  CHECK(place >= 0 && place < members_, "a place of the group");
  if (word.generation < generation_ || !word.members.has(place)) return answer_void(place, word);
  if (word.generation > generation_) {
    for (auto& [call, open] : open_) {
      for (int32_t other = 0; other < members_; ++other) {
        if (open.there.has(other) && !open.told.has(other)) answer_void(other, open.word);
      }
    }
    open_.clear();
    generation_ = word.generation;
  }
  const auto [found, fresh] = open_.try_emplace(word.call);
  Open& open = found->second;
  if (fresh) {
    open.word = word;
    open.there = open.told = MemberSet(members_);
  }
  open.there.add(place);
  const int32_t left = open.word.members.count() - open.there.count();
  if (left == 0 && open.judged) note(now - open.alone_at.value_or(now));
  open.all = left == 0;
  if (left == 1) {
    open.alone_at = now;
    open.patience = best_patience(gaps_, open.word.costs);
    // A member that is late in an earlier call has to make that call first: do not wait for it.
    open.judged = !awaited_before(word.call, missing(open));
    if (!open.judged) open.patience = Duration::zero();
  }
}

// Decides who is late in a call, when it is time.
void ReadyBoard::look(int64_t call, Open& open, Duration now) {
  if (!open.late && !open.all && open.alone_at && now >= *open.alone_at + open.patience) {
    open.late = missing(open);
  }
  if (!open.late && !open.all) return;
  for (int32_t place = 0; place < members_; ++place) {
    if (!open.there.has(place) || open.told.has(place)) continue;
    open.told.add(place);
    const auto kind = open.late ? ReadyAnswer::Kind::Late : ReadyAnswer::Kind::All;
    answers_.push_back(
        {place, open.word.generation, call, kind, open.late.value_or(-1), open.patience});
  }
}

std::optional<Duration> ReadyBoard::due() const {
  std::optional<Duration> due;
  for (const auto& [call, open] : open_) {
    if (open.late || open.all || !open.alone_at) continue;
    const Duration end = *open.alone_at + open.patience;
    due = due ? std::min(*due, end) : end;
  }
  return due;
}

std::vector<ReadyAnswer> ReadyBoard::take(Duration now) {
  for (auto& [call, open] : open_) look(call, open, now);
  std::erase_if(open_, [](const auto& each) {
    return each.second.told.count() == each.second.word.members.count();
  });
  return std::exchange(answers_, {});
}

}  // namespace tenuto
