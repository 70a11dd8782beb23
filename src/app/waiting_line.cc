#include "app/waiting_line.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr Duration kFirstLiving = std::chrono::seconds(1);
constexpr Duration kLivingInterval = std::chrono::milliseconds(200);
constexpr Duration kFirstPlain = std::chrono::seconds(5);

}  // namespace

std::string waiting_text(const char* part, int64_t done, Duration since) {
  return cat(part, done > 0 ? cat(": ", done, " so far") : std::string(), ", ",
             fixed(to_milliseconds(since) / 1000, 0), " s");
}

Duration next_plain_line(Duration shown) { return std::max(kFirstPlain, 2 * shown); }

WaitingLine::WaitingLine(std::FILE* stream, Watch& watch, std::optional<double> seconds)
    : stream_(stream),
      watch_(watch),
      limit_(seconds ? std::optional(from_milliseconds(*seconds * 1000)) : std::nullopt),
      begun_(monotonic_clock().now()),
      terminal_(stream != nullptr && isatty(fileno(stream)) == 1),
      thread_([this] { run(); }) {}

WaitingLine::~WaitingLine() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!living_) return;
  std::fprintf(stream_, "\r\x1b[K");
  std::fflush(stream_);
}

void WaitingLine::run() {
  constexpr Duration kNever = std::chrono::hours(24 * 365);
  Duration line_at = stream_ == nullptr ? kNever : terminal_ ? kFirstLiving : kFirstPlain;
  Duration end_at = limit_.value_or(kNever);
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    const Duration since = monotonic_clock().now() - begun_;
    if (since >= end_at) {
      watch_.end();
      end_at = kNever;
    }
    if (since >= line_at) {
      show(since);
      line_at = terminal_ ? since + kLivingInterval : next_plain_line(line_at);
    }
    changed_.wait_for(lock, std::min(line_at, end_at) - since, [this] { return leaving_; });
  }
}

void WaitingLine::show(Duration since) {
  const char* part = watch_.part();
  if (part == nullptr) return;
  const std::string text = waiting_text(part, watch_.done(), since);
  std::fprintf(stream_, terminal_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
  std::fflush(stream_);
  living_ = terminal_;
}

}  // namespace tenuto
