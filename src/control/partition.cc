#include "control/partition.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/recover.h"

namespace tenuto {
namespace {

// A worker has lost a peer.
struct Loss {
  Duration since{};
  WorkerId worker, peer;
  auto operator<=>(const Loss&) const = default;
};

const Member& member_of(const State& state, WorkerId worker) {
  return state.members[static_cast<size_t>(worker.value)];
}

// If a peer has fallen silent or its stream has ended, that alone explains why others lost it.
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

// The ends of cut links, the lower number first. A worker that gives up a step drops its other
// peers too, so a loss that only one end reports may come from that.
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

bool can_do_without(const State& state, WorkerId worker) {
  if (!state.rules.survive) return false;
  State without = state;
  without.members[static_cast<size_t>(worker.value)].alive = false;
  return plan_of_the_living(without).ok();
}

}  // namespace

void note_lost_peers(State& state, const Report& report, Duration now) {
  auto& lost = state.members[static_cast<size_t>(report.worker.value)].lost;
  for (const WorkerId peer : report.lost_peers) {
    const bool known = peer.value >= 0 && static_cast<size_t>(peer.value) < state.members.size();
    if (known && peer != report.worker) lost.emplace(peer, now);
  }
}

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

bool hears_nobody(Decision& out, Duration now, Duration silence) {
  State& state = out.state;
  if (state.rules.cut_off_limit.count() == 0) return false;
  Duration last{};
  bool anybody = false, somebody = false;
  for (const Member& of : state.members) {
    if (!of.alive || !of.heard) continue;
    somebody = true;
    last = std::max(last, of.heard_at);
    anybody = anybody || (!of.stream_ended && now - of.heard_at < silence / 2);
  }
  const auto say = [&](const std::string& sentence) {
    out.event = "partition";
    out.reason += cat(out.reason.empty() ? "" : "; ", sentence);
  };
  const auto seconds = [](Duration duration) { return fixed(to_milliseconds(duration) / 1000, 1); };
  if (!somebody) return false;
  if (!anybody) {
    if (!state.alone_since) {
      state.alone_since = last;
      say(cat(
          "the coordinator receives nothing from any worker: its own link may be cut; it waits ",
          seconds(state.rules.cut_off_limit), " s for them"));
    }
    return now - *state.alone_since < state.rules.cut_off_limit;
  }
  if (!state.alone_since) return false;
  const Duration alone = now - *std::exchange(state.alone_since, std::nullopt);
  // A connection that was cut for so long may take as long again until it carries the next message.
  const Duration later = std::max(alone - silence, Duration{});
  for (Member& of : state.members) {
    if (!of.alive) continue;
    of.heard_at = std::max(of.heard_at, now + later);
    if (of.stream_ended) of.suspect_since = now + later;
  }
  say(cat("the coordinator receives from its workers again, after ", seconds(alone), " s"));
  return false;
}

}  // namespace tenuto
