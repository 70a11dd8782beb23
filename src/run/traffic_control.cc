#include "run/traffic_control.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "base/host.h"
#include "base/number.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr int32_t kMostMinor = 65534;
constexpr int64_t kLeastKilobits = 8;
constexpr double kNear = 0.02;  // tc rounds what it prints

std::string hexadecimal(int32_t number) {
  std::array<char, 9> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  return std::string(digits.data(), end);
}

std::optional<int32_t> from_hexadecimal(std::string_view text) {
  int32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// Calls `each` with the words of each line.
template <class Each>
void for_each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    each(words_of(line));
  }
}

// "8Mbit" in bits per second.
std::optional<double> rate_in(std::string_view text) {
  constexpr std::string_view kUnit = "bit";
  if (!text.ends_with(kUnit)) return std::nullopt;
  text.remove_suffix(kUnit.size());
  double factor = 1;
  for (const auto& [letter, value] :
       {std::pair('K', 1e3), std::pair('M', 1e6), std::pair('G', 1e9), std::pair('T', 1e12)}) {
    if (text.empty() || text.back() != letter) continue;
    text.remove_suffix(1);
    factor = value;
    break;
  }
  const auto number = number_in<double>(text);
  if (!number || !(*number >= 0)) return std::nullopt;
  return *number * factor;
}

// Words of a filter for this end; none = the address is not of IPv4.
std::vector<std::vector<std::string>> matches_of(const SendingEnd& end) {
  const std::string_view host = host_of(end.address);
  const bool is_ipv4 = !host.empty() && host.find_first_not_of("0123456789.") == host.npos;
  const std::string_view rest = std::string_view(end.address).substr(host.size());
  const auto port = rest.empty() ? std::nullopt : number_in<uint16_t>(rest.substr(1));
  if (!is_ipv4 || !port) return {};
  const std::string number = cat(*port);
  std::vector<std::vector<std::string>> all;
  if (end.is_here) {
    all.push_back(
        {"match", "ip", "protocol", "6", "0xff", "match", "ip", "sport", number, "0xffff"});
  }
  if (end.is_there) {
    all.push_back({"match", "ip", "protocol", "6", "0xff", "match", "ip", "dst", cat(host, "/32"),
                   "match", "ip", "dport", number, "0xffff"});
  }
  return all;
}

}  // namespace

std::vector<TcClass> tc_classes_in(std::string_view text) {
  std::vector<TcClass> all;
  for_each_line(text, [&all](const std::vector<std::string_view>& words) {
    const bool is_class = words.size() > 2 && words[0] == "class" && words[1] == "htb" &&
                          words[2].starts_with(kTcHandle);
    if (!is_class) return;
    const auto minor = from_hexadecimal(words[2].substr(kTcHandle.size()));
    const auto word = std::find(words.begin(), words.end(), "rate");
    if (!minor || word == words.end() || word + 1 == words.end()) return;
    if (const auto rate = rate_in(*(word + 1))) all.push_back({*minor, *rate});
  });
  return all;
}

std::optional<std::string> tc_root_in(std::string_view text) {
  std::optional<std::string> root;
  for_each_line(text, [&root](const std::vector<std::string_view>& words) {
    if (words.size() > 3 && words[0] == "qdisc" && words[3] == "root") root = std::string(words[2]);
  });
  return root;
}

int32_t tc_minor_of(HostJob job) { return 1 + job.value % kMostMinor; }

TrafficControl::~TrafficControl() { remove(); }

std::string TrafficControl::class_of(int32_t minor) const {
  return cat(kTcHandle, hexadecimal(minor));
}

Result<std::string> TrafficControl::tc(std::vector<std::string> words) const {
  words.insert(words.begin(), "tc");
  return settings_.run(words);
}

Result<std::vector<TcClass>> TrafficControl::classes() const {
  const auto text = tc({"class", "show", "dev", settings_.device});
  if (!text.ok()) return text.error();
  return tc_classes_in(text.value());
}

// What is not there cannot be removed, and that is no fault.
void TrafficControl::remove_class(int32_t minor) const {
  const std::string handle(kTcHandle);
  (void)tc({"filter", "del", "dev", settings_.device, "parent", handle, "prio", cat(minor)});
  (void)tc({"class", "del", "dev", settings_.device, "classid", class_of(minor)});
}

void TrafficControl::remove_left_behind(const std::vector<HostJob>& living) {
  if (settings_.device.empty()) return;
  const auto present = classes();
  if (!present.ok()) return;
  bool is_left = false;
  for (const TcClass& one : present.value()) {
    const bool lives = std::any_of(living.begin(), living.end(),
                                   [&one](HostJob job) { return tc_minor_of(job) == one.minor; });
    if (lives) {
      is_left = true;
    } else {
      remove_class(one.minor);
    }
  }
  if (present.value().empty() || is_left) return;
  (void)tc({"qdisc", "del", "dev", settings_.device, "root"});
}

