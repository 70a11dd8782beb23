#include "app/output_files.h"

#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace tenuto {

namespace {

namespace fs = std::filesystem;

// Whether both paths lead to the same file. False for devices and pipes: they may be named twice.
bool same_file(const std::string& one, const std::string& other) {
  std::error_code error;
  const fs::file_status status = fs::status(one, error);
  if (fs::exists(status)) {
    return fs::is_regular_file(status) && fs::equivalent(one, other, error) && !error;
  }
  const auto whole = [](const std::string& path) {
    std::error_code failed;
    const fs::path absolute = fs::absolute(path, failed);
    return failed ? fs::path(path) : fs::weakly_canonical(absolute, failed);
  };
  return whole(one) == whole(other);
}

}  // namespace

OutputFiles::~OutputFiles() {
  files_.clear();
  for (size_t i = folders_.size(); i-- > 0;) {
    std::error_code ignored;
    fs::remove(folders_[i], ignored);  // not removed if something is in it
  }
}

OutputFile* OutputFiles::find(const std::string& path) {
  for (auto& [name, file] : files_) {
    if (name == path) return &file;
  }
  return nullptr;
}

Status OutputFiles::open(const std::string& path) {
  if (path.empty() || find(path) != nullptr) return ok();
  auto file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  files_.emplace_back(path, std::move(file).value());
  return ok();
}

Status OutputFiles::make_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> missing;
  for (fs::path folder = path; !folder.empty() && !fs::exists(folder, error);
       folder = folder.parent_path()) {
    missing.push_back(folder.string());
    if (folder == folder.parent_path()) break;
  }
  folders_.insert(folders_.end(), missing.rbegin(), missing.rend());
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error) return ok();
  return Error{Code::Invalid, Reach::Job,
               cat("cannot make the folder ", path, ": ", error.message())};
}

Status OutputFiles::write(const std::string& path, std::string_view text) {
  if (const Status opened = open(path); !opened.ok()) return opened;
  return find(path)->write(text);
}

Status OutputFiles::finish() {
  for (auto& [path, file] : files_) {
    if (const Status named = file.finish(); !named.ok()) return named;
    folders_.clear();
  }
  return ok();
}

Status check_names(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [flag, path] = outputs[i];
    if (path.empty()) continue;
    for (const NamedFile& input : inputs) {
      if (input.path.empty() || !same_file(path, input.path)) continue;
      return invalid(
          cat(flag, " ", path, ": ", input.flag, " reads the same file; give another name"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (outputs[j].path.empty() || !same_file(path, outputs[j].path)) continue;
      return invalid(
          cat(flag, " ", path, ": ", outputs[j].flag, " writes the same file; give another name"));
    }
  }
  return ok();
}

}  // namespace tenuto
