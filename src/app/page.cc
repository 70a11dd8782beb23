#include "app/page.h"

#include <charconv>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "sim/trace_reader.h"

namespace tenuto {

namespace {

// The step in "trace-STEP.json", or -1.
int64_t traced_step(std::string_view name) {
  constexpr std::string_view kStart = "trace-", kEnd = ".json";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd)) return -1;
  name = name.substr(kStart.size(), name.size() - kStart.size() - kEnd.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

}  // namespace

Result<Measured> read_measured(const std::string& path, const Plan& plan) {
  namespace fs = std::filesystem;
  Measured measured;
  measured.path = path;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    int64_t newest = -1;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      newest = std::max(newest, traced_step(entry.path().filename().string()));
    }
    if (newest < 0) {
      return invalid(cat(path,
                         " has no trace-STEP.json: list steps in job.trace_steps and run the "
                         "job again"));
    }
    measured.path = (fs::path(path) / cat("trace-", newest, ".json")).string();
  }
  const auto text = read_file(measured.path);
  if (!text.ok()) return text.error();
  auto spans = spans_of_trace(text.value(), measured.path, plan);
  if (!spans.ok()) return spans.error();
  measured.spans = std::move(spans).value();
  return measured;
}

Status write_page_file(const std::string& path, const PageContent& content) {
  std::ostringstream text;
  write_page(text, content);
  return write_file(path, text.str());
}

}  // namespace tenuto
