#include "engine/files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

Error refuse(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

// The limit for all files together: a worker holds them in memory.
constexpr int64_t kMostBytes = int64_t{16} << 30;

// Files by path: true = the user named it, false = it was found in a folder.
using Found = std::map<std::string, bool>;

Status find_in(const std::string& folder, Found& found) {
  std::error_code failure;
  fs::recursive_directory_iterator walk(folder, failure), end;
  while (!failure && walk != end) {
    const fs::file_status status = walk->symlink_status(failure);
    if (failure) break;
    if (fs::is_regular_file(status)) found.emplace(walk->path().string(), false);
    walk.increment(failure);
  }
  if (failure) return refuse(cat("data.paths: cannot read ", folder, ": ", failure.message()));
  return ok();
}

using Text = std::optional<std::string>;

// The bytes of a file, at most `left`; nothing when it has NUL bytes. Most files that are not text
// have one near the start, so the start is read first.
Result<Text> text_of(const std::string& path, int64_t left) {
  const auto file = InputFile::open(path);
  if (!file.ok()) return file.error();
  std::array<std::byte, 4096> start;
  const auto count = file.value().read(0, start);
  if (!count.ok()) return count.error();
  const auto begun = std::span(start).first(count.value());
  if (std::find(begun.begin(), begun.end(), std::byte{0}) != begun.end()) return Text{};
  auto bytes = read_file(file.value(), left);
  if (!bytes.ok()) return bytes.error();
  if (bytes.value().find('\0') != std::string::npos) return Text{};
  return Text(std::move(bytes).value());
}

}  // namespace

Result<std::vector<UserFile>> read_user_files(const std::vector<std::string>& paths) {
  if (paths.empty()) return refuse("data.paths is empty: name files or folders to learn from");
  Found found;
  for (const std::string& path : paths) {
    std::error_code failure;
    if (fs::is_directory(path, failure)) {
      if (Status walked = find_in(path, found); !walked.ok()) return walked.error();
    } else if (fs::exists(path, failure)) {
      found[path] = true;
    } else {
      return refuse(cat("data.paths: there is no ", path, ": name an existing file or folder"));
    }
  }
  std::vector<UserFile> files;
  int64_t left = kMostBytes;
  for (const auto& [path, named] : found) {
    auto bytes = text_of(path, left);
    if (!bytes.ok()) return refuse(cat("data.paths: ", bytes.error().message));
    if (!bytes.value()) {
      if (named) return refuse(cat("data.paths: ", path, " has NUL bytes: it is not text"));
      continue;
    }
    left -= static_cast<int64_t>(bytes.value()->size());
    files.push_back({path, std::move(*bytes.value())});
  }
  if (files.empty()) {
    return refuse(cat("data.paths: no file without NUL bytes in ", paths.front(),
                      paths.size() > 1 ? " and the others" : "", ": name text files"));
  }
  return files;
}

}  // namespace tenuto
