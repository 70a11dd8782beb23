#include "page/http.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"

namespace tenuto::page {
namespace {

constexpr size_t kMostHeaders = 64;
constexpr size_t kMostParameters = 16;
constexpr size_t kMostMethod = 16;  // letters

const char* phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

bool is_upper(char letter) { return letter >= 'A' && letter <= 'Z'; }

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Signs that a header's name may have (RFC 9110, 5.6.2).
bool is_of_name(char letter) {
  constexpr std::string_view kSigns = "!#$%&'*+-.^_`|~";
  return is_digit(letter) || is_upper(letter) || (letter >= 'a' && letter <= 'z') ||
         kSigns.find(letter) != std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& letter : small) {
    if (is_upper(letter)) letter = static_cast<char>(letter - 'A' + 'a');
  }
  return small;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The text with its percent signs and plus signs replaced; none: a percent sign without two digits.
std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool whole = digits.size() == 2 && read.ptr == digits.data() + 2;
    if (!whole || read.ec != std::errc()) return std::nullopt;
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

// Reads one request; each function returns false when `reading` has become a refusal.
class Reader {
 public:
  explicit Reader(const RequestLimits& limits) : limits_(limits) {}

  RequestReading read(std::string_view bytes) {
    const size_t end = bytes.substr(0, limits_.head).find("\r\n\r\n");
    if (end == std::string_view::npos) {
      if (bytes.size() >= limits_.head) {
        (void)refuse(431, cat("the head of the request is longer than ", limits_.head, " bytes"));
      }
      return std::move(reading_);
    }
    std::string_view head = bytes.substr(0, end);
    const size_t first = head.find("\r\n");
    const std::string_view line = head.substr(0, first);
    head = first == std::string_view::npos ? std::string_view() : head.substr(first + 2);
    if (!read_line(line) || !read_headers(head)) return std::move(reading_);
    const std::string_view rest = bytes.substr(end + 4);
    if (rest.size() < length_) return std::move(reading_);
    reading_.request.body = rest.substr(0, length_);
    reading_.state = RequestReading::State::Whole;
    return std::move(reading_);
  }

 private:
  bool refuse(int status, const std::string& sentence) {
    reading_.state = RequestReading::State::Refused;
    reading_.refusal = refusal(status, sentence);
    return false;
  }

  // GET /api/state?since=3 HTTP/1.1
  bool read_line(std::string_view line) {
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last) {
      return refuse(400, "the first line is not METHOD TARGET HTTP/1.1");
    }
    const std::string_view method = line.substr(0, first);
    const std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string_view version = line.substr(last + 1);
    if (method.empty() || method.size() > kMostMethod ||
        !std::all_of(method.begin(), method.end(), is_upper)) {
      return refuse(400, "the method of the request is not a word in capital letters");
    }
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
      return refuse(505, "the version of the request is not HTTP/1.1");
    }
    const bool plain = std::all_of(target.begin(), target.end(),
                                   [](char letter) { return letter > ' ' && letter < 127; });
    if (target.empty() || target.front() != '/' || !plain) {
      return refuse(400, "the target of the request is not a path that begins with /");
    }
    const size_t question = target.find('?');
    reading_.request.method = method;
    reading_.request.path = target.substr(0, question);
    if (question == std::string_view::npos) return true;
    return read_query(target.substr(question + 1));
  }

  bool read_query(std::string_view query) {
    for (size_t count = 0; !query.empty(); ++count) {
      if (count == kMostParameters) {
        return refuse(400, cat("the query has more than ", kMostParameters, " parameters"));
      }
      const size_t end = std::min(query.find('&'), query.size());
      const std::string_view pair = query.substr(0, end);
      query.remove_prefix(std::min(end + 1, query.size()));
      const size_t equals = std::min(pair.find('='), pair.size());
      const auto name = decoded(pair.substr(0, equals));
      const auto value = decoded(pair.substr(std::min(equals + 1, pair.size())));
      if (!name || !value) {
        return refuse(400, "a percent sign in the query is not followed by two digits");
      }
      reading_.request.query.emplace(*name, *value);
    }
    return true;
  }

  bool read_headers(std::string_view lines) {
    for (size_t count = 0; !lines.empty(); ++count) {
      if (count == kMostHeaders) {
        return refuse(431, cat("the request has more than ", kMostHeaders, " header lines"));
      }
      const size_t end = std::min(lines.find("\r\n"), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 2, lines.size()));
      const size_t colon = line.find(':');
      const std::string_view name = line.substr(0, colon);
      if (colon == std::string_view::npos || name.empty() ||
          !std::all_of(name.begin(), name.end(), is_of_name)) {
        return refuse(400, "a header line is not NAME: VALUE");
      }
      if (!take_header(lower(name), trimmed(line.substr(colon + 1)))) return false;
    }
    return true;
  }

  bool take_header(const std::string& name, std::string_view value) {
    if (name == "transfer-encoding") {
      return refuse(501, "a body in chunks is not read: send Content-Length");
    }
    if (name == "authorization") {
      constexpr std::string_view kScheme = "bearer ";
      if (lower(value.substr(0, kScheme.size())) == kScheme) {
        reading_.request.bearer = trimmed(value.substr(kScheme.size()));
      }
      return true;
    }
    if (name != "content-length") return true;
    const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), is_digit);
    if (has_length_ || !digits) {
      return refuse(400, "Content-Length is not one whole number");
    }
    has_length_ = true;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), length_);
    if (read.ec != std::errc() || length_ > limits_.body) {
      return refuse(413, cat("the body of the request is longer than ", limits_.body, " bytes"));
    }
    return true;
  }

  const RequestLimits& limits_;
  RequestReading reading_;
  size_t length_ = 0;
  bool has_length_ = false;
};

}  // namespace

RequestReading read_request(std::string_view bytes, const RequestLimits& limits) {
  return Reader(limits).read(bytes);
}

HttpResponse refusal(int status, const std::string& sentence) {
  HttpResponse response;
  response.status = status;
  response.body = sentence + "\n";
  return response;
}

std::string to_bytes(const HttpResponse& response, bool with_body) {
  std::string bytes =
      cat("HTTP/1.1 ", response.status, " ", phrase_of(response.status), "\r\n",
          "Content-Type: ", response.type, "\r\n", "Content-Length: ", response.body.size(), "\r\n",
          "Cache-Control: no-store\r\n", "X-Content-Type-Options: nosniff\r\n",
          "Connection: close\r\n", response.headers, "\r\n");
  if (with_body) bytes += response.body;
  return bytes;
}

}  // namespace tenuto::page
