// A job file: read, printed, read again.
#include "target.h"
#include "world/load.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto job = job_from_toml(std::string(text_of(data, size)), "input");
  if (!job.ok()) {
    expect_sentence(job.error(), "");
    return 0;
  }
  const std::string printed = to_toml(job.value());
  const auto again = job_from_toml(printed, "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(to_toml(again.value()) == printed, "another job comes back:\n" + printed);
  return 0;
}
