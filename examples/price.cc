// Finds the fastest order on a cluster with one slow link: makes every known order, prices it to
// the nanosecond, and prints the lower bound beside it.
//
//     price 20        the link between stages 1 and 2 of 4 takes 20 ms longer, one way
#include "sim/price.h"

#include <cstdio>
#include <cstdlib>

#include "plan/make_plan.h"

using namespace tenuto;

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: price EXTRA_MS\n");
    return 2;
  }
  // Workers take 10 ms for each op of a micro-batch. Links take no time.
  constexpr int32_t kWorkers = 4, kMicros = 12;
  Cluster cluster = uniform_cluster(kWorkers, Link{});
  // One link is slow, in both directions.
  const Link slow{from_milliseconds(std::atof(words[1])), 0};
  cluster.exceptions[{WorkerId{1}, WorkerId{2}}] = slow;
  cluster.exceptions[{WorkerId{2}, WorkerId{1}}] = slow;

  std::printf("%-16s %12s %12s %8s\n", "order", "makespan ms", "bound ms", "held");
  for (const OrderCard& card : order_cards()) {
    Shape shape;
    shape.order = card.name;
    shape.stages = kWorkers;
    shape.micros = kMicros;
    shape.layers = 2 * kWorkers;  // orders with two chunks a worker cut the model into 8 stages
    shape.split_backward = card.splits_backward;
    const Result<Plan> plan = make_plan(shape);
    if (!plan.ok()) {
      std::printf("%-16s %s\n", card.name.c_str(), plan.error().message.c_str());
      continue;
    }
    Model model;
    model.layers.assign(static_cast<size_t>(shape.layers), Layer{});
    for (Layer& layer : model.layers) {  // half of a worker's 10 ms
      layer.forward = layer.backward_input = layer.backward_weight = from_milliseconds(5);
    }
    const Result<Timeline> timeline = price(plan.value(), model, cluster);
    if (!timeline.ok()) {
      std::fprintf(stderr, "price: %s\n", timeline.error().message.c_str());
      return 1;
    }
    std::printf("%-16s %12.1f %12.1f %8.1f\n", card.name.c_str(),
                to_milliseconds(timeline.value().makespan),
                to_milliseconds(timeline.value().lower_bound),
                timeline.value().peak_micros.front());
  }
  return 0;
}
