// Which bytes are a request, and how each other text is refused.
#include "page/http.h"

#include <gtest/gtest.h>

#include <string>

namespace tenuto::page {
namespace {

using State = RequestReading::State;

// The status with which the text is refused; 0: it is not refused.
int refused(const std::string& text, const RequestLimits& limits = {}) {
  const RequestReading reading = read_request(text, limits);
  if (reading.state != State::Refused) return 0;
  EXPECT_FALSE(reading.refusal.body.empty());
  return reading.refusal.status;
}

TEST(Http, ReadsARequest) {
  const RequestReading reading = read_request(
      "GET /api/state?since=12&token=a%2fb+c&since=13&plain HTTP/1.1\r\nHost: here\r\n"
      "authorization:  bearer secret \r\n\r\n",
      {});
  ASSERT_EQ(reading.state, State::Whole);
  const HttpRequest& request = reading.request;
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/api/state");
  EXPECT_EQ(request.query.at("since"), "12");
  EXPECT_EQ(request.query.at("token"), "a/b c");
  EXPECT_EQ(request.query.at("plain"), "");
  EXPECT_EQ(request.bearer, "secret");
  EXPECT_EQ(request.body, "");
}

TEST(Http, WaitsForTheWholeRequest) {
  const std::string whole =
      "POST /api/inject HTTP/1.1\r\nContent-Length: 10\r\n\r\ncheckpoint and more";
  const size_t end = whole.find(" and more");
  for (size_t size = 0; size <= whole.size(); ++size) {
    const RequestReading reading = read_request(whole.substr(0, size), {});
    ASSERT_EQ(reading.state, size < end ? State::Partial : State::Whole) << size;
    if (size >= end) {
      EXPECT_EQ(reading.request.body, "checkpoint");
    }
  }
}

TEST(Http, RefusesWhatIsNoRequest) {
  for (const char* text :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "get / HTTP/1.1\r\n\r\n",
        "GET there HTTP/1.1\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n", "GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
        "GET /?a=%2 HTTP/1.1\r\n\r\n", "GET /?a=%zz HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"}) {
    EXPECT_EQ(refused(text), 400) << text;
  }
  EXPECT_EQ(refused("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(refused("\x16\x03\x01 hello \r\n\r\n"), 400);  // a browser that wants TLS
  EXPECT_EQ(refused("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
}

TEST(Http, RefusesWhatIsTooLarge) {
  const RequestLimits limits{.head = 100, .body = 10};
  EXPECT_EQ(refused("GET /" + std::string(95, 'a'), limits), 431);
  EXPECT_EQ(refused("GET /" + std::string(94, 'a'), limits), 0);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n", limits), 0);
  EXPECT_EQ(refused("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 65; ++i) many += "a: b\r\n";
  EXPECT_EQ(refused(many + "\r\n"), 431);
  std::string query = "GET /?a";
  for (int i = 0; i < 16; ++i) query += "&a";
  EXPECT_EQ(refused(query + " HTTP/1.1\r\n\r\n"), 400);
}

TEST(Http, WritesAnAnswer) {
  HttpResponse response;
  response.body = "hello";
  response.headers = "Allow: GET\r\n";
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
      "Allow: GET\r\n\r\n";
  EXPECT_EQ(to_bytes(response), head + "hello");
  EXPECT_EQ(to_bytes(response, false), head);
}

}  // namespace
}  // namespace tenuto::page
