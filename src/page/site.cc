#include "page/site.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "page/live_parts.h"
#include "page/metrics.h"

namespace tenuto::page {
namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kJson = "application/json";

// The browser loads nothing, and sends the address with its token to nobody.
constexpr const char* kPageHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n";

const std::string& page_text() {
  static const std::string text =
      cat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
          "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" "
          "href=\"data:,\">\n<title>tenuto</title>\n<style>\n",
          kLiveStyle, "</style>\n</head>\n<body>\n", kLiveFrame, "<script>\n", kLiveScript,
          "</script>\n</body>\n</html>\n");
  return text;
}

// Takes as long for a wrong text as for the right one of its length.
bool is_same(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned>(static_cast<unsigned char>(secret[i % secret.size()]));
  }
  return difference == 0;
}

HttpResponse wrong_method(const char* allowed) {
  HttpResponse response = refusal(405, cat("only ", allowed, " is possible here"));
  response.headers = cat("Allow: ", allowed, "\r\n");
  return response;
}

HttpResponse json_answer(int status, const nlohmann::ordered_json& json) {
  HttpResponse response;
  response.status = status;
  response.type = kJson;
  response.body = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return response;
}

HttpResponse too_early() { return refusal(503, "the run has shown nothing yet: try again soon"); }

}  // namespace

Site::Site(std::string token, Source& source) : token_(std::move(token)), source_(source) {
  CHECK(!token_.empty(), "the page has a token");
}

bool Site::knows_token(const HttpRequest& request) const {
  if (!request.bearer.empty()) return is_same(request.bearer, token_);
  const auto found = request.query.find("token");
  return found != request.query.end() && is_same(found->second, token_);
}

std::optional<HttpResponse> Site::answer(const HttpRequest& request, int64_t ticket) {
  if (!knows_token(request)) {
    return refusal(403,
                   "the token is missing or wrong: open the address that the run has printed, "
                   "which is also in page.url in the folder of the run");
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/api/inject") {
    return request.method == "POST" ? inject(request, ticket) : wrong_method("POST");
  }
  if (request.path != "/" && request.path != "/api/state" && request.path != "/metrics") {
    return refusal(404, "there is nothing here: expected /, /api/state, /metrics or /api/inject");
  }
  if (!reads) return wrong_method("GET");
  if (request.path == "/api/state") return state(request);
  if (request.path == "/metrics") return metrics();
  HttpResponse response;
  response.type = kHtml;
  response.body = page_text();
  response.headers = kPageHeaders;
  return response;
}

// Takes the newest picture. What was made of the one before is of no use then.
bool Site::refresh() {
  std::shared_ptr<const Picture> newest = source_.look();
  if (newest != picture_) {
    picture_ = std::move(newest);
    state_text_.clear();
    metrics_text_.clear();
  }
  return picture_ != nullptr;
}

HttpResponse Site::state(const HttpRequest& request) {
  int64_t since = 0;
  if (const auto found = request.query.find("since"); found != request.query.end()) {
    const std::string& text = found->second;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), since);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || since < 0) {
      return refusal(400,
                     "since is not the number of an event: expected 0 or the serial that the "
                     "answer before has told");
    }
  }
  if (!refresh()) return too_early();
  if (state_text_.empty()) state_text_ = state_text(picture_->snapshot, picture_->promises);
  HttpResponse response;
  response.type = kJson;
  response.body = with_events(state_text_, picture_->snapshot.history, since);
  return response;
}

HttpResponse Site::metrics() {
  if (!refresh()) return too_early();
  if (metrics_text_.empty()) metrics_text_ = metrics_text(picture_->snapshot, picture_->promises);
  HttpResponse response;
  response.type = kMetricsType;
  response.body = metrics_text_;
  return response;
}

std::optional<HttpResponse> Site::inject(const HttpRequest& request, int64_t ticket) {
  std::string_view wish = request.body;
  while (!wish.empty() && (wish.back() == '\n' || wish.back() == '\r')) wish.remove_suffix(1);
  if (wish.empty()) {
    return wish_answer("", "the body is empty: expected a wish, such as checkpoint");
  }
  if (source_.ask(ticket, std::string(wish))) return std::nullopt;
  return refusal(503, "other wishes wait for their answers already: try again in a second");
}

HttpResponse wish_answer(const std::string& text, const std::string& failure) {
  nlohmann::ordered_json json;
  json[failure.empty() ? "answer" : "error"] = failure.empty() ? text : failure;
  return json_answer(failure.empty() ? 200 : 400, json);
}

}  // namespace tenuto::page
