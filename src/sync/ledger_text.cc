// The ledger of a host as text: what it is when the jobs of the host share it in a file.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/sentence.h"
#include "base/text.h"
#include "sync/ledger.h"

namespace tenuto {

namespace {

// The latest moment: far above what a host lives, and so that sums of two fit.
constexpr int64_t kMostMoment = int64_t{1} << 60;

template <class Number>
std::string three(const std::array<Number, kHostResources>& numbers) {
  std::string text;
  for (const Number number : numbers) text += cat(" ", number);
  return text;
}

// Reads lines of words. What a line has is asked for by kind: a line of another kind, with other
// words or with more or fewer of them is refused.
class LedgerReader {
 public:
  LedgerReader(std::string_view text, std::string path, int64_t first_line)
      : text_(text), path_(std::move(path)), number_(first_line - 1) {}

  // Goes to the next line. False = there is none.
  bool next() {
    ++number_;
    words_.clear();
    line_ = {};
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    std::string_view rest = line_;
    while (!rest.empty()) {
      const size_t blank = std::min(rest.find(' '), rest.size());
      words_.push_back(rest.substr(0, blank));
      rest.remove_prefix(std::min(blank + 1, rest.size()));
    }
    return true;
  }

  bool is(std::string_view kind) const { return !words_.empty() && words_.front() == kind; }

  // The words behind the kind, all of them. False = they are others.
  template <class... Fields>
  bool read(Fields&... fields) {
    at_ = 1;
    return (take(fields) && ...) && at_ == words_.size();
  }

  Error refused(const std::string& expected) const {
    return invalid(cat(path_, ": line ", number_, ": expected ", expected, ", found \"",
                       excerpt(line_), "\": end all jobs of this host, and remove the file"));
  }

 private:
  std::string_view next_word() { return at_ < words_.size() ? words_[at_++] : std::string_view(); }
  bool take(std::string& word) {
    word = std::string(next_word());
    return !word.empty();
  }
  bool take(int64_t& number) {
    const auto found = number_in<int64_t>(next_word());
    number = found.value_or(0);
    return found.has_value();
  }
  bool take(double& number) {
    const auto found = number_in<double>(next_word());
    number = found.value_or(0);
    return found.has_value() && std::isfinite(number);
  }
  bool take(HostJob& job) {
    const auto found = number_in<int32_t>(next_word());
    job.value = found.value_or(-1);
    return job.value >= 0;
  }
  bool take(Duration& moment) {
    int64_t count = 0;
    const bool is_there = take(count);
    moment = Duration(count);
    return is_there && count >= 0 && count <= kMostMoment;
  }
  template <class Number>
  bool take(std::array<Number, kHostResources>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [this](Number& number) { return take(number); });
  }

  std::string_view text_;
  const std::string path_;
  int64_t number_;  // of the present line
  std::string_view line_;
  std::vector<std::string_view> words_;
  size_t at_ = 1;  // the next word
};

// A ledger accepts them.
bool is_possible(const HostAmounts& amounts) { return HostLedger::make("", amounts).ok(); }
bool is_possible(const HostUse& use) {
  auto ledger = HostLedger::make("", {});
  return ledger.ok() && ledger.value().announce({0}, use, {}).ok();
}

}  // namespace

std::string to_text(const HostLedger& ledger) {
  std::string text = cat("host ", ledger.host_, "\ncapacity", three(ledger.capacity_), "\nmoment ",
                         ledger.now_.count(), "\n");
  for (const auto& [job, entry] : ledger.jobs_) {
    const HostUse& use = entry.use;
    text += cat("job ", job, " ", entry.heard.count(), three(use.use), three(use.slack),
                three(use.sensitivity), "\n");
  }
  for (const Lease& lease : ledger.leases_) {
    text += cat("lease ", lease.job, " ", lease.until.count(), " ", lease.gain, " ", lease.loss,
                three(lease.amount), three(lease.unused), "\n");
    for (const LeasedPart& part : lease.parts) {
      text += cat("part ", part.from, " ", part.loss, three(part.slack), three(part.beyond), "\n");
    }
  }
  return text + "end\n";
}

Result<HostLedger> ledger_from_text(std::string_view text, const std::string& path,
                                    int64_t first_line, LedgerRules rules) {
  LedgerReader reader(text, path, first_line);
  std::string host;
  reader.next();
  if (!reader.is("host") || !reader.read(host)) return reader.refused("\"host NAME\"");
  HostAmounts capacity{};
  reader.next();
  if (!reader.is("capacity") || !reader.read(capacity) || !is_possible(capacity)) {
    return reader.refused("\"capacity CORES TRANSMIT RECEIVE\"");
  }
  auto made = HostLedger::make(host, capacity, rules);
  if (!made.ok()) return made.error();
  HostLedger& ledger = made.value();
  reader.next();
  if (!reader.is("moment") || !reader.read(ledger.now_)) return reader.refused("\"moment TIME\"");
  while (reader.next() && reader.is("job")) {
    HostJob job;
    HostLedger::Entry entry;
    HostUse& use = entry.use;
    const bool is_whole = reader.read(job, entry.heard, use.use, use.slack, use.sensitivity);
    if (!is_whole || !is_possible(use) || entry.heard > ledger.now_ || ledger.knows(job) ||
        ledger.jobs_.size() >= kMostHostJobs) {
      return reader.refused("\"job JOB TIME\" with three amounts, their slack and sensitivities");
    }
    ledger.jobs_[job] = entry;
  }
  for (; reader.is("lease") || reader.is("part"); reader.next()) {
    if (reader.is("lease")) {
      Lease lease;
      const bool is_whole =
          reader.read(lease.job, lease.until, lease.gain, lease.loss, lease.amount, lease.unused);
      if (!is_whole || !is_possible(lease.amount) || !is_possible(lease.unused) ||
          !ledger.knows(lease.job) || ledger.lease_of(lease.job) != nullptr) {
        return reader.refused("\"lease JOB TIME GAIN LOSS\" of a job without another lease");
      }
      ledger.leases_.push_back(std::move(lease));
      continue;
    }
    LeasedPart part;
    const bool is_whole = reader.read(part.from, part.loss, part.slack, part.beyond);
    if (!is_whole || !is_possible(part.slack) || !is_possible(part.beyond) ||
        !ledger.knows(part.from) || ledger.leases_.empty() ||
        ledger.leases_.back().parts.size() >= kMostHostJobs) {
      return reader.refused("\"part JOB LOSS\" of a job, behind a lease");
    }
    ledger.leases_.back().parts.push_back(part);
  }
  if (!reader.is("end") || !reader.read()) {
    return reader.refused("\"job\", \"lease\", \"part\" or \"end\"");
  }
  if (reader.next()) return reader.refused("nothing behind \"end\"");
  return made;
}

}  // namespace tenuto
