#include "sim/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "base/longest_time.h"
#include "base/text.h"
#include "sim/timeline.h"

namespace tenuto {

namespace {

using Json = nlohmann::json;

// A worker's ops by their name in a trace; each is taken once.
using OpsByName = std::unordered_map<std::string, const Op*>;

// Microseconds with decimals as whole nanoseconds.
Duration nanoseconds(const Json& number) { return from_nanoseconds(number.get<double>() * 1000); }

bool is_number(const Json& row, const char* field) {
  return row.contains(field) && row[field].is_number() && std::isfinite(row[field].get<double>()) &&
         std::abs(row[field].get<double>()) < 1e15;
}

// Micro-batches of the held-out pass are numbered on from the step's.
bool is_held_out(const Json& row, const Plan& plan) {
  if (!row.contains("args") || !row["args"].is_object()) return false;
  const Json& arguments = row["args"];
  return arguments.contains("micro") && arguments["micro"].is_number_integer() &&
         arguments["micro"].get<int64_t>() >= plan.schedule.micro_count;
}

// The op of one row, and its times.
Result<Span> span_of(const Json& row, const std::string& place, std::vector<OpsByName>& ops) {
  if (!row.contains("name") || !row["name"].is_string() || !row.contains("pid") ||
      !row["pid"].is_number_integer() || !is_number(row, "ts") || !is_number(row, "dur")) {
    return invalid(cat(place, ": expected name, pid, ts and dur as tenuto writes them"));
  }
  const std::string name = row["name"].get<std::string>();
  const int64_t worker = row["pid"].get<int64_t>();
  const auto none = [&](const char* what) {
    return Error{Code::Invalid, Reach::Job,
                 cat(place, ": worker ", worker, " ", what, " ", name,
                     ": the trace must be of one step of this very plan")};
  };
  if (worker < 0 || static_cast<size_t>(worker) >= ops.size()) return none("is not there, nor has");
  const auto found = ops[static_cast<size_t>(worker)].find(name);
  if (found == ops[static_cast<size_t>(worker)].end()) return none("has in the plan no op");
  if (found->second == nullptr) return none("has twice the op");
  Span span;
  span.worker = {static_cast<int32_t>(worker)};
  span.op = *found->second;
  span.start = nanoseconds(row["ts"]);
  span.finish = span.start + std::max(Duration{}, nanoseconds(row["dur"]));
  found->second = nullptr;
  return span;
}

}  // namespace

Result<std::vector<Span>> spans_of_trace(std::string_view text, const std::string& path,
                                         const Plan& plan) {
  const Json tree = Json::parse(text, nullptr, false);
  if (!tree.is_object() || !tree.contains("traceEvents") || !tree["traceEvents"].is_array()) {
    return invalid(cat(path, ": expected a Chrome trace, an object with the list traceEvents"));
  }
  std::vector<OpsByName> ops(plan.schedule.lists.size());
  for (size_t w = 0; w < ops.size(); ++w) {
    for (const Op& op : plan.schedule.lists[w]) ops[w][trace_name(op, plan.split_backward)] = &op;
  }
  std::vector<Span> spans;
  const Json& rows = tree["traceEvents"];
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    if (!row.is_object() || !row.contains("ph") || row["ph"] != "X") continue;
    if (row.contains("cat")) continue;  // promised, or a time in which no op ran
    if (is_held_out(row, plan)) continue;
    auto span = span_of(row, cat(path, ": traceEvents[", i, "]"), ops);
    if (!span.ok()) return span.error();
    // The whole backward has been measured as B.
    if (!plan.split_backward && span.value().op.kind == OpKind::BackwardWeight) continue;
    spans.push_back(std::move(span).value());
  }
  if (spans.empty()) return invalid(cat(path, ": the trace shows no op"));
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.worker, a.start) < std::tie(b.worker, b.start);
  });
  Duration first = spans.front().start;
  for (const Span& span : spans) first = std::min(first, span.start);
  for (Span& span : spans) {
    span.start -= first;
    span.finish -= first;
  }
  return spans;
}

}  // namespace tenuto
