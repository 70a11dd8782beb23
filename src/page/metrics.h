// A snapshot in the text format 0.0.4 of Prometheus.
#pragma once

#include <string>
#include <vector>

#include "page/snapshot.h"
#include "page/state_json.h"

namespace tenuto::page {

// The Content-Type of the text.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// The names of all metrics that there can be. docs/grafana-dashboard.json uses no other ones.
std::vector<std::string> metric_names();

// All metrics. Those whose value is not known are left out. Labels name workers, pairs of workers
// and states, so there are as many lines as there are of these, and no more with time.
std::string metrics_text(const Snapshot& snapshot, const std::vector<Promise>& promises);

}  // namespace tenuto::page
