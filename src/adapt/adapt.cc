#include "adapt/adapt.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "adapt/mesh_bound.h"
#include "adapt/sums.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/copies.h"
#include "plan/lower.h"
#include "sim/bound.h"
#include "sim/longest.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Whether the orders of the routes can be searched one by one: no worker is on two routes, or twice
// on one.
bool stand_apart(const std::vector<Route>& routes, size_t workers) {
  std::vector<int32_t> uses(workers, 0);
  for (const Route& route : routes) {
    for (const WorkerId worker : route.workers) {
      if (++uses[at(worker.value)] > 1) return false;
    }
  }
  return true;
}

int32_t forwards_ahead(const Sequence& sequence) {
  const auto first = std::find(sequence.begin(), sequence.end(), OpKind::BackwardInput);
  return static_cast<int32_t>(std::count(sequence.begin(), first, OpKind::Forward));
}

// The routes of a plan with what was found for each.
struct Found {
  std::vector<Route> routes;
  std::vector<const OrderSearch*> orders;  // by route
  std::map<Line, OrderSearch> by_line;
};

// The given plan with other lists.
Plan with_orders(const Plan& plan, const Found& found, Dispatch dispatch) {
  Plan made = plan;
  made.order = "auto";
  made.dispatch = dispatch;
  made.limits.resize(plan.schedule.lists.size());
  made.schedule.groups.clear();
  made.schedule.collectives.clear();
  for (auto& list : made.schedule.lists) list.clear();
  for (size_t r = 0; r < found.routes.size(); ++r) {
    const Route& route = found.routes[r];
    const bool ready = dispatch == Dispatch::Ready;
    const Ordered& order = ready ? found.orders[r]->ready : found.orders[r]->listed;
    for (int32_t s = 0; s < plan.schedule.stage_count; ++s) {
      const size_t worker = at(route.workers[at(s)].value);
      const Sequence& sequence = order.sequences[at(s)];
      int32_t next[3] = {0, 0, 0};  // of each kind
      for (const OpKind kind : sequence) {
        Op op;
        op.kind = kind;
        op.stage = {s};
        op.micro = route.micros[at(next[static_cast<size_t>(kind)]++)];
        made.schedule.lists[worker].push_back(op);
      }
      Limit& limit = made.limits[worker];
      const Policy& policy = order.policy;
      limit.warm_up = ready ? std::min(policy.warm_up[at(s)], forwards_ahead(sequence)) : 0;
      limit.micros = ready && !policy.most.empty() ? policy.most[at(s)] : 0;
    }
  }
  insert_messages(made.schedule);
  append_update(made, summings_of(plan.schedule));
  return made;
}

Error over_memory(const Route& route) {
  for (size_t s = 0; s < route.legs.size(); ++s) {
    const MemoryLimit& memory = route.legs[s].memory;
    if (memory.fits(1, 0)) continue;
    return too_little_memory(route.workers[s], static_cast<int32_t>(s), memory);
  }
  return {Code::Infeasible, Reach::Job, "no order was found"};
}

Result<Found> search(std::vector<Route> routes, const Effort& effort, Watch* watch) {
  Found found;
  found.routes = std::move(routes);
  for (const Route& route : found.routes) {
    Line line{route.legs, static_cast<int32_t>(route.micros.size())};
    auto place = found.by_line.find(line);
    if (place == found.by_line.end()) {
      std::optional<OrderSearch> order = search_order(line, effort, watch);
      if (!order) return over_memory(route);
      place = found.by_line.emplace(std::move(line), std::move(*order)).first;
    }
    found.orders.push_back(&place->second);
  }
  return found;
}

// For people: microseconds are enough.
std::string milliseconds(Duration time) {
  return cat(std::round(to_milliseconds(time) * 1000) / 1000);
}

std::string percent(Duration more, Duration of) {
  return cat(fixed(100.0 * static_cast<double>((more - of).count()) /
                       static_cast<double>(std::max<int64_t>(1, of.count())),
                   1),
             " %");
}

// One plan that may be taken.
struct Candidate {
  Plan plan;
  Duration price{};
  std::string how;
};

