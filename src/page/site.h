// What is at which path of the page's server, and who may read it.
//
//   GET  /                    the page
//   GET  /api/state?since=N   the run as JSON, with the events after number N
//   GET  /metrics             the run in the text format of Prometheus
//   POST /api/inject          a wish, as `tenuto inject` takes it, is the body
//
// Each needs the token, as ?token=TOKEN or as `Authorization: Bearer TOKEN`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "page/http.h"
#include "page/snapshot.h"
#include "page/state_json.h"

namespace tenuto::page {

// What is shown at a moment.
struct Picture {
  Snapshot snapshot;
  std::vector<Promise> promises;  // of the plans so far, the one in force last
};

// Where pictures come from and wishes go to.
class Source {
 public:
  virtual ~Source() = default;
  // The newest picture; null before the first. The same pointer as before: nothing is new.
  virtual std::shared_ptr<const Picture> look() = 0;
  // Hands on a wish; its answer goes to the request with this ticket. False: there are too many.
  virtual bool ask(int64_t ticket, const std::string& wish) = 0;
};

// Answers requests. It belongs to one thread.
class Site {
 public:
  // `source` must outlive it. Requires: `token` is not empty
  Site(std::string token, Source& source);

  // The answer; none = the wish is handed on, and the answer comes later.
  std::optional<HttpResponse> answer(const HttpRequest& request, int64_t ticket);

 private:
  bool knows_token(const HttpRequest& request) const;
  HttpResponse state(const HttpRequest& request);
  HttpResponse metrics();
  std::optional<HttpResponse> inject(const HttpRequest& request, int64_t ticket);
  bool refresh();

  const std::string token_;
  Source& source_;
  std::shared_ptr<const Picture> picture_;
  // Made of picture_; empty = not yet.
  std::string state_text_, metrics_text_;
};

// The answer to a wish, once the coordinator has said it. `failure`: one sentence; empty = `text`
// is the answer.
HttpResponse wish_answer(const std::string& text, const std::string& failure);

}  // namespace tenuto::page
