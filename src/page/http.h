// Requests and answers of HTTP/1.1 as values. Nothing here has a socket, so that tests and fuzzers
// can give it any bytes.
//
// Only what the page needs is understood: one request for each connection, a body of a stated
// length, no chunks. Everything else is refused with a status and one sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tenuto::page {

// How large a request may be, in bytes.
struct RequestLimits {
  size_t head = 8192;  // the request line and all header lines
  size_t body = 4096;
};

// One request.
struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/api/state": before the question mark, as it was sent
  std::map<std::string, std::string> query;  // decoded; of a name that stands twice the first value
  std::string bearer;                        // the token of `Authorization: Bearer`; empty = none
  std::string body;
};

// One answer. The connection is closed after it.
struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string headers;  // further lines, each with its end of line
};

// What the bytes that have come so far are. Partial: more must come. Refused: `refusal` is the
// answer, whatever comes.
struct RequestReading {
  // How far it is.
  enum class State : uint8_t { Partial, Whole, Refused };
  State state = State::Partial;
  HttpRequest request;
  HttpResponse refusal;
};

// Reads the request that `bytes` begin with. What follows it is ignored.
//
// Cost: linear in the bytes up to the limits
RequestReading read_request(std::string_view bytes, const RequestLimits& limits);

// An answer with this status and one sentence.
HttpResponse refusal(int status, const std::string& sentence);

// The bytes of an answer. Without `with_body` the body is left out, and its length is told (HEAD).
std::string to_bytes(const HttpResponse& response, bool with_body = true);

}  // namespace tenuto::page
