// Makes a schedule, prints it, changes it and checks the change. Needs no worker and no GPU.
//
//     schedule zb-h1 4 6        the lists of an order, for 4 workers and 6 micro-batches
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "ir/check.h"
#include "ir/text.h"
#include "plan/make_plan.h"

using namespace tenuto;

// Returns the value, or prints the error and exits.
template <class T>
T expect(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "schedule: %s\n", result.error().message.c_str());
  std::exit(3);
}

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: schedule ORDER STAGES MICROS\n");
    return 2;
  }
  Shape shape;
  shape.order = words[1];
  shape.stages = std::atoi(words[2]);
  shape.micros = std::atoi(words[3]);
  shape.split_backward = splits_by_default(shape.order);
  Plan plan = expect(make_plan(shape));
  std::printf("%s", to_text(plan.schedule).c_str());

  // A schedule is data: it can be written down, read again, and changed. Here worker 0 loses its
  // last backward for the weights, and `check` says what is wrong with the whole.
  plan.schedule = expect(schedule_from_text(to_text(plan.schedule), "the text above"));
  auto& list = plan.schedule.lists.front();
  const auto last = std::find_if(list.rbegin(), list.rend(),
                                 [](const Op& op) { return op.kind == OpKind::BackwardWeight; });
  list.erase(std::prev(last.base()));
  const Status right = check(plan);
  std::printf("without the last weight gradient of worker 0: %s\n",
              right.ok() ? "right" : right.error().message.c_str());
  return 0;
}
