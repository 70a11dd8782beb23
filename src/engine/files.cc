#include "engine/files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

Error refuse(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

// Where a file was named: by the user, or found in a folder.
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
  for (const auto& [path, named] : found) {
    std::ifstream stream(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (!stream) return refuse(cat("data.paths: cannot read ", path, ": is it a readable file?"));
    if (bytes.find('\0') != std::string::npos) {
      if (named) return refuse(cat("data.paths: ", path, " has NUL bytes: it is not text"));
      continue;
    }
    files.push_back({path, std::move(bytes)});
  }
  if (files.empty()) {
    return refuse(cat("data.paths: no file without NUL bytes in ", paths.front(),
                      paths.size() > 1 ? " and the others" : "", ": name text files"));
  }
  return files;
}

}  // namespace tenuto
