#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as many as the system follows
// How long to wait for a pipe to get a reader, and for a reader to take more bytes.
constexpr auto kReaderLimit = std::chrono::seconds(2);
constexpr int kTakingLimitMs = 60'000;

// Writes all of `text`. Returns 0 or the errno of the failure.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      pollfd waiting{descriptor, POLLOUT, 0};
      if (::poll(&waiting, 1, kTakingLimitMs) == 0) return ETIMEDOUT;
      continue;
    }
    if (count < 0) return errno;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

// Names the kind of something that is not a plain file.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Error read_error(const std::string& path, int number) {
  return invalid(cat("cannot read ", path, ": ", std::strerror(number)));
}

Error no_plain_file(const std::string& path, mode_t mode) {
  return invalid(cat("cannot read ", path, ": it is ", kind_of(mode), ", expected a plain file",
                     S_ISDIR(mode) ? ": name a file in it"
                                   : ": copy its contents into a file and name that file"));
}

Error too_large(const std::string& path, int64_t bytes, int64_t most) {
  return invalid(cat("cannot read ", path, ": it has ",
                     bytes > most ? cat(bytes, " bytes") : cat("more than ", most, " bytes"),
                     ", expected at most ", most, ": check that it is the right file"));
}

// The open descriptor of this process that a name in /proc stands for (/dev/stdout leads to one),
// or -1.
int descriptor_of(const fs::path& name) {
  std::error_code error;
  const fs::path folder = fs::canonical(name.parent_path(), error);
  if (error || folder != cat("/proc/", ::getpid(), "/fd")) return -1;
  const std::string number = name.filename().string();
  int descriptor = -1;
  const auto [end, failed] =
      std::from_chars(number.data(), number.data() + number.size(), descriptor);
  return failed == std::errc() && end == number.data() + number.size() ? descriptor : -1;
}

// Where a name leads through its symbolic links, whether there is a file or not.
struct Target {
  std::string path;
  int descriptor = -1;  // the name stands for this open descriptor
};
Result<Target> target_of(const std::string& path) {
  fs::path name = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    if (const int descriptor = descriptor_of(name); descriptor >= 0) {
      return Target{name.string(), descriptor};
    }
    if (!fs::is_symlink(fs::symlink_status(name, error))) return Target{name.string(), -1};
    const fs::path next = fs::read_symlink(name, error);
    if (error) return write_error(path, error.value());
    name = next.is_absolute() ? next : name.parent_path() / next;
  }
  return write_error(path, ELOOP);
}

// A name beside `target` that no other writer uses.
std::string name_beside(const std::string& target) {
  static std::atomic<int64_t> count = 0;
  return (fs::path(target).parent_path() / cat(".tenuto-", ::getpid(), "-", ++count, ".tmp"))
      .string();
}

std::string own_name(int descriptor) { return cat("/proc/self/fd/", descriptor); }

}  // namespace

Error write_error(const std::string& path, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return {full ? Code::Exhausted : Code::Invalid, Reach::Job,
          cat("cannot write ", path, ": ", std::strerror(number),
              full ? "; free some space there and run the command again" : "")};
}

Error not_wanted(const std::string& path) {
  return {Code::Cancelled, Reach::Call, cat(path, ": its rest is not wanted any more")};
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<InputFile> InputFile::open(const std::string& path) {
  // Check the kind of the file before opening it: opening a device can have side effects.
  struct stat about;
  if (::stat(path.c_str(), &about) != 0) return read_error(path, errno);
  if (!S_ISREG(about.st_mode)) return no_plain_file(path, about.st_mode);
  InputFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &about) != 0) {
    return read_error(path, errno);
  }
  if (!S_ISREG(about.st_mode)) return no_plain_file(path, about.st_mode);
  file.size_ = about.st_size;
  return file;
}