// Makes the root, if no other job has made it.
Status TrafficControl::open(const std::vector<HostJob>& living) {
  const auto text = tc({"qdisc", "show", "dev", settings_.device});
  if (!text.ok()) return text.error();
  const std::string root = tc_root_in(text.value()).value_or("0:");
  if (root != kTcHandle && root != "0:") {
    return invalid(cat("device ", settings_.device, " has a discipline of its own (", root, ")"));
  }
  const int32_t own = tc_minor_of(settings_.job);
  for (const HostJob job : living) {
    if (job == settings_.job || tc_minor_of(job) != own) continue;
    return invalid(cat("job ", job, " has the class ", class_of(own)));
  }
  if (root == kTcHandle) {
    remove_class(own);  // of an earlier process with this number
    return ok();
  }
  const auto made = tc(
      {"qdisc", "add", "dev", settings_.device, "root", "handle", std::string(kTcHandle), "htb"});
  return made.ok() ? ok() : Status(made.error());
}

Status TrafficControl::limit(double bytes_per_second) {
  constexpr double kBitsOfKilobit = 1000;
  const auto kilobits =
      std::max<int64_t>(kLeastKilobits, std::llround(8 * bytes_per_second / kBitsOfKilobit));
  if (kilobits == kilobits_) return ok();
  const std::string rate = cat(kilobits, "kbit");
  const auto set =
      tc({"class", "replace", "dev", settings_.device, "parent", std::string(kTcHandle), "classid",
          class_of(tc_minor_of(settings_.job)), "htb", "rate", rate, "ceil", rate});
  if (!set.ok()) return set.error();
  kilobits_ = kilobits;
  return ok();
}

// Of processes that have ended the filters stay: nobody sends to their ports.
Status TrafficControl::add_filters(const std::vector<SendingEnd>& ends) {
  const int32_t own = tc_minor_of(settings_.job);
  for (const SendingEnd& end : ends) {
    if (filtered_.count(end.address) > 0) continue;
    for (const std::vector<std::string>& match : matches_of(end)) {
      std::vector<std::string> words = {
          "filter",   "add", "dev",  settings_.device, "parent", std::string(kTcHandle),
          "protocol", "ip",  "prio", cat(own),         "u32"};
      words.insert(words.end(), match.begin(), match.end());
      words.insert(words.end(), {"flowid", class_of(own)});
      const auto added = tc(std::move(words));
      if (!added.ok()) return added.error();
      filtered_.insert(end.address);
    }
  }
  if (filtered_.empty()) return invalid("no process of the job has an address of IPv4 and a port");
  return ok();
}

// The kernel may take a command and do something else with it.
Status TrafficControl::read_back() const {
  const int32_t own = tc_minor_of(settings_.job);
  const auto present = classes();
  if (!present.ok()) return present.error();
  const auto found = std::find_if(present.value().begin(), present.value().end(),
                                  [own](const TcClass& one) { return one.minor == own; });
  const double wanted = 1e3 * static_cast<double>(kilobits_);
  if (found == present.value().end() ||
      std::abs(found->bits_per_second - wanted) > kNear * wanted) {
    return invalid(cat("expected class ", class_of(own), " of ", kilobits_, " kbit/s on device ",
                       settings_.device, ", found ",
                       found == present.value().end()
                           ? std::string("none")
                           : cat("one of ", found->bits_per_second / 1e3, " kbit/s")));
  }
  const auto filters =
      tc({"filter", "show", "dev", settings_.device, "parent", std::string(kTcHandle)});
  if (!filters.ok()) return filters.error();
  if (filters.value().find(class_of(own)) != std::string::npos) return ok();
  return invalid(cat("expected filters of class ", class_of(own), " on device ", settings_.device,
                     ", found none"));
}

bool TrafficControl::fail(const Error& why) {
  has_failed_ = true;
  remove();
  outcome_ =
      cat("what the job sends is held to what the ledger allows it by the pace of its "
          "transports, because traffic control has no effect: ",
          why.message);
  return false;
}

bool TrafficControl::hold(double bytes_per_second, const std::vector<SendingEnd>& ends,
                          const std::vector<HostJob>& living) {
  if (settings_.device.empty() || has_failed_) return false;
  if (!(bytes_per_second > 0)) {
    remove();
    return true;  // nothing is limited
  }
  if (!is_open_) {
    if (const Status opened = open(living); !opened.ok()) return fail(opened.error());
    is_open_ = true;
  }
  const int64_t before = kilobits_;
  const size_t filters = filtered_.size();
  if (const Status set = limit(bytes_per_second); !set.ok()) return fail(set.error());
  if (const Status added = add_filters(ends); !added.ok()) return fail(added.error());
  if (before == kilobits_ && filters == filtered_.size()) return true;
  if (const Status is_so = read_back(); !is_so.ok()) return fail(is_so.error());
  if (outcome_.empty()) {
    outcome_ = cat("what the job sends is held to what the ledger allows it by class ",
                   class_of(tc_minor_of(settings_.job)), " of device ", settings_.device);
  }
  return true;
}

void TrafficControl::remove() {
  if (!is_open_) return;
  is_open_ = false;
  kilobits_ = 0;
  filtered_.clear();
  remove_class(tc_minor_of(settings_.job));
  const auto present = classes();
  if (present.ok() && present.value().empty()) {
    (void)tc({"qdisc", "del", "dev", settings_.device, "root"});
  }
}

}  // namespace tenuto
