#include "control/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

std::string checksum_of(std::string_view text) {
  std::string digits(8, '0');
  uint32_t sum = crc32c(std::as_bytes(std::span(text)));
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, sum >>= 4) {
    *digit = "0123456789abcdef"[sum & 15];
  }
  return digits;
}

// A line of the journal: checksum, space, facts.
std::string line_of(const Facts& facts) {
  const std::string text = to_json(facts);
  return cat(checksum_of(text), ' ', text, '\n');
}

// The facts in a complete line, as text; none when the checksum is wrong.
std::optional<std::string_view> content_of(std::string_view line) {
  if (line.size() < 9 || line[8] != ' ') return std::nullopt;
  const std::string_view text = line.substr(9);
  if (line.substr(0, 8) != checksum_of(text)) return std::nullopt;
  return text;
}

// The last facts of a journal, and how many of its bytes are intact.
struct Past {
  Facts facts;
  size_t whole = 0;
};

Result<Past> past_of(std::string_view all, const std::string& path) {
  Past past;
  int line = 0;
  while (past.whole < all.size()) {
    ++line;
    const size_t end = all.find('\n', past.whole);
    const bool last = end == std::string_view::npos || end + 1 == all.size();
    const auto content = end == std::string_view::npos
                             ? std::nullopt
                             : content_of(all.substr(past.whole, end - past.whole));
    const std::string origin = cat(path, ", line ", line);
    if (!content) {
      if (last) break;
      return Error{Code::Corrupt, Reach::Job,
                   cat(origin,
                       ": its checksum is not that of its text: the file was damaged; "
                       "continue from a checkpoint without it")};
    }
    Result<Facts> facts = facts_from_json(*content, origin);
    if (!facts.ok()) return facts.error();
    past = {facts.value(), end + 1};
  }
  return past;
}

class Journal : public Store {
 public:
  explicit Journal(std::string path) : path_(std::move(path)) {}
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  Status open() {
    const Status claimed = claim();
    if (!claimed.ok()) return claimed;
    const Result<std::string> all = read_file(path_);
    if (!all.ok()) return all.error();
    const Result<Past> past = past_of(all.value(), path_);
    if (!past.ok()) return past.error();
    facts_ = past.value().facts;
    size_ = static_cast<int64_t>(past.value().whole);
    if (past.value().whole == all.value().size()) return ok();
    return ::ftruncate(descriptor_, size_) == 0 ? ok() : Status(write_error(path_, errno));
  }

  Status write(const Facts& facts) override {
    if (facts == facts_ && size_ > 0) return ok();
    const Status written = size_ < kMostBytes ? append(line_of(facts)) : replace(line_of(facts));
    if (written.ok()) facts_ = facts;
    return written;
  }

  Facts read() const override { return facts_; }

 private:
  // If another process has replaced the journal between open and lock, the locked file is not the
  // journal any more: try again.
  Status claim() {
    while (true) {
      if (descriptor_ >= 0) ::close(descriptor_);
      descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (descriptor_ < 0) return write_error(path_, errno);
      if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        return invalid(cat(path_, ": another coordinator has it open; two cannot lead one run"));
      }
      struct stat mine, named;
      if (::fstat(descriptor_, &mine) != 0) return write_error(path_, errno);
      if (::stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino) return ok();
    }
  }

  Status append(std::string_view line) {
    const std::string_view whole = line;
    while (!line.empty()) {
      const ssize_t count = ::pwrite(descriptor_, line.data(), line.size(),
                                     size_ + static_cast<off_t>(whole.size() - line.size()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return take_back(errno);
      line.remove_prefix(static_cast<size_t>(count));
    }
    if (::fdatasync(descriptor_) != 0) return take_back(errno);
    size_ += static_cast<int64_t>(whole.size());
    return ok();
  }

  // Removes a line that was written in part. If that fails too, the next reader removes it.
  Status take_back(int failure) {
    [[maybe_unused]] const int taken = ::ftruncate(descriptor_, size_);
    return write_error(path_, failure);
  }

  // The new file is locked before it gets the journal's name.
  Status replace(const std::string& line) {
    Journal fresh(path_ + ".tmp");
    ::unlink(fresh.path_.c_str());
    Status done = fresh.open();
    if (done.ok()) done = fresh.append(line);
    if (!done.ok()) return done;
    if (::rename(fresh.path_.c_str(), path_.c_str()) != 0) return write_error(path_, errno);
    std::swap(descriptor_, fresh.descriptor_);
    size_ = fresh.size_;
    return sync_directory(std::filesystem::path(path_).parent_path().string());
  }

  std::string path_;
  int descriptor_ = -1;
  Facts facts_;
  int64_t size_ = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> open_journal(const std::string& path) {
  auto journal = std::make_unique<Journal>(path);
  const Status opened = journal->open();
  if (!opened.ok()) return opened.error();
  return std::unique_ptr<Store>(std::move(journal));
}

}  // namespace tenuto
