// The facts that a coordinator finds in its store, as JSON: what is read and written must read back
// equal.
#include "control/store.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Facts> facts = facts_from_json(text_of(data, size), "here");
  if (!facts.ok()) {
    expect_sentence(facts.error(), "here: ");
    return 0;
  }
  const Result<Facts> again = facts_from_json(to_json(facts.value()), "printed");
  CHECK(again.ok(), "what was printed is not read: " + again.error().message);
  CHECK(to_json(again.value()) == to_json(facts.value()), "other facts come back");
  return 0;
}
