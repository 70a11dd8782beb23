#include "run/iteration_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tenuto {

Result<IterationFile> IterationFile::open(const std::string& path, int32_t replicas,
                                          int64_t most_samples) {
  int64_t lines = 0;
  std::error_code failure;
  if (std::filesystem::exists(path, failure)) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) return text.error();
    lines = std::count(text.value().begin(), text.value().end(), '\n');
  }
  Result<LineFile> file = LineFile::open(path);
  if (!file.ok()) return file.error();
  IterationFile opened;
  opened.file_ = std::move(file).value();
  opened.left_ = most_samples - std::max<int64_t>(lines - 1, 0);
  if (lines > 0) return opened;
  const Status begun = opened.file_.write(recording_header("run", static_cast<size_t>(replicas)));
  if (!begun.ok()) return begun.error();
  return opened;
}

Status IterationFile::write(std::span<const IterationSample> round) {
  if (left_ < std::ssize(round)) return ok();
  left_ -= std::ssize(round);
  // One piece, so that no round is written in part.
  std::string lines;
  for (size_t replica = 0; replica < round.size(); ++replica) {
    if (replica > 0) lines += '\n';
    lines += sample_line(replica, round[replica]);
  }
  return file_.write(lines);
}

}  // namespace tenuto
