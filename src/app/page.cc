#include "app/page.h"

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/text.h"
#include "sim/trace.h"
#include "sim/trace_reader.h"

namespace tenuto {

Result<Measured> read_measured(const std::string& path, const Plan& plan) {
  namespace fs = std::filesystem;
  Measured measured;
  measured.path = path;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    int64_t newest = -1;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      newest = std::max(newest, step_of_trace(entry.path().filename().string()));
    }
    if (newest < 0) {
      return invalid(cat(path,
                         " has no trace-STEP.json: list steps in job.trace_steps and run the "
                         "job again"));
    }
    measured.path = (fs::path(path) / trace_file_name(newest)).string();
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
