// A page for people: one self-contained HTML file that shows when every op runs, as predicted and
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
  std::string reason;  // plain text: where the prediction comes from
  const Plan& plan;
  const Timeline& promised;     // with spans
  std::vector<Span> measured;   // as spans_of returns them; empty: only the prediction is shown
  std::string measured_source;  // plain text: where they come from
};

// Writes the page. It contains its own script and style and loads nothing from the network. It
// shows compute ops and, on thin rows that can be switched on, messages and reductions. A summary
// in words and a table of what each worker's time went into can be read without the picture. The
// address may end in #from=MS&to=MS (the range shown), &messages=1 and &op=LINE.WORKER.INDEX (the
// op pointed at; line 0 = predicted, 1 = measured).
//
// Shapes: spans are of workers of plan.schedule.lists
// Cost:   about 20 bytes an op
void write_page(std::ostream& out, const PageContent& content);

}  // namespace tenuto