Result<size_t> InputFile::read(int64_t from, std::span<std::byte> into) const {
  CHECK(descriptor_ >= 0, "a file is opened before it is read");
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t count = ::pread(descriptor_, into.data() + done, into.size() - done,
                                  from + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return read_error(path_, errno);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

Result<std::string> read_file(const std::string& path, int64_t most) {
  const auto file = InputFile::open(path);
  if (!file.ok()) return file.error();
  return read_file(file.value(), most);
}

Result<std::string> read_file(const InputFile& file, int64_t most) {
  if (file.size() > most) return too_large(file.path(), file.size(), most);
  constexpr size_t kBlock = 1 << 16;
  std::string text;
  while (true) {
    // The files of /proc report a size of 0, so only reading finds the end.
    const size_t before = text.size();
    text.resize(std::max(before + kBlock, before == 0 ? static_cast<size_t>(file.size()) + 1 : 0));
    const auto count = file.read(static_cast<int64_t>(before),
                                 std::as_writable_bytes(std::span(text).subspan(before)));
    if (!count.ok()) return count.error();
    const bool ended = count.value() < text.size() - before;
    text.resize(before + count.value());
    if (static_cast<int64_t>(text.size()) > most) return too_large(file.path(), 0, most);
    if (ended) return text;
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      unfinished_(std::exchange(other.unfinished_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path, unsigned mode) {
  const auto target = target_of(path);
  if (!target.ok()) return target.error();
  OutputFile file;
  file.path_ = path;
  if (target.value().descriptor >= 0) {
    file.descriptor_ = ::fcntl(target.value().descriptor, F_DUPFD_CLOEXEC, 0);
    if (file.descriptor_ < 0) return write_error(path, errno);
    return file;
  }
  const std::string& name = target.value().path;
  struct stat about;
  const bool there = ::stat(name.c_str(), &about) == 0;
  if (!there && errno != ENOENT) return write_error(path, errno);
  const bool plain = !there || S_ISREG(about.st_mode);
  if (const Status opened = plain ? file.open_unfinished(name, mode) : file.open_in_place(name);
      !opened.ok()) {
    return opened.error();
  }
  if (there && plain) {
    // The new file replaces the old one: the old one must be writable, and the new one gets its
    // owner and its rights, reduced to `mode` where the caller asks for a stricter one.
    if (::access(name.c_str(), W_OK) != 0) return write_error(path, errno);
    [[maybe_unused]] const int owned = ::fchown(file.descriptor_, about.st_uid, about.st_gid);
    if (::fchmod(file.descriptor_, about.st_mode & (mode == 0644 ? 0777 : mode)) != 0) {
      return write_error(path, errno);
    }
  }
  return file;
}

// Opens a file without a name if the file system can: it vanishes when the process is killed.
Status OutputFile::open_unfinished(const std::string& target, unsigned mode) {
  target_ = target;
  const std::string parent = fs::path(target).parent_path().string();
  const char* folder = parent.empty() ? "." : parent.c_str();
  descriptor_ = ::open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (descriptor_ >= 0 && ::access(own_name(descriptor_).c_str(), F_OK) == 0) return ok();
  if (descriptor_ >= 0) ::close(descriptor_);
  const std::string name = name_beside(target);
  descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (descriptor_ < 0) return write_error(path_, errno);
  unfinished_ = name;
  return ok();
}

Status OutputFile::open_in_place(const std::string& target) {
  // Opening a pipe without a reader fails; a pipe that is new may still get its reader.
  const auto end = std::chrono::steady_clock::now() + kReaderLimit;
  while (true) {
    descriptor_ = ::open(target.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor_ >= 0) return ok();
    if (errno != ENXIO) return write_error(path_, errno);
    if (std::chrono::steady_clock::now() >= end) {
      return Error{Code::Invalid, Reach::Job,
                   cat("cannot write ", path_,
                       ": it is a pipe or a device without a reader: "
                       "start its reader first, or name a file")};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  return write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Status OutputFile::write(std::string_view text) {
  CHECK(descriptor_ >= 0, "a file is created before it is written");
  const int failure = write_all(descriptor_, text);
  return failure == 0 ? ok() : Status(write_error(path_, failure));
}

Status OutputFile::finish() {
  int failure = ::fsync(descriptor_) == 0 ? 0 : errno;
  if (target_.empty()) {
    // Pipes and devices, which are written in place, often do not support fsync.
    if (failure == EINVAL || failure == EROFS || failure == ENOTSUP) failure = 0;
  } else if (failure == 0 && unfinished_.empty()) {
    unfinished_ = name_beside(target_);
    if (::linkat(AT_FDCWD, own_name(descriptor_).c_str(), AT_FDCWD, unfinished_.c_str(),
                 AT_SYMLINK_FOLLOW) != 0) {
      failure = errno;
    }
  }
  if (::close(std::exchange(descriptor_, -1)) != 0 && failure == 0) failure = errno;
  if (target_.empty() || failure != 0) {
    return failure == 0 ? ok() : Status(write_error(path_, failure));
  }
  if (::rename(unfinished_.c_str(), target_.c_str()) != 0) return write_error(path_, errno);
  unfinished_.clear();
  return sync_directory(fs::path(target_).parent_path().string());
}

Status write_file(const std::string& path, std::string_view text, unsigned mode) {
  auto file = OutputFile::create(path, mode);
  if (!file.ok()) return file.error();
  if (const Status written = file.value().write(text); !written.ok()) return written;
  return file.value().finish();
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
  // Remove the incomplete line.
  if (known && ::ftruncate(descriptor_, before.st_size) != 0) {
    return write_error(path_, failure);
  }
  return write_error(path_, failure);
}

}  // namespace tenuto
