// A snapshot as the JSON that the page's script reads: docs/page.md has the fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "page/snapshot.h"

namespace tenuto::page {

// How long a step should take under the plan that is in force from step `from` on.
struct Promise {
  int64_t from = 0;
  double seconds = 0;
  std::string plan;
};

// All but the events as a JSON object without its last brace, so that one text serves all clients.
std::string state_text(const Snapshot& snapshot, const std::vector<Promise>& promises);

// The whole object: `text` is what state_text() has returned, with the events after `since`.
std::string with_events(const std::string& text, const History& history, int64_t since);

}  // namespace tenuto::page
