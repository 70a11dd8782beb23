#include "ir/standstill.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "ir/effect.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// An op by its place.
struct Place {
  WorkerId worker;
  int32_t index = -1;
  auto operator<=>(const Place&) const = default;
};

// One wait: which op, for what, and the op that this leads to.
struct Wait {
  Place op;
  std::string reason;         // "for a0.1, which ..."
  std::optional<Place> next;  // the op to look at next; none: the chain ends here
};

class Explainer {
 public:
  explicit Explainer(const Standstill& still) : still_(still) {}

  Explanation explain() const {
    std::vector<Wait> waits;
    std::vector<Place> seen;
    std::optional<Place> next = first_wait();
    while (next) {
      const Place place = head_of(*next);
      const auto before = std::find(seen.begin(), seen.end(), place);
      if (before != seen.end()) {  // the circle is closed: drop what led into it
        waits.erase(waits.begin(), waits.begin() + (before - seen.begin()));
        break;
      }
      seen.push_back(place);
      waits.push_back(wait_of(place));
      next = waits.back().next;
    }
    // Without a circle the end of the chain is the cause: put it first.
    if (!next) std::reverse(waits.begin(), waits.end());
    return told(waits, next.has_value());
  }

 private:
  const Op& op(Place place) const {
    return still_.schedule.lists[at(place.worker.value)][at(place.index)];
  }
  const Walk& walk(WorkerId worker) const { return still_.walks[at(worker.value)]; }
  int32_t number(Place place) const { return still_.pairing.number(place.worker, place.index); }
  bool started(Place place) const { return still_.started[at(number(place))]; }
  bool ended(Place place) const { return still_.ended[at(number(place))]; }
  std::string name(Place place) const {
    return cat("op ", place.index, " (", to_text(op(place)), ")");
  }

  std::optional<Place> first_wait() const;
  Place head_of(Place place) const;
  Wait wait_of(Place place) const;
  Wait wait_for_limit(Place place) const;
  Wait wait_for(Place place, const Value& value) const;
  std::optional<Place> source_of(Place sender) const;
  Wait wait_of_message(Place place) const;
  Wait wait_of_group(Place place) const;
  Explanation told(const std::vector<Wait>& waits, bool circle) const;

  const Standstill& still_;
};

// The first worker whose compute lane waits, else the first that waits at all.
std::optional<Place> Explainer::first_wait() const {
  std::optional<Place> any;
  for (size_t w = 0; w < still_.walks.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    for (const int32_t index : walk(worker).waiting()) {
      const Place place{worker, index};
      if (lane_of(op(place)) == LaneKind::Compute) return place;
      if (!any) any = place;
    }
  }
  // Only started ops are left: a reduction or a message whose other end never comes.
  for (int32_t i = 0; !any && i < still_.pairing.first.back(); ++i) {
    if (still_.ended[at(i)]) continue;
    any = Place{still_.pairing.worker_of(i), still_.pairing.index_of(i)};
  }
  return any;
}

// The op of the same lane that must go before this one, or the op itself.
Place Explainer::head_of(Place place) const {
  if (started(place)) return place;
  const Op& behind = op(place);
  std::optional<Place> head;
  for (const int32_t index : walk(place.worker).waiting()) {
    const Op& it = op({place.worker, index});
    const bool same_lane =
        lane_of(it) == lane_of(behind) && (!is_message(it) || it.peer == behind.peer);
    // Under ready dispatch the compute lane has a head for each kind of op.
    if (same_lane && (!head || it.kind == behind.kind)) head = Place{place.worker, index};
  }
  return head ? *head : place;
}

Wait Explainer::wait_of(Place place) const {
  const auto missing = walk(place.worker).missing(place.index);
  if (!started(place) && !missing.empty()) return wait_for(place, missing.front());
  if (is_message(op(place))) return wait_of_message(place);
  if (op(place).kind == OpKind::Reduce) return wait_of_group(place);
  return wait_for_limit(place);
}

// A forward waits for a weight gradient, after which the worker holds less; a backward waits for
// the next forward of the warm-up.
Wait Explainer::wait_for_limit(Place place) const {
  const bool forward = op(place).kind == OpKind::Forward;
  const bool empty = forward && walk(place.worker).held() == 0;
  const OpKind wanted = forward ? OpKind::BackwardWeight : OpKind::Forward;
  const std::string what = forward ? "for memory under its limit" : "for its warm-up forwards";
  for (const int32_t index : walk(place.worker).waiting()) {
    const Place next{place.worker, index};
    if (op(next).kind != wanted || empty) continue;
    return {place,
            cat(what, forward ? ", which " : ", of which ", name(next),
                forward ? " frees" : " is the next"),
            next};
  }
  return {place, empty ? what + ", though it holds nothing" : what, {}};
}