// The best order for the plan's own routing.
Result<Adapted> adapt_order(const Plan& plan, const Model& model, const Cluster& now,
                            const AdaptOptions& options) {
  const PriceOptions& pricing = options.price;
  begin_part(options.watch, "pricing the order as it is");
  const auto before = price(plan, model, now, pricing);
  if (!before.ok()) return before.error();
  const auto period = [](const Result<Timeline>& timeline) { return timeline.value().period; };
  Adapted same{plan, period(before), {}, period(before), false, false, ""};
  same.lower_bound = lower_bound(plan, plan.schedule, model, now, pricing);
  std::vector<Route> routes = routes_of(plan, plan.schedule, model, now, pricing);
  if (!stand_apart(routes, plan.schedule.lists.size())) {
    same.reason = "workers with several stages or routes keep their order";
    return same;
  }
  const bool other_dispatch = options.dispatch && *options.dispatch != plan.dispatch;
  if (!other_dispatch && is_over(options.watch)) {
    same.reason = cat("the plan ", plan.order, " stays: ", milliseconds(same.price),
                      " ms; no time is left to try other orders");
    return same;
  }
  begin_part(options.watch, "trying orders");
  Result<Found> searched = search(std::move(routes), options.effort, options.watch);
  if (!searched.ok()) return searched.error();
  const Found found = std::move(searched).value();
  std::optional<Candidate> best;
  for (const Dispatch dispatch : {Dispatch::Ready, Dispatch::Listed}) {
    if (options.dispatch && *options.dispatch != dispatch) continue;
    if (best && is_over(options.watch)) break;
    begin_part(options.watch, "pricing the best order");
    Candidate candidate{with_orders(plan, found, dispatch), {}, ""};
    const auto priced = price(candidate.plan, model, now, pricing);
    if (!priced.ok()) return priced.error();
    candidate.price = period(priced);
    const OrderSearch& first = *found.orders.front();
    candidate.how = dispatch == Dispatch::Ready ? cat("ready, ", first.ready.how)
                                                : cat("listed, ", first.listed.how);
    const double most =
        best ? (1 - options.listed_gain) * static_cast<double>(best->price.count()) : 0;
    if (!best ||
        (candidate.price < best->price && static_cast<double>(candidate.price.count()) <= most)) {
      best = std::move(candidate);
    }
  }
  const double enough = (1 - options.least_gain) * static_cast<double>(same.price.count());
  if (!other_dispatch &&
      (best->price >= same.price || static_cast<double>(best->price.count()) > enough)) {
    same.reason = cat("the plan ", plan.order, " stays: ", milliseconds(same.price), " ms, ",
                      percent(same.price, same.lower_bound), " above the bound; ",
                      best->price >= same.price
                          ? std::string("nothing found is faster")
                          : cat("the best found is faster by ", percent(same.price, best->price)));
    return same;
  }
  const Status right = check(best->plan, sizes_of(model, best->plan.stages));
  if (!right.ok()) return right.error();
  Adapted made{std::move(best->plan), best->price, same.lower_bound, same.price, true, false, ""};
  made.reason =
      cat(best->how, ": ", milliseconds(made.price), " ms, ", percent(made.price, made.lower_bound),
          " above the bound, instead of ", milliseconds(made.before), " ms under ", plan.order);
  return made;
}

// True when micro-batches have several ways through the stages.
bool has_routings(const Plan& plan) {
  return plan.schedule.lists.size() > plan.stages.size() && holds_apart(plan);
}

// True when every worker that has ops lives.
bool can_run(const Plan& plan, const Cluster& now) {
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    if (!plan.schedule.lists[w].empty() && !now.workers[w].alive) return false;
  }
  return true;
}

// The result, if its plan passes check().
Result<Adapted> checked(Result<Adapted> adapted, const Model& model) {
  const Plan& plan = adapted.value().plan;
  const Status right = check(plan, sizes_of(model, plan.stages));
  if (!right.ok()) return right.error();
  return adapted;
}

// The best routing with the best order for it.
Result<Adapted> adapt_routing(const Plan& plan, const Model& model, const Cluster& now,
                              const AdaptOptions& options) {
  const auto mesh = mesh_of(plan, model, now, options.price);
  if (!mesh.ok()) return mesh.error();
  begin_part(options.watch, "trying routings");
  const Routed routed = search_route(mesh.value(), options.route_effort, options.watch);
  const double enough = (1 - options.listed_gain) * static_cast<double>(routed.ready.time.count());
  const bool lists_gain = routed.listed.time < routed.ready.time &&
                          static_cast<double>(routed.listed.time.count()) <= enough;
  const Dispatch dispatch =
      options.dispatch.value_or(lists_gain ? Dispatch::Listed : Dispatch::Ready);
  const RoutedStep& step = dispatch == Dispatch::Ready ? routed.ready : routed.listed;
  auto ordered = adapt_order(with_routing(plan, mesh.value(), step, dispatch), model, now, options);
  if (!ordered.ok()) return ordered;
  Adapted& best = ordered.value();
  // The price of steps without a common start is the mean of a few. It may be below the bound while
  // workers still catch up with each other.
  best.lower_bound = std::min(routed.bound, best.price);
  best.changed = best.routed = true;
  best.reason = cat("new routing (", step.how, "): ", milliseconds(best.price), " ms, ",
                    percent(best.price, best.lower_bound), " above the bound of all routings");
  return ordered;
}

// The result after these moves; nothing when it is not enough faster than `here`.
Result<std::optional<Adapted>> adapt_moved(const Plan& plan, const Model& model, const Cluster& now,
                                           const AdaptOptions& options,
                                           std::vector<StageMove> moves,
                                           const Result<Adapted>& here) {
  auto moved = adapt_routing(with_moves(plan, now, moves), model, now, options);
  if (moved.ok()) moved = checked(std::move(moved), model);
  if (!moved.ok()) return moved.error();
  Adapted& found = moved.value();
  if (here.ok()) {
    const double enough = (1 - options.move_gain) * static_cast<double>(here.value().price.count());
    if (static_cast<double>(found.price.count()) > enough) return std::optional<Adapted>();
    found.reason +=
        cat(", instead of ", milliseconds(here.value().price), " ms under the present routing");
    found.before = here.value().before;
  }
  found.reason = cat(describe(moves), "; ", found.reason);
  found.moves = std::move(moves);
  return std::optional(std::move(found));
}

