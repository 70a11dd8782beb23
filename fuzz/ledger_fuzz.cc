// The ledger of a host, as its jobs find it in their file: what is read and printed reads back
// equal, and a job may go on with it.
#include <chrono>
#include <string>

#include "sync/ledger.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto read = ledger_from_text(text_of(data, size), "here");
  if (!read.ok()) {
    expect_sentence(read.error(), "here: line ");
    return 0;
  }
  HostLedger& ledger = read.value();
  const std::string printed = to_text(ledger);
  const auto again = ledger_from_text(printed, "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(to_text(again.value()) == printed, "another ledger comes back");
  const HostJob job{1};
  LeaseRequest request{job, {}, std::chrono::seconds(1)};
  request.options.push_back({{500, 0, 0}, 0.5});
  const Duration latest(int64_t{1} << 62);  // no ledger that is read is of a later moment
  const auto announced = ledger.announce(job, {{1000, 0, 0}, {500, 0, 0}, {0.001, 0, 0}}, latest);
  if (announced.ok()) CHECK(ledger.ask(request, latest).ok(), "a known job may ask");
  return 0;
}
