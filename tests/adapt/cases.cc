#include "adapt/cases.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "sim/route.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr Bytes kMessage{1'000'000};

double rate_of(Duration busy) {
  if (busy.count() == 0) return 0;
  return static_cast<double>(kMessage.count) * 1e9 / static_cast<double>(busy.count());
}

// The case's plan with a list for each worker of its one pipeline.
Plan with_lists(const Case& it, const std::vector<Sequence>& sequences) {
  Plan plan = it.plan;
  plan.schedule.groups.clear();
  plan.schedule.collectives.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    auto& list = plan.schedule.lists[at(plan.stages[s].holders[0].value)];
    list.clear();
    int32_t next[3] = {0, 0, 0};
    for (const OpKind kind : sequences[s]) {
      Op op;
      op.kind = kind;
      op.stage = {static_cast<int32_t>(s)};
      op.micro = {next[static_cast<size_t>(kind)]++};
      list.push_back(op);
    }
  }
  insert_messages(plan.schedule);
  append_update(plan);
  return plan;
}

}  // namespace

Case case_of(const Line& line, const std::string& order, int32_t pipelines) {
  Shape shape;
  shape.stages = shape.layers = line.stages();
  shape.pipelines = pipelines;
  shape.micros = line.micros;
  shape.order = order;
  shape.split_backward = true;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), plan.ok() ? "" : plan.error().message);
  Case it{std::move(plan).value(), {}, uniform_cluster(line.stages() * pipelines, {}), {}};
  it.options.update = false;
  it.plan.limits.assign(it.plan.schedule.lists.size(), {});
  for (int32_t s = 0; s < line.stages(); ++s) {
    const Leg& leg = line.legs[at(s)];
    Layer layer;
    layer.forward = leg.forward;
    layer.backward_input = leg.backward;
    layer.backward_weight = leg.weight;
    layer.activation = kMessage;
    it.model.layers.push_back(layer);
    for (int32_t p = 0; p < pipelines; ++p) {
      const auto holder = [&](int32_t stage) { return it.plan.stages[at(stage)].holders[at(p)]; };
      it.plan.limits[at(holder(s).value)].memory = leg.memory;
      if (s + 1 < line.stages()) {
        it.cluster.exceptions[{holder(s), holder(s + 1)}] = {leg.down, rate_of(leg.down_busy)};
      }
      if (s > 0) it.cluster.exceptions[{holder(s), holder(s - 1)}] = {leg.up, rate_of(leg.up_busy)};
    }
  }
  return it;
}

Line line_of(const Case& it, size_t route) {
  const auto routes = routes_of(it.plan, it.plan.schedule, it.model, it.cluster, it.options);
  CHECK(route < routes.size(), "a route of the case");
  return {routes[route].legs, static_cast<int32_t>(routes[route].micros.size())};
}

Plan listed_plan(const Case& it, const std::vector<Sequence>& sequences) {
  Plan plan = with_lists(it, sequences);
  plan.dispatch = Dispatch::Listed;
  return plan;
}

Plan ready_plan(const Case& it, const Policy& policy, const std::vector<Sequence>& sequences) {
  Plan plan = with_lists(it, sequences);
  plan.dispatch = Dispatch::Ready;
  for (size_t s = 0; s < sequences.size(); ++s) {
    // A warm-up ends early where there is no memory for it.
    const auto first = std::find(sequences[s].begin(), sequences[s].end(), OpKind::BackwardInput);
    const auto ahead = std::count(sequences[s].begin(), first, OpKind::Forward);
    Limit& limit = plan.limits[at(plan.stages[s].holders[0].value)];
    limit.warm_up = std::min(policy.warm_up[s], static_cast<int32_t>(ahead));
    limit.micros = policy.most.empty() ? 0 : policy.most[s];
  }
  return plan;
}

}  // namespace tenuto
