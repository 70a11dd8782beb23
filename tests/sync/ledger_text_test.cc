// The ledger of a host as text: all that it knows comes back, and any other text is refused with
// its line.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "sync/ledger.h"

namespace tenuto {
namespace {

using std::chrono::seconds;

constexpr HostJob kFirst{10}, kSecond{20}, kThird{30};

// The first job borrows what nobody uses and what the second one lends, slack and more.
HostLedger with_a_lease() {
  HostLedger ledger = HostLedger::make("a", {8000, 5, 6}).value();
  EXPECT_TRUE(ledger.announce(kFirst, {{2000, 1, 0}, {0, 0, 0}, {0.1, 0, 0}}, seconds(3)).ok());
  EXPECT_TRUE(
      ledger.announce(kSecond, {{4000, 0, 2}, {1000, 0, 1}, {0.00025, 0, 0}}, seconds(4)).ok());
  LeaseRequest request{kFirst, {}, seconds(10)};
  request.options.push_back({{4000, 0, 0}, 0.75});
  const auto answer = ledger.ask(request, seconds(5));
  EXPECT_TRUE(answer.ok() && answer.value().granted);
  return ledger;
}

const char* const kText =
    "host a\n"
    "capacity 8000 5 6\n"
    "moment 5000000000\n"
    "job 10 3000000000 2000 1 0 0 0 0 0.1 0 0\n"
    "job 20 4000000000 4000 0 2 1000 0 1 0.00025 0 0\n"
    "lease 10 15000000000 0.75 0.25 4000 0 0 2000 0 0\n"
    "part 20 0.25 1000 0 0 1000 0 0\n"
    "end\n";

TEST(LedgerText, AllComesBack) {
  const HostLedger ledger = with_a_lease();
  EXPECT_EQ(to_text(ledger), kText);
  auto back = ledger_from_text(kText, "file");
  ASSERT_TRUE(back.ok()) << back.error().message;
  HostLedger& again = back.value();
  EXPECT_EQ(to_text(again), kText);
  EXPECT_EQ(again.host(), "a");
  EXPECT_EQ(again.unused(), ledger.unused());
  for (const HostJob job : {kFirst, kSecond, kThird}) {
    EXPECT_EQ(again.allowed(job), ledger.allowed(job));
    EXPECT_EQ(again.knows(job), ledger.knows(job));
  }
  ASSERT_NE(again.lease_of(kFirst), nullptr);
  EXPECT_EQ(again.lease_of(kFirst)->until, seconds(15));
  // The moment is kept as well.
  EXPECT_FALSE(again.advance(seconds(4)).ok());
  EXPECT_EQ(again.advance(seconds(15)).value().size(), 1u);
}

TEST(LedgerText, AnEmptyLedger) {
  const HostLedger ledger = HostLedger::make("b", {}).value();
  EXPECT_TRUE(ledger.is_empty());
  const auto back = ledger_from_text(to_text(ledger), "file");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back.value().is_empty());
}

// Whatever jobs do, the next process goes on from the text as if it had seen it all.
TEST(LedgerText, ARandomHistoryGoesOn) {
  Random random(7);
  HostLedger ledger = HostLedger::make("a", {10'000, 0, 0}).value();
  int granted = 0;
  for (int i = 1; i <= 300; ++i) {
    auto back = ledger_from_text(to_text(ledger), "file");
    ASSERT_TRUE(back.ok()) << back.error().message;
    ledger = std::move(back).value();
    const HostJob job{static_cast<int32_t>(random.below(5))};
    const auto use = static_cast<int64_t>(random.below(4000));
    const int64_t slack = use / 3;
    ASSERT_TRUE(ledger.announce(job, {{use, 0, 0}, {slack, 0, 0}, {0.001, 0, 0}}, seconds(i)).ok());
    LeaseRequest request{job, {}, seconds(20)};
    request.options.push_back({{static_cast<int64_t>(random.below(3000)), 0, 0}, 0.5});
    const auto answer = ledger.ask(request, seconds(i));
    ASSERT_TRUE(answer.ok());
    granted += answer.value().granted ? 1 : 0;
  }
  EXPECT_GT(granted, 10);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// The sentence that refuses the text with this line in the place of another one; "" = it is read.
std::string refusal(size_t place, const std::string& line) {
  std::vector<std::string> lines = lines_of(kText);
  lines[place] = line;
  const auto read = ledger_from_text(joined(lines), "file", 3);
  return read.ok() ? "" : read.error().message;
}

TEST(LedgerText, EachBadLineIsNamed) {
  EXPECT_EQ(refusal(0, "host"),
            "file: line 3: expected \"host NAME\", found \"host\": end all jobs of this host, and "
            "remove the file");
  const auto starts = [](const std::string& text, const std::string& begin) {
    EXPECT_EQ(text.substr(0, begin.size()), begin);
  };
  for (const char* line : {"capacity 1 2", "capacity -1 0 0", "capacity 1 2 3 4", "capacity 1 2 x",
                           "capacity 999999999999999999 0 0", "job 10"}) {
    starts(refusal(1, line), "file: line 4: expected \"capacity");
  }
  for (const char* line : {"moment", "moment -1", "moment 1.5", "moment 1 2", ""}) {
    starts(refusal(2, line), "file: line 5: expected \"moment");
  }
  for (const char* line : {"job 10 1 0 0 0 0 0 0 0 0",             // a figure is missing
                           "job 10 1 0 0 0 0 0 0 0 0 0 0",         // one too many
                           "job -1 1 0 0 0 0 0 0 0 0 0",           // no job
                           "job 10 9000000000 0 0 0 0 0 0 0 0 0",  // heard later than now
                           "job 10 1 5 0 0 6 0 0 0 0 0",           // more slack than use
                           "job 10 1 5 0 0 0 0 0 -1 0 0",          // a sensitivity below 0
                           "job 10 1 5 0 0 0 0 0 nan 0 0", "job 10 1 5 0 0 0 0 0 inf 0 0",
                           "job 99999999999 1 5 0 0 0 0 0 0 0 0"}) {
    starts(refusal(3, line), "file: line 6: expected \"job");
  }
  // A second entry of the job of the line before.
  starts(refusal(4, "job 10 1 0 0 0 0 0 0 0 0 0"), "file: line 7: expected \"job");
  for (const char* line : {"lease 30 1 0 0 0 0 0 0 0 0", "lease 10 1 0 0 0 0 0 0 0",
                           "lease 10 1 nan 0 0 0 0 0 0 0", "lease 10 1 0 0 -1 0 0 0 0 0"}) {
    starts(refusal(5, line), "file: line 8: expected \"lease");
  }
  for (const char* line : {"part 30 0 0 0 0 0 0 0", "part 20 0 0 0 0 0 0", "part 20 0 0 0 0 0 0 -1",
                           "part 20 x 0 0 0 0 0 0"}) {
    starts(refusal(6, line), "file: line 9: expected \"part");
  }
  starts(refusal(6, "lease 10 1 0 0 0 0 0 0 0 0"),
         "file: line 9: expected \"lease");  // a second one
  for (const char* line : {"", "ends", "end 1", "Job 1"}) {
    starts(refusal(7, line), "file: line 10: expected \"job\", \"lease\", \"part\" or \"end\"");
  }
  starts(refusal(7, "end\nmore"), "file: line 11: expected nothing behind \"end\"");
  // A part without a lease.
  std::vector<std::string> lines = lines_of(kText);
  lines.erase(lines.begin() + 5);
  EXPECT_FALSE(ledger_from_text(joined(lines), "file").ok());
}

TEST(LedgerText, NoBeginOfALedgerIsALedger) {
  const std::string text = kText;
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ledger_from_text(text.substr(0, size), "file").ok()) << size;
  }
}

}  // namespace
}  // namespace tenuto
