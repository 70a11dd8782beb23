#include "adapt/layout/block_schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "adapt/layout/block_chain.h"
#include "base/check.h"

namespace tenuto {

namespace {

// Rounding errors of this share of a period do not count as another period.
constexpr double kRounding = 1e-9;

}  // namespace

const char* name_of(BlockPolicy policy) {
  switch (policy) {
    case BlockPolicy::OneForwardOneBackward:
      return "1f1b";
    case BlockPolicy::WithTransfers:
      return "1f1b+transfers";
    case BlockPolicy::BackwardFirst:
      return "backward-first";
    case BlockPolicy::ForwardsFirst:
      return "gpipe";
    case BlockPolicy::Periodic:
      return "periodic";
  }
  return "";
}

BlockChain chain_of(const LayoutLoads& loads) {
  CHECK(!loads.stages.empty() && loads.links.size() + 1 == loads.stages.size() && loads.micros > 0,
        "a step needs stages with links between them, and micro-batches");
  BlockChain chain;
  chain.micros = static_cast<size_t>(loads.micros);
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    const StageLoad& stage = loads.stages[n];
    const auto number = static_cast<int32_t>(n);
    chain.places.push_back({stage.forward, stage.backward, stage.reduction, number, -1});
    if (n == loads.links.size()) break;
    const LinkLoad& link = loads.links[n];
    if (!loads.half_duplex) {
      chain.hops.push_back(link);
      continue;
    }
    chain.hops.emplace_back();
    if (link.both() == 0) continue;
    chain.places.push_back({link.forward, link.backward, 0, -1, number});
    chain.hops.emplace_back();
  }
  return chain;
}

BlockPlayer::BlockPlayer(const BlockChain& chain)
    : chain_(chain),
      states_(chain.places.size()),
      forward_ready_(chain.places.size() * chain.micros),
      backward_ready_(chain.places.size() * chain.micros),
      leaves_(std::bit_ceil(chain.places.size())) {
  keys_.resize(leaves_);
  winners_.resize(2 * leaves_);
  to_visit_.reserve(chain.all_ops() + chain.places.size());
}

void BlockPlayer::reset() {
  std::fill(states_.begin(), states_.end(), State{});
  std::fill_n(forward_ready_.begin(), chain_.micros, 0.0);
  states_[0].forwards_here = static_cast<uint32_t>(chain_.micros);
}

inline BlockPlayer::Next BlockPlayer::next_of(size_t place, const PlaceRule& rule,
                                              const PlaceOrders& orders) const {
  const State& state = states_[place];
  const size_t micros = chain_.micros, base = place * micros;
  const bool allowed =
      state.forwards < micros && static_cast<int64_t>(state.forwards) - state.backwards < rule.most;
  const double forward = allowed && state.forwards < state.forwards_here
                             ? forward_ready_[base + state.forwards]
                             : kNeverEnds;
  const double backward =
      state.backwards < state.backwards_here ? backward_ready_[base + state.backwards] : kNeverEnds;
  if (rule.choice == PlaceChoice::BackwardFirst) {
    const double time = std::max(state.free, std::min(forward, backward));
    return {time, backward <= time};
  }
  const size_t begun = state.forwards + state.backwards;
  if (begun == chain_.ops()) return {};
  const bool takes_backward = orders[place * chain_.ops() + begun] != 0;
  return {std::max(state.free, takes_backward ? backward : forward), takes_backward};
}

inline size_t BlockPlayer::run_op(size_t place, bool backward, double start) {
  State& state = states_[place];
  const BlockPlace& at = chain_.places[place];
  const size_t micros = chain_.micros;
  const double end = start + (backward ? at.backward : at.forward);
  state.free = end;
  if (backward) {
    ++state.backwards;
    if (place == 0) return place;
    State& before = states_[place - 1];
    state.hop_backward = std::max(state.hop_backward, end) + chain_.hops[place - 1].backward;
    backward_ready_[(place - 1) * micros + before.backwards_here++] = state.hop_backward;
    return place - 1;
  }
  ++state.forwards;
  if (place + 1 == states_.size()) {
    backward_ready_[place * micros + state.backwards_here++] = end;
    return place;
  }
  State& behind = states_[place + 1];
  state.hop_forward = std::max(state.hop_forward, end) + chain_.hops[place].forward;
  forward_ready_[(place + 1) * micros + behind.forwards_here++] = state.hop_forward;
  return place + 1;
}

