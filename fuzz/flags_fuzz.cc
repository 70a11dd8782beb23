// Flags of a command line, --section.key=value; each line that begins with -- begins a flag. The
// job that they make is printed with origins and read back as a job file.
#include <vector>

#include "target.h"
#include "world/load.h"

using namespace tenuto;

namespace {

std::vector<std::string> flags_of(std::string_view text) {
  std::vector<std::string> flags;
  while (!text.empty()) {
    const size_t end = text.find("\n--");
    flags.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return flags;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto loaded = load_job("", flags_of(text_of(data, size)));
  if (!loaded.ok()) {
    expect_sentence(loaded.error(), "");
    return 0;
  }
  const std::string printed = to_toml(loaded.value().job, &loaded.value().origin);
  const auto again = job_from_toml(printed, "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(to_toml(again.value()) == to_toml(loaded.value().job), "another job comes back");
  return 0;
}
