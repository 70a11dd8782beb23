// The JSON of a plan: read, checked, printed, read again.
#include "ir/check.h"
#include "ir/text.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto plan = plan_from_json(text_of(data, size), "input");
  if (!plan.ok()) {
    expect_sentence(plan.error(), "input:");
    return 0;
  }
  const Status status = check(plan.value());
  if (!status.ok()) expect_sentence(status.error(), "");
  const std::string printed = to_json(plan.value());
  const auto again = plan_from_json(printed, "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(again.value() == plan.value(), "another plan comes back:\n" + printed);
  return 0;
}