double BlockPlayer::makespan() const {
  double latest = 0;
  for (size_t p = 0; p < states_.size(); ++p) {
    if (states_[p].forwards + states_[p].backwards < chain_.ops()) return kNeverEnds;
    latest = std::max(latest, states_[p].free + chain_.places[p].reduction);
  }
  return latest;
}

inline void BlockPlayer::set_next(size_t place, const PlaceRule& rule, const PlaceOrders& orders) {
  const Next next = next_of(place, rule, orders);
  states_[place].backward_next = next.backward;
  if (next.time == keys_[place]) return;
  keys_[place] = next.time;
  for (size_t node = (leaves_ + place) / 2; node > 0; node /= 2) {
    const uint32_t left = winners_[2 * node], right = winners_[2 * node + 1];
    winners_[node] = keys_[left] <= keys_[right] ? left : right;
  }
}

double BlockPlayer::play(const std::vector<PlaceRule>& rules, PlaceOrders& orders) {
  reset();
  orders.resize(chain_.all_ops());
  std::fill(keys_.begin(), keys_.end(), kNeverEnds);
  for (size_t leaf = 0; leaf < leaves_; ++leaf)
    winners_[leaves_ + leaf] = static_cast<uint32_t>(leaf);
  for (size_t node = leaves_; node-- > 1;) winners_[node] = winners_[2 * node];
  set_next(0, rules[0], orders);
  for (size_t left = chain_.all_ops(); left > 0; --left) {
    const size_t place = winners_[1];
    const double start = keys_[place];
    if (start == kNeverEnds) return kNeverEnds;
    State& state = states_[place];
    orders[place * chain_.ops() + state.forwards + state.backwards] = state.backward_next ? 1 : 0;
    const size_t other = run_op(place, state.backward_next, start);
    set_next(place, rules[place], orders);
    if (other != place) set_next(other, rules[other], orders);
  }
  return makespan();
}

double BlockPlayer::replay(const PlaceOrders& orders) {
  // The times do not depend on the order in which places are visited.
  reset();
  to_visit_.assign(1, 0);
  const size_t ops = chain_.ops(), micros = chain_.micros;
  while (!to_visit_.empty()) {
    const size_t place = to_visit_.back();
    to_visit_.pop_back();
    const State& state = states_[place];
    bool before = false, behind = false;  // has a new input
    for (size_t i = state.forwards + state.backwards; i < ops; ++i) {
      const bool backward = orders[place * ops + i] != 0;
      if (backward ? state.backwards == state.backwards_here
                   : state.forwards == state.forwards_here) {
        break;
      }
      const double ready = backward ? backward_ready_[place * micros + state.backwards]
                                    : forward_ready_[place * micros + state.forwards];
      const size_t other = run_op(place, backward, std::max(state.free, ready));
      before = before || other < place;
      behind = behind || other > place;
    }
    if (before) to_visit_.push_back(static_cast<uint32_t>(place - 1));
    if (behind) to_visit_.push_back(static_cast<uint32_t>(place + 1));
  }
  return makespan();
}

