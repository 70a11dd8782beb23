#include "control/partition.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/query.h"

namespace tenuto {
namespace {

// A worker has lost a peer.
struct Loss {
  Duration since{};
  WorkerId worker, peer;
  auto operator<=>(const Loss&) const = default;
};

// False for a worker that is dead or silent or whose stream has ended: that alone explains why
// others lost it.
bool is_heard(const State& state, WorkerId worker, Duration now) {
  const Member& of = member_of(state, worker);
  return of.alive && !of.stream_ended && now - of.heard_at < 2 * state.rules.explain_limit;
}

// The losses between living workers that the coordinator hears, the oldest first.
std::vector<Loss> losses_of(const State& state, Duration now) {
  std::vector<Loss> losses;
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (!is_heard(state, worker, now)) continue;
    for (const auto& [peer, since] : state.members[w].lost) {
      if (is_heard(state, peer, now)) losses.push_back({since, worker, peer});
    }
  }
  std::sort(losses.begin(), losses.end());
  return losses;
}

// The ends of cut links, the lower number first. A worker that abandons a step drops its other
// peers too, so a link that only one end reports as lost need not be cut.
std::vector<std::pair<WorkerId, WorkerId>> cut_links(const std::vector<Loss>& losses) {
  std::vector<std::pair<WorkerId, WorkerId>> links;
  for (const Loss& of : losses) {
    const bool both = std::any_of(losses.begin(), losses.end(), [&](const Loss& other) {
      return other.worker == of.peer && other.peer == of.worker;
    });
    if (both && of.worker < of.peer) links.emplace_back(of.worker, of.peer);
  }
  if (links.empty()) links.push_back(std::minmax(losses.front().worker, losses.front().peer));
  return links;
}

// True when some worker has reported and is alive.
bool expects_reports(const State& state) {
  return std::any_of(state.members.begin(), state.members.end(),
                     [](const Member& of) { return of.alive && of.heard; });
}

bool can_do_without(const State& state, WorkerId worker) {
  return state.rules.survive && plan_without(state, worker).ok();
}

}  // namespace

std::optional<LeftOut> find_left_out(const State& state, Duration now) {
  const std::vector<Loss> losses = losses_of(state, now);
  if (losses.empty() || now - losses.front().since < 2 * state.rules.explain_limit) return {};
  const auto links = cut_links(losses);
  std::map<WorkerId, int> cut;
  for (const auto& [low, high] : links) {
    ++cut[low];
    ++cut[high];
  }
  std::tuple<int, bool, WorkerId> chosen{};
  for (const auto& [worker, count] : cut) {
    chosen = std::max(chosen, std::tuple(count, can_do_without(state, worker), worker));
  }
  const WorkerId worker = std::get<WorkerId>(chosen);
  std::string peers, names;
  int count = 0;
  for (const auto& [low, high] : links) {
    if (low != worker && high != worker) continue;
    const WorkerId peer = low == worker ? high : low;
    peers += cat(count == 0 ? "" : " and ", name_of(state.rules, peer));
    names += cat(count == 0 ? "" : ", ", low, "-", high);
    ++count;
  }
  const bool needed = !std::get<bool>(chosen);
  return LeftOut{worker,
                 cat("and ", peers, " cannot reach each other (cut: link", count > 1 ? "s " : " ",
                     names, "), while the coordinator reaches both",
                     needed ? std::string(", and no other worker holds their stages")
                            : cat("; worker ", worker, " is left out")),
                 needed};
}

DecisionPart watch_own_link(const State& state, Duration now, Duration silence) {
  DecisionPart out;
  if (state.rules.cut_off_limit.count() == 0 || !expects_reports(state)) return out;
  Duration last{};
  bool anybody = false;
  for (const Member& of : state.members) {
    if (!of.alive || !of.heard) continue;
    last = std::max(last, of.heard_at);
    anybody = anybody || (!of.stream_ended && now - of.heard_at < silence / 2);
  }
  if (!anybody && !state.unheard_since) {
    out.edits.add(CutOff{last});
    out.say(
        "partition",
        cat("the coordinator receives nothing from any worker: its own link may be cut; it waits ",
            seconds(state.rules.cut_off_limit), " s for them"));
  }
  if (anybody && state.unheard_since) {
    const Duration alone = now - *state.unheard_since;
    // A connection that was cut for so long may take as long again until it carries the next
    // message.
    out.edits.add(HeardAgain{now + std::max(alone - silence, Duration{})});
    out.say("partition",
            cat("the coordinator receives from its workers again, after ", seconds(alone), " s"));
  }
  return out;
}

bool is_cut_off(const State& state, Duration now) {
  return state.unheard_since && expects_reports(state) &&
         now - *state.unheard_since < state.rules.cut_off_limit;
}

}  // namespace tenuto
