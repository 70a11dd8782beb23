#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

// All of `text`, or the errno of what went wrong.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

}  // namespace

Error write_error(const std::string& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return {full ? Code::Exhausted : Code::Invalid, Reach::Job,
          cat("cannot write ", path, ": ", std::strerror(number),
              full ? "; make room there and continue with --resume" : "")};
}

Result<std::string> read_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return invalid(cat("cannot read ", path, ": ", std::strerror(errno)));
  std::string text;
  char buffer[65536];
  ssize_t count = 0;
  while ((count = ::read(descriptor, buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  const int failure = errno;
  ::close(descriptor);
  if (count < 0) return invalid(cat("cannot read ", path, ": ", std::strerror(failure)));
  return text;
}

Status write_file(const std::string& path, std::string_view text, unsigned mode) {
  const std::string unfinished = path + ".tmp";
  const int descriptor = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (descriptor < 0) return write_error(unfinished, errno);
  int failure = write_all(descriptor, text);
  if (failure == 0 && ::fsync(descriptor) != 0) failure = errno;
  ::close(descriptor);
  if (failure == 0 && ::rename(unfinished.c_str(), path.c_str()) != 0) failure = errno;
  if (failure != 0) {
    ::unlink(unfinished.c_str());
    return write_error(path, failure);
  }
  return sync_directory(std::filesystem::path(path).parent_path().string());
}

Status sync_directory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return write_error(name, errno);
  const int failure = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (failure != 0 && failure != EINVAL) return write_error(name, failure);
  return ok();
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<LineFile> LineFile::open(const std::string& path) {
  LineFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file.descriptor_ < 0) return write_error(path, errno);
  const off_t size = ::lseek(file.descriptor_, 0, SEEK_END);
  off_t whole = size;
  char last = 0;
  while (whole > 0 && ::pread(file.descriptor_, &last, 1, whole - 1) == 1 && last != '\n') --whole;
  if (whole < size && ::ftruncate(file.descriptor_, whole) != 0) return write_error(path, errno);
  return file;
}

Status LineFile::write(const std::string& line) {
  CHECK(descriptor_ >= 0, "a LineFile is opened before it is written");
  struct stat before;
  const bool known = ::fstat(descriptor_, &before) == 0;
  const int failure = write_all(descriptor_, line + "\n");
  if (failure == 0) return ok();
  // No half line stays behind.
  if (known && ::ftruncate(descriptor_, before.st_size) != 0) {
    return write_error(path_, failure);
  }
  return write_error(path_, failure);
}

}  // namespace tenuto