namespace {

// The busiest stage or link, for each micro-batch.
double busiest(const LayoutLoads& loads) {
  double most = 0;
  for (const StageLoad& stage : loads.stages) most = std::max(most, stage.both());
  for (const LinkLoad& link : loads.links) most = std::max(most, link.both());
  return most;
}

// The least period in which every place can run a forward and a backward.
double least_period(const BlockChain& chain) {
  double period = 0;
  for (const BlockPlace& place : chain.places) {
    period = std::max(period, place.forward + place.backward);
  }
  for (const LinkLoad& hop : chain.hops) period = std::max({period, hop.forward, hop.backward});
  return period;
}

// How many periods a time takes, rounded up; at least one.
double periods(double time, double period) {
  return period > 0 ? std::max(1.0, std::ceil(time / period - kRounding)) : 1;
}

// The limits of 1F1B that are high enough for a busiest resource never to wait for round trips.
std::vector<double> round_trip_limits(const LayoutLoads& loads) {
  const size_t count = loads.stages.size();
  const double busy = busiest(loads);
  std::vector<double> limits(count);
  double trip = 0;
  for (size_t n = count; n-- > 0;) {
    trip += loads.stages[n].both() + (n + 1 < count ? loads.links[n].both() : 0);
    limits[n] = periods(trip, busy) + (n + 1 < count ? 1 : 0);
  }
  return limits;
}

// The forwards that each place runs before its first backward when every micro-batch repeats the
// times of the first one a period later. The first forward runs as early as possible. A backward
// waits until it does not meet the forwards of its place, which recur every period.
//
// Source: Luo et al., INFOCOM 2022, state the bound that this schedule proves
std::vector<double> periodic_leads(const BlockChain& chain) {
  const double period = least_period(chain);
  const size_t count = chain.places.size();
  std::vector<double> leads(count), start(count);
  double time = 0;
  for (size_t p = 0; p < count; ++p) {
    start[p] = time;
    time += chain.places[p].forward + (p + 1 < count ? chain.hops[p].forward : 0);
  }
  for (size_t p = count; p-- > 0;) {
    const BlockPlace& place = chain.places[p];
    // The forward that begins last before the backward, and the next one.
    const double passed = period > 0 ? std::floor((time - start[p]) / period + kRounding) : 0;
    const double last = start[p] + passed * period;
    time = std::max(time, last + place.forward);
    if (time + place.backward > last + period + kRounding * period) {
      time = last + period + place.forward;
    }
    leads[p] =
        std::max({1.0, p + 1 < count ? leads[p + 1] : 1.0, periods(time - start[p], period)});
    time += place.backward + (p > 0 ? chain.hops[p - 1].backward : 0);
  }
  return leads;
}

// Some forwards, then a backward and a forward in turn.
void list_in_turn(size_t lead, size_t micros, uint8_t* order) {
  std::fill_n(order, 2 * micros, uint8_t{1});
  std::fill_n(order, lead, uint8_t{0});
  for (size_t m = lead; m < micros; ++m) order[lead + 2 * (m - lead) + 1] = 0;
}

// Runs every place in turn, with these leads where limits allow them.
FoundOrders play_in_turn(const BlockChain& chain, const std::vector<double>& leads,
                         const std::vector<int32_t>& most, BlockPlayer& player) {
  FoundOrders found;
  found.orders.resize(chain.all_ops());
  double lead = static_cast<double>(chain.micros);
  for (size_t p = 0; p < chain.places.size(); ++p) {
    // A place that is further ahead than the one before it would wait for ever.
    lead = std::min(lead, leads[p]);
    const int32_t stage = chain.places[p].stage;
    if (stage >= 0 && !most.empty()) {
      lead = std::min(lead, static_cast<double>(most[static_cast<size_t>(stage)]));
    }
    list_in_turn(static_cast<size_t>(lead), chain.micros, &found.orders[p * chain.ops()]);
  }
  found.makespan = player.replay(found.orders);
  return found;
}

// The rules of the stages by a policy.
std::vector<PlaceRule> rules_of(const LayoutLoads& loads, const BlockChain& chain,
                                BlockPolicy policy, const std::vector<int32_t>& most) {
  std::vector<double> trips;
  if (policy == BlockPolicy::WithTransfers) trips = round_trip_limits(loads);
  std::vector<PlaceRule> rules(chain.places.size());
  const auto count = static_cast<int32_t>(loads.stages.size());
  for (size_t p = 0; p < rules.size(); ++p) {
    const int32_t n = chain.places[p].stage;
    if (n < 0) continue;
    int32_t limit = loads.micros;
    if (policy == BlockPolicy::OneForwardOneBackward) limit = std::min(limit, count - n);
    if (!trips.empty()) {
      limit =
          static_cast<int32_t>(std::min(static_cast<double>(limit), trips[static_cast<size_t>(n)]));
    }
    if (!most.empty()) limit = std::min(limit, most[static_cast<size_t>(n)]);
    rules[p].most = limit;
  }
  return rules;
}

}  // namespace

