// A page for eyes: one HTML file, nothing beside it, that shows when every op runs, as promised and
// as measured, and why it did not run sooner.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "sim/price.h"

namespace tenuto {

// What a page shows. The plan and the timeline must outlive it.
struct PageContent {
  std::string title;   // plain text
  std::string reason;  // plain text: where the promise comes from
  const Plan& plan;
  const Timeline& promised;     // with spans
  std::vector<Span> measured;   // as spans_of returns them; empty: the page shows the promise alone
  std::string measured_source;  // plain text: where they come from
};

// Writes the page. It holds its own script and style and asks no network for anything. Compute ops
// and, on thin rows that can be switched on, messages and reductions; a summary in words and a
// table of what each worker's time went into can be read without the picture. The address may end
// in #from=MS&to=MS (the stretch shown), &messages=1 and &op=LINE.WORKER.INDEX (pointed at).
//
// Shapes: spans are of workers of plan.schedule.lists
// Cost:   about 20 bytes an op
void write_page(std::ostream& out, const PageContent& content);

}  // namespace tenuto
