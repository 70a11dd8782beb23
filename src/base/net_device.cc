#include "base/net_device.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/number.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The next word of the text, which is taken off; empty = there is none.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// The files of the kernel have no size that says how much is in them.
std::optional<std::string> content_of(const std::string& path) {
  const std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// A line is "  DEVICE: RECEIVED and seven more numbers, SENT and seven more numbers". There may be
// no blank behind the colon.
std::optional<DeviceBytes> device_bytes_in(std::string_view text, std::string_view device) {
  constexpr int kBetween = 7;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    if (take_word(name) != device) continue;
    line.remove_prefix(colon + 1);
    const auto received = number_in<int64_t>(take_word(line));
    for (int i = 0; i < kBetween; ++i) take_word(line);
    const auto sent = number_in<int64_t>(take_word(line));
    if (!received || !sent || *received < 0 || *sent < 0) return std::nullopt;
    return DeviceBytes{*received, *sent};
  }
  return std::nullopt;
}

std::optional<DeviceBytes> device_bytes(const std::string& device, const std::string& proc) {
  const auto text = content_of(proc + "/net/dev");
  return text ? device_bytes_in(*text, device) : std::nullopt;
}

std::optional<int64_t> device_rate_in(std::string_view text) {
  constexpr int64_t kMost = 10'000'000;  // megabits per second, above any link
  constexpr int64_t kBytesPerMegabit = 125'000;
  const auto megabits = number_in<int64_t>(take_word(text));
  if (!megabits || *megabits <= 0 || *megabits > kMost) return std::nullopt;
  return *megabits * kBytesPerMegabit;
}

std::optional<int64_t> device_rate(const std::string& device, const std::string& sys) {
  const auto text = content_of(cat(sys, "/", device, "/speed"));
  return text ? device_rate_in(*text) : std::nullopt;
}

}  // namespace tenuto
