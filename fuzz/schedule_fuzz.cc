// The text of a schedule: read, printed, read again; then checked as `tenuto schedule check` does,
// under both dispatches.
#include "ir/check.h"
#include "ir/text.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto schedule = schedule_from_text(text_of(data, size), "input");
  if (!schedule.ok()) {
    expect_sentence(schedule.error(), "input:");
    return 0;
  }
  const std::string printed = to_text(schedule.value());
  const auto again = schedule_from_text(printed, "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(again.value() == schedule.value(), "another schedule comes back:\n" + printed);
  auto plan = plan_of_schedule(schedule.value(), "input");
  if (!plan.ok()) {
    expect_sentence(plan.error(), "input:");
    return 0;
  }
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    plan.value().dispatch = dispatch;
    const Status status = check(plan.value());
    if (!status.ok()) expect_sentence(status.error(), "");
  }
  const auto stored = plan_from_json(to_json(plan.value()), "stored");
  CHECK(stored.ok(), "the plan's JSON is not read: " + stored.error().message);
  CHECK(stored.value() == plan.value(), "another plan comes back:\n" + to_json(plan.value()));
  return 0;
}
