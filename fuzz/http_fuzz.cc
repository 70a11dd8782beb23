// A request to the page's server: nothing of it is larger than its limits, what follows the request
// changes nothing, and a part of a request is never another request.
#include "page/http.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using State = page::RequestReading::State;
  const page::RequestLimits limits{.head = 512, .body = 64};
  const std::string_view text = text_of(data, size);
  const page::RequestReading reading = page::read_request(text, limits);
  if (reading.state == State::Refused) {
    CHECK(reading.refusal.status >= 400 && !reading.refusal.body.empty(), "a refusal says why");
    return 0;
  }
  if (reading.state == State::Partial) {
    CHECK(size < limits.head + limits.body, "a request that never ends is refused");
    return 0;
  }
  const page::HttpRequest& request = reading.request;
  CHECK(request.path.starts_with("/") && request.path.size() < limits.head, "a path");
  CHECK(request.body.size() <= limits.body, "the limit of the body");
  const page::RequestReading longer =
      page::read_request(std::string(text) + "GET / HTTP/1.1\r\n\r\n", limits);
  CHECK(longer.state == State::Whole && longer.request.body == request.body &&
            longer.request.path == request.path && longer.request.query == request.query,
        "what follows a request does not change it");
  for (size_t part = 0; part < text.size(); ++part) {
    const page::RequestReading shorter = page::read_request(text.substr(0, part), limits);
    CHECK(shorter.state != State::Refused, "a part of a request is not refused");
    CHECK(shorter.state == State::Partial || shorter.request.body == request.body,
          "a part of a request is not another request");
  }
  return 0;
}