Result<Adapted> adapt_in_place(const Plan& plan, const Model& model, const Cluster& now,
                               const AdaptOptions& options) {
  const bool runs = can_run(plan, now);
  auto routed = adapt_routing(plan, model, now, options);
  if (!routed.ok()) return routed;
  if (!runs) return checked(std::move(routed), model);
  auto ordered = adapt_order(plan, model, now, options);
  if (!ordered.ok()) return ordered;
  const Adapted& present = ordered.value();
  Adapted& best = routed.value();
  const double enough = (1 - options.least_gain) * static_cast<double>(present.before.count());
  if (best.price >= present.price || static_cast<double>(best.price.count()) > enough) {
    ordered.value().lower_bound = best.lower_bound;
    ordered.value().routed = true;
    return ordered;
  }
  best.before = present.before;
  best.reason += cat(", instead of ", milliseconds(best.before), " ms under ", plan.order);
  return checked(std::move(routed), model);
}

}  // namespace

namespace {

// adapt() for a plan without copies.
Result<Adapted> adapt_bare(const Plan& plan, const Model& model, const Cluster& now,
                           const AdaptOptions& options) {
  if (!options.routing || !has_routings(plan) || !is_disturbed(plan, now)) {
    return adapt_order(plan, model, now, options);
  }
  if (!options.moves) return adapt_in_place(plan, model, now, options);
  begin_part(options.watch, "looking for workers to hold other stages");
  auto moves = find_moves(plan, model, now, options.price, options.move_gain);
  if (!moves.ok()) return moves.error();
  auto here = adapt_in_place(plan, model, now, options);
  if (moves.value().empty() || (here.ok() && is_over(options.watch))) return here;
  auto moved = adapt_moved(plan, model, now, options, std::move(moves).value(), here);
  if (!moved.ok()) return moved.error();
  return moved.value() ? Result<Adapted>(*std::move(moved).value()) : here;
}

Result<Adapted> adapt_lists(const Plan& plan, const Model& model, const Cluster& now,
                            const AdaptOptions& options) {
  const Copies copies = copies_in(plan);
  const auto none = [](const std::vector<WorkerId>& of) { return of.empty(); };
  if (std::all_of(copies.begin(), copies.end(), none)) return adapt_bare(plan, model, now, options);
  Result<Adapted> adapted = adapt_bare(without_copies(plan), model, now, options);
  if (!adapted.ok()) return adapted;
  Plan& found = adapted.value().plan;
  found = adapted.value().changed ? with_copies(std::move(found), copies) : plan;
  return adapted;
}

}  // namespace

Result<Adapted> adapt(const Plan& plan, const Model& model, const Cluster& now,
                      const AdaptOptions& asked) {
  AdaptOptions options = asked;
  options.price.spans = options.price.bytes = options.price.lower_bound = false;
  const Status counts = check_longest(plan, plan.schedule, model, now, options.price);
  if (!counts.ok()) return counts.error();
  Result<Adapted> adapted = adapt_lists(plan, model, now, options);
  if (!adapted.ok() || !sums_follow_cluster(plan.schedule) || is_over(options.watch)) {
    return adapted;
  }
  begin_part(options.watch, "choosing how gradients are summed");
  const PriceOptions whole = options.steps_in_turn ? options_of_run(plan) : options.price;
  auto sums = choose_sums(adapted.value().plan, model, now, whole, options.least_gain);
  if (!sums.ok()) return sums.error();
  if (!sums.value().changed) return adapted;
  Adapted& made = adapted.value();
  made.reason = made.changed ? cat(made.reason, "; ", sums.value().reason) : sums.value().reason;
  made.plan = std::move(sums.value().plan);
  made.changed = true;
  if (!options.price.update) return adapted;
  const auto priced = price(made.plan, model, now, options.price);
  if (!priced.ok()) return priced.error();
  made.price = priced.value().period;
  made.lower_bound = std::min(made.lower_bound, made.price);
  return adapted;
}

bool is_disturbed(const Plan& plan, const Cluster& now) {
  if (!now.exceptions.empty()) return true;
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    if (!now.workers[w].alive || now.workers[w].speed != 1) return true;
  }
  return false;
}

Result<std::optional<Duration>> bound_of_routings(const Plan& plan, const Model& model,
                                                  const Cluster& now, const PriceOptions& options) {
  if (!has_routings(plan)) return std::optional<Duration>();
  const auto mesh = mesh_of(plan, model, now, options);
  if (!mesh.ok()) return mesh.error();
  return std::optional<Duration>(MeshBound(mesh.value()).least());
}

}  // namespace tenuto
