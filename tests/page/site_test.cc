// Who may read what at which path.
#include "page/site.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "some_run.h"

namespace tenuto::page {
namespace {

class Fake : public Source {
 public:
  std::shared_ptr<const Picture> look() override { return picture; }
  bool ask(int64_t ticket, const std::string& wish) override {
    if (asked.size() == 2) return false;
    asked.emplace_back(ticket, wish);
    return true;
  }
  void show(Snapshot snapshot) {
    picture = std::make_shared<const Picture>(Picture{std::move(snapshot), {}});
  }

  std::shared_ptr<const Picture> picture;
  std::vector<std::pair<int64_t, std::string>> asked;
};

class SiteTest : public testing::Test {
 protected:
  // The answer to a request that needs no answer from the coordinator.
  HttpResponse ask(const std::string& method, const std::string& path,
                   std::map<std::string, std::string> query = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.query = std::move(query);
    request.bearer = "secret";
    const auto response = site.answer(request, 1);
    EXPECT_TRUE(response.has_value());
    return response.value_or(HttpResponse());
  }
  std::optional<HttpResponse> inject(const std::string& wish, int64_t ticket) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/api/inject";
    request.bearer = "secret";
    request.body = wish;
    return site.answer(request, ticket);
  }

  Fake source;
  Site site{"secret", source};
};

TEST_F(SiteTest, RefusesWithoutTheToken) {
  source.show(some_run());
  for (const char* path : {"/", "/api/state", "/metrics", "/api/inject", "/other"}) {
    for (const char* token : {"", "secre", "secrets", "Secret"}) {
      HttpRequest request;
      request.method = "GET";
      request.path = path;
      request.query["token"] = token;
      EXPECT_EQ(site.answer(request, 1)->status, 403) << path << " " << token;
      request.bearer = token;
      EXPECT_EQ(site.answer(request, 1)->status, 403) << path << " " << token;
    }
  }
  EXPECT_TRUE(source.asked.empty());
  HttpRequest request;
  request.method = "GET";
  request.path = "/metrics";
  request.query["token"] = "secret";
  EXPECT_EQ(site.answer(request, 1)->status, 200);
}

TEST_F(SiteTest, SaysWhatIsThere) {
  source.show(some_run());
  EXPECT_EQ(ask("GET", "/other").status, 404);
  EXPECT_EQ(ask("POST", "/metrics").status, 405);
  EXPECT_EQ(ask("GET", "/api/inject").headers, "Allow: POST\r\n");
  EXPECT_EQ(ask("GET", "/metrics").type, "text/plain; version=0.0.4; charset=utf-8");
}

TEST_F(SiteTest, HasNothingBeforeTheFirstPicture) {
  EXPECT_EQ(ask("GET", "/api/state").status, 503);
  EXPECT_EQ(ask("GET", "/metrics").status, 503);
  EXPECT_EQ(ask("GET", "/").status, 200);
}

TEST_F(SiteTest, ShowsTheNewestPicture) {
  Snapshot run = some_run();
  source.show(run);
  const auto step = [this] {
    return nlohmann::json::parse(ask("GET", "/api/state").body)["step"].get<int64_t>();
  };
  EXPECT_EQ(step(), 2);
  const std::string metrics = ask("GET", "/metrics").body;
  EXPECT_EQ(ask("GET", "/metrics").body, metrics);
  run.step = 3;
  source.show(run);
  EXPECT_EQ(step(), 3);
  EXPECT_NE(ask("GET", "/metrics").body, metrics);
}

TEST_F(SiteTest, TellsTheEventsAfterANumber) {
  source.show(some_run());
  const auto count = [this](const std::string& since) {
    return nlohmann::json::parse(ask("GET", "/api/state", {{"since", since}}).body)["events"]
        .size();
  };
  EXPECT_EQ(count("0"), 2u);
  EXPECT_EQ(count("1"), 1u);
  EXPECT_EQ(count("99"), 0u);
  for (const char* since : {"", "-1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(ask("GET", "/api/state", {{"since", since}}).status, 400) << since;
  }
}

TEST_F(SiteTest, HandsOnWishes) {
  EXPECT_EQ(inject("\r\n", 5)->status, 400);
  EXPECT_FALSE(inject("link=0-1:30ms\n", 6).has_value());
  EXPECT_FALSE(inject("checkpoint", 7).has_value());
  EXPECT_EQ(inject("checkpoint", 8)->status, 503);
  const std::vector<std::pair<int64_t, std::string>> asked = {{6, "link=0-1:30ms"},
                                                              {7, "checkpoint"}};
  EXPECT_EQ(source.asked, asked);
  EXPECT_EQ(wish_answer("done", "").body, "{\"answer\":\"done\"}");
  EXPECT_EQ(wish_answer("", "no").body, "{\"error\":\"no\"}");
  EXPECT_EQ(wish_answer("", "no").status, 400);
}

TEST_F(SiteTest, LoadsNothingFromElsewhere) {
  const HttpResponse page = ask("GET", "/");
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_NE(page.headers.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.headers.find("Referrer-Policy: no-referrer"), std::string::npos);
  std::string text = page.body;
  const std::string names = "http://www.w3.org/2000/svg";  // a name, which nothing loads
  const size_t found = text.find(names);
  ASSERT_NE(found, std::string::npos);
  text.erase(found, names.size());
  EXPECT_FALSE(std::regex_search(text, std::regex("https?:|\\bsrc=|url\\(|@import")));
}

}  // namespace
}  // namespace tenuto::page