FoundOrders play_policy(const LayoutLoads& loads, const BlockChain& chain, BlockPolicy policy,
                        const std::vector<int32_t>& most, BlockPlayer& player) {
  if (policy == BlockPolicy::Periodic) {
    return play_in_turn(chain, periodic_leads(chain), most, player);
  }
  if (policy == BlockPolicy::ForwardsFirst) {
    const std::vector<double> leads(chain.places.size(), static_cast<double>(chain.micros));
    return play_in_turn(chain, leads, most, player);
  }
  FoundOrders found;
  found.makespan = player.play(rules_of(loads, chain, policy, most), found.orders);
  return found;
}

BlockSchedule schedule_of(const LayoutLoads& loads, const BlockChain& chain,
                          const FoundOrders& found, BlockPolicy policy) {
  BlockSchedule schedule;
  schedule.makespan = found.makespan;
  schedule.policy = policy;
  schedule.order.resize(loads.stages.size());
  schedule.in_flight.resize(loads.stages.size());
  if (loads.half_duplex) schedule.link_order.resize(loads.links.size());
  for (size_t p = 0; p < chain.places.size(); ++p) {
    const BlockPlace& place = chain.places[p];
    const uint8_t* const ops = &found.orders[p * chain.ops()];
    std::vector<bool> order(ops, ops + chain.ops());
    if (place.stage < 0) {
      schedule.link_order[static_cast<size_t>(place.link)] = std::move(order);
      continue;
    }
    int32_t now = 0, most = 0;
    for (const bool backward : order) most = std::max(most, now += backward ? -1 : 1);
    schedule.in_flight[static_cast<size_t>(place.stage)] = most;
    schedule.order[static_cast<size_t>(place.stage)] = std::move(order);
  }
  return schedule;
}

BlockSchedule schedule_blocks(const LayoutLoads& loads, BlockPolicy policy) {
  const BlockChain chain = chain_of(loads);
  BlockPlayer player(chain);
  return schedule_of(loads, chain, play_policy(loads, chain, policy, {}, player), policy);
}

std::optional<BlockSchedule> replay_blocks(const LayoutLoads& loads,
                                           const std::vector<std::vector<bool>>& order,
                                           const std::vector<std::vector<bool>>& link_order) {
  const BlockChain chain = chain_of(loads);
  CHECK(order.size() == loads.stages.size(), "each stage needs an order");
  CHECK(link_order.empty() || link_order.size() == loads.links.size(), "each link needs an order");
  FoundOrders found;
  found.orders.resize(chain.all_ops());
  std::vector<PlaceRule> rules(chain.places.size());
  bool listed = true;  // every place has an order
  for (size_t p = 0; p < rules.size(); ++p) {
    const BlockPlace& place = chain.places[p];
    if (place.stage < 0 && link_order.empty()) {
      listed = false;
      continue;
    }
    const std::vector<bool>& ops = place.stage < 0 ? link_order[static_cast<size_t>(place.link)]
                                                   : order[static_cast<size_t>(place.stage)];
    CHECK(ops.size() == chain.ops(), "each stage runs two ops for every micro-batch");
    rules[p].choice = PlaceChoice::Listed;
    std::copy(ops.begin(), ops.end(), found.orders.begin() + static_cast<int64_t>(p * chain.ops()));
  }
  BlockPlayer player(chain);
  found.makespan = listed ? player.replay(found.orders) : player.play(rules, found.orders);
  if (found.makespan == kNeverEnds) return std::nullopt;
  return schedule_of(loads, chain, found, BlockPolicy::OneForwardOneBackward);
}

}  // namespace tenuto
