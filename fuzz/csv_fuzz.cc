// PyTorch's schedule CSV: read, made into a plan, checked. A valid plan is written as CSV with all
// options; each CSV must be the same when it is read and written again.
#include "ir/check.h"
#include "ir/torch_csv.h"
#include "plan/given_plan.h"
#include "target.h"

using namespace tenuto;

namespace {

Result<Plan> plan_of(std::string_view text, std::string_view source) {
  auto read = schedule_from_csv(text, source);
  if (!read.ok()) return read.error();
  Shape shape;
  shape.layers = read.value().schedule.stage_count;
  shape.order = "input";
  shape.split_backward = read.value().splits;
  return make_given_plan({std::move(read.value().schedule), read.value().messages}, shape);
}

void expect_round_trip(const Plan& plan, const CsvOptions& options) {
  const auto written = to_csv(plan, options);
  if (!written.ok()) {
    expect_sentence(written.error(), "");
    return;
  }
  const auto again = plan_of(written.value(), "written");
  CHECK(again.ok(), "what was written is not read: " + again.error().message);
  const Status status = check(again.value());
  CHECK(status.ok(), "what was written is not right: " + status.error().message);
  const auto twice = to_csv(again.value(), options);
  CHECK(twice.ok(), "what was read is not written: " + twice.error().message);
  CHECK(twice.value() == written.value(), "another CSV comes back:\n" + written.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  (void)looks_like_csv(text);
  const auto plan = plan_of(text, "input");
  if (!plan.ok()) {
    expect_sentence(plan.error(), "");
    return 0;
  }
  if (const Status status = check(plan.value()); !status.ok()) {
    expect_sentence(status.error(), "");
    return 0;
  }
  for (const bool messages : {false, true}) {
    for (const CsvBackward backward :
         {CsvBackward::Whole, CsvBackward::Split, CsvBackward::Apart}) {
      CsvOptions options;
      options.messages = messages;
      options.backward = backward;
      expect_round_trip(plan.value(), options);
    }
  }
  return 0;
}