// The op waits for a missing value: for the op of this list that writes it, or for its receive.
Wait Explainer::wait_for(Place place, const Value& value) const {
  const auto& list = still_.schedule.lists[at(place.worker.value)];
  const std::string what = cat("for ", to_text(value));
  for (size_t i = 0; i < list.size(); ++i) {
    const auto writes = effect_of(list[i], still_.schedule.stage_count).write;
    if (std::find(writes.begin(), writes.end(), value) == writes.end()) continue;
    const Place maker{place.worker, static_cast<int32_t>(i)};
    if (ended(maker)) {
      return {place, cat(what, ", which ", name(maker), " made and an earlier op has used up"), {}};
    }
    if (list[i].kind != OpKind::Recv) {
      const bool later = maker.index > place.index;
      return {place,
              cat(what, ", which its own ", name(maker), " makes", later ? ", behind it" : ""),
              maker};
    }
    const int32_t other = still_.pairing.partner[at(number(maker))];
    const Place sender{list[i].peer, still_.pairing.index_of(other)};
    const std::string sent = cat(what, ", which worker ", sender.worker, " sends as ", name(sender),
                                 " to ", name(maker));
    // A receive that is not posted waits for the receives before it. A posted receive waits for its
    // Send, which usually waits for the op that makes the value.
    if (!started(maker)) return {place, sent, maker};
    const std::optional<Place> source = source_of(sender);
    if (!source) return {place, sent, sender};
    return {place, cat(sent, " after ", name(*source)), source};
  }
  return {place, cat(what, ", which nobody makes"), {}};
}

// The compute op that a Send at the head of its lane waits for; none if the Send waits for
// something else.
std::optional<Place> Explainer::source_of(Place sender) const {
  if (started(sender) || head_of(sender) != sender) return {};
  const auto& list = still_.schedule.lists[at(sender.worker.value)];
  for (size_t i = 0; i < list.size(); ++i) {
    const auto writes = effect_of(list[i], still_.schedule.stage_count).write;
    const Place maker{sender.worker, static_cast<int32_t>(i)};
    const bool makes =
        std::find(writes.begin(), writes.end(), moved_value(op(sender))) != writes.end();
    if (makes && !ended(maker) && lane_of(list[i]) == LaneKind::Compute) return maker;
  }
  return {};
}

Wait Explainer::wait_of_message(Place place) const {
  const Place other{op(place).peer,
                    still_.pairing.index_of(still_.pairing.partner[at(number(place))])};
  if (!started(place)) return {place, "for a buffer", {}};
  const char* verb = op(place).kind == OpKind::Send ? " to take it as " : " to send it as ";
  return {place, cat("for worker ", other.worker, verb, name(other)), other};
}

Wait Explainer::wait_of_group(Place place) const {
  const Op& mine = op(place);
  for (const WorkerId member : still_.schedule.groups[at(mine.group.value)].members) {
    const auto& list = still_.schedule.lists[at(member.value)];
    for (size_t i = 0; i < list.size(); ++i) {
      const Place theirs{member, static_cast<int32_t>(i)};
      if (list[i].kind != OpKind::Reduce || list[i].group != mine.group || started(theirs)) {
        continue;
      }
      return {place, cat("for worker ", member, " to take part as ", name(theirs)), theirs};
    }
  }
  return {place, "for its group", {}};
}

Explanation Explainer::told(const std::vector<Wait>& waits, bool circle) const {
  constexpr size_t kMost = 6;  // nobody reads more than that
  Explanation explanation;
  for (const Wait& wait : waits) {
    if (explanation.marks.size() == kMost) {
      explanation.sentence += cat("; and ", waits.size() - kMost, " more");
      break;
    }
    explanation.sentence += cat(explanation.marks.empty() ? "" : "; ", "worker ", wait.op.worker,
                                " waits at ", name(wait.op), " ", wait.reason);
    explanation.marks.push_back({wait.op.worker, wait.op.index});
  }
  if (circle && waits.size() > 1) explanation.sentence += ": a circle";
  return explanation;
}

}  // namespace

Explanation explain(const Standstill& standstill) { return Explainer(standstill).explain(); }

}  // namespace tenuto
