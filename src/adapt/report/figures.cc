#include "adapt/report/figures.h"

#include <algorithm>
#include <utility>

#include "base/cut_text.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto {

double milliseconds(double nanoseconds) { return nanoseconds / 1e6; }

std::string ms_text(double nanoseconds) { return fixed(milliseconds(nanoseconds), 3); }

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string counted(size_t count, const char* what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

std::string bytes_text(double bytes) {
  const std::vector<std::pair<double, const char*>> units = {
      {1099511627776.0, " TiB"}, {1073741824.0, " GiB"}, {1048576.0, " MiB"}, {1024.0, " KiB"}};
  for (const auto& [size, name] : units) {
    if (bytes >= size) return fixed(bytes / size, 2) + name;
  }
  return fixed(bytes, 0) + " B";
}

double busy_time(const LayoutLoads& loads, const StageLoad& stage) {
  return loads.micros * stage.both() + stage.reduction;
}

double busy_time(const LayoutLoads& loads, const LinkLoad& link) {
  return loads.micros * (loads.half_duplex ? link.both() : std::max(link.forward, link.backward));
}

Busy busiest(const LayoutLoads& loads) {
  Busy most;
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    const double time = busy_time(loads, loads.stages[n]);
    if (time > most.time) most = {false, n, time};
  }
  for (size_t n = 0; n < loads.links.size(); ++n) {
    const double time = busy_time(loads, loads.links[n]);
    if (time > most.time) most = {true, n, time};
  }
  return most;
}

std::string name_of(const Busy& busy) {
  return busy.link ? cat("link ", busy.index, "-", busy.index + 1) : cat("stage ", busy.index);
}

std::string ranges_text(std::vector<int32_t> numbers) {
  constexpr size_t kMost = 40;
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (text.size() > kMost) return cat(text, ",... (", numbers.size(), ")");
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? cat(numbers[i]) : cat(numbers[i], "-", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string layers_text(const std::vector<std::string>& names, const Stage& stage) {
  constexpr size_t kMost = 20;
  const auto name = [&](int32_t layer) {
    return shortened(excerpt(names[static_cast<size_t>(layer)]), kMost);
  };
  const int32_t first = stage.layer_first, last = stage.layer_end - 1;
  if (first == last) return cat(first, ": ", name(first));
  return cat(first, "-", last, ": ", name(first), " to ", name(last));
}

std::string lines_of(const std::vector<Fact>& facts) {
  constexpr size_t kMargin = 12;
  std::string text;
  for (const Fact& fact : facts) {
    std::string name = fact.name;
    name.resize(std::max(name.size() + 1, kMargin), ' ');
    text += cat(name, fact.text, "\n");
  }
  return text;
}

}  // namespace tenuto
