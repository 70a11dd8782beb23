// Traffic control with a program in place of tc: what it is asked, and what is made of its answers.
#include "run/traffic_control.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "run/program.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// The program: it writes down how it was called. It keeps a root and classes in files, and can be
// told to refuse everything, or to take a rate and do nothing with it.
constexpr const char* kProgram = R"(#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
if [ -e "$here/refuses" ]; then echo "RTNETLINK answers: Operation not permitted"; exit 2; fi
case "$1 $2" in
  "qdisc show") cat "$here/root" ;;
  "qdisc add") echo "qdisc htb 7e70: root refcnt 2 r2q 10 default 0" > "$here/root" ;;
  "qdisc del") echo "qdisc noqueue 0: root refcnt 2" > "$here/root"; : > "$here/classes" ;;
  "class show") cat "$here/classes" ;;
  "class replace")
    if [ -e "$here/ignores" ]; then exit 0; fi
    grep -v "htb $8 " "$here/classes" > "$here/others"
    echo "class htb $8 root prio 0 rate ${11%kbit}Kbit ceil 1Gbit burst 1b" >> "$here/others"
    mv "$here/others" "$here/classes" ;;
  "class del")
    grep -v "htb $6 " "$here/classes" > "$here/others"
    mv "$here/others" "$here/classes" ;;
  "filter add") echo "filter parent 7e70: protocol ip $*" >> "$here/filters" ;;
  "filter show") cat "$here/filters" ;;
  "filter del") : > "$here/filters" ;;
esac
exit 0
)";

class PlayedDevice : public testing::Test {
 protected:
  PlayedDevice() {
    char name[] = "/tmp/tenuto-tc-XXXXXX";
    folder_ = mkdtemp(name);
    write("tc", kProgram);
    EXPECT_EQ(chmod((folder_ + "/tc").c_str(), 0755), 0);
    write("root", "qdisc noqueue 0: root refcnt 2\n");
    for (const char* file : {"calls", "classes", "filters"}) write(file, "");
    const char* before = std::getenv("PATH");
    path_ = before == nullptr ? "" : before;
    setenv("PATH", cat(folder_, ":", path_).c_str(), 1);
  }
  ~PlayedDevice() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  void write(const std::string& file, const std::string& text) const {
    std::ofstream(cat(folder_, "/", file)) << text;
  }
  std::string text_of(const std::string& file) const {
    return read_file(cat(folder_, "/", file)).value();
  }
  bool was_called(const std::string& words) const {
    return text_of("calls").find(words + "\n") != std::string::npos;
  }
  bool has_class(const std::string& number) const {
    return text_of("classes").find(cat("class htb ", number, " ")) != std::string::npos;
  }
  static std::unique_ptr<TrafficControl> control(int32_t job, const std::string& device = "eth7") {
    return std::make_unique<TrafficControl>(TrafficControlSettings{
        device, {job}, [](const std::vector<std::string>& words) { return run_program(words); }});
  }

  std::string folder_, path_;
};

// Of job 25, whose class is 26 = 1a.
const std::vector<SendingEnd> kEnds = {{true, false, "10.0.0.1:4000"},
                                       {false, true, "10.0.0.2:4001"}};

TEST_F(PlayedDevice, AJobIsHeldToItsRate) {
  const auto one = control(25);
  EXPECT_TRUE(one->hold(0, kEnds, {{25}}));
  EXPECT_EQ(text_of("calls"), "") << "nothing is limited, and the device is not touched";
  EXPECT_TRUE(one->hold(1e6, kEnds, {{25}})) << one->outcome();
  EXPECT_EQ(one->outcome(),
            "what the job sends is held to what the ledger allows it by class 7e70:1a of device "
            "eth7");
  EXPECT_TRUE(was_called("qdisc add dev eth7 root handle 7e70: htb"));
  EXPECT_TRUE(
      was_called("class replace dev eth7 parent 7e70: classid 7e70:1a htb rate 8000kbit "
                 "ceil 8000kbit"));
  EXPECT_TRUE(
      was_called("filter add dev eth7 parent 7e70: protocol ip prio 26 u32 match ip "
                 "protocol 6 0xff match ip sport 4000 0xffff flowid 7e70:1a"));
  EXPECT_TRUE(
      was_called("filter add dev eth7 parent 7e70: protocol ip prio 26 u32 match ip "
                 "protocol 6 0xff match ip dst 10.0.0.2/32 match ip dport 4001 0xffff "
                 "flowid 7e70:1a"));
  // The same again needs no call.
  write("calls", "");
  EXPECT_TRUE(one->hold(1e6, kEnds, {{25}}));
  EXPECT_EQ(text_of("calls"), "");
  EXPECT_TRUE(one->hold(2e6, kEnds, {{25}}));
  EXPECT_EQ(text_of("calls").find("filter add"), std::string::npos);
  EXPECT_EQ(tc_classes_in(text_of("classes"))[0].bits_per_second, 16e6);
  EXPECT_TRUE(one->hold(0, kEnds, {{25}}));
  EXPECT_FALSE(has_class("7e70:1a"));
  EXPECT_EQ(text_of("root"), "qdisc noqueue 0: root refcnt 2\n") << "it is as it was";
}

TEST_F(PlayedDevice, TheLimitEndsWithTheJob) {
  EXPECT_TRUE(control(25)->hold(1e6, kEnds, {{25}}));
  EXPECT_FALSE(has_class("7e70:1a"));
  EXPECT_EQ(text_of("filters"), "");
  EXPECT_EQ(text_of("root"), "qdisc noqueue 0: root refcnt 2\n");
}

TEST_F(PlayedDevice, TheRootStaysForOtherJobs) {
  const auto first = control(25), second = control(30);
  EXPECT_TRUE(first->hold(1e6, kEnds, {{25}, {30}}));
  EXPECT_TRUE(second->hold(3e6, kEnds, {{25}, {30}}));
  first->remove();
  EXPECT_FALSE(has_class("7e70:1a"));
  EXPECT_TRUE(has_class("7e70:1f"));
  EXPECT_NE(text_of("root").find("7e70:"), std::string::npos);
}

TEST_F(PlayedDevice, WhatAKilledJobHasLeftIsRemoved) {
  write("root", "qdisc htb 7e70: root refcnt 2 r2q 10 default 0\n");
  write("classes",
        "class htb 7e70:1a root prio 0 rate 8Mbit ceil 8Mbit\n"
        "class htb 7e70:1f root prio 0 rate 8Mbit ceil 8Mbit\n");
  const auto one = control(40);
  one->remove_left_behind({{30}, {40}});
  EXPECT_FALSE(has_class("7e70:1a"));
  EXPECT_TRUE(has_class("7e70:1f")) << "that one lives";
  one->remove_left_behind({{40}});
  EXPECT_EQ(text_of("root"), "qdisc noqueue 0: root refcnt 2\n");
}

TEST_F(PlayedDevice, WithoutARightThereIsNoEffectAndASentence) {
  write("refuses", "");
  const auto one = control(25);
  EXPECT_FALSE(one->hold(1e6, kEnds, {{25}}));
  EXPECT_NE(one->outcome().find("by the pace of its transports, because traffic control has no "
                                "effect: tc failed: RTNETLINK answers: Operation not permitted"),
            std::string::npos)
      << one->outcome();
  write("calls", "");
  EXPECT_FALSE(one->hold(2e6, kEnds, {{25}}));
  EXPECT_EQ(text_of("calls"), "") << "it is not tried again";
}

TEST_F(PlayedDevice, ARateThatIsNotInForceIsNoticed) {
  write("ignores", "");
  const auto one = control(25);
  EXPECT_FALSE(one->hold(1e6, kEnds, {{25}}));
  EXPECT_NE(one->outcome().find("expected class 7e70:1a of 8000 kbit/s on device eth7, found none"),
            std::string::npos)
      << one->outcome();
  EXPECT_EQ(text_of("root"), "qdisc noqueue 0: root refcnt 2\n") << "it is taken back";
}

TEST_F(PlayedDevice, ADisciplineOfTheOwnerIsNotTouched) {
  write("root", "qdisc tbf 8001: root refcnt 2 rate 1Mbit\n");
  const auto one = control(25);
  EXPECT_FALSE(one->hold(1e6, kEnds, {{25}}));
  EXPECT_NE(one->outcome().find("device eth7 has a discipline of its own (8001:)"),
            std::string::npos);
  EXPECT_EQ(text_of("root"), "qdisc tbf 8001: root refcnt 2 rate 1Mbit\n");
}

TEST_F(PlayedDevice, WhatCannotBeIsNotLimited) {
  // Two processes have numbers that are apart by 65534.
  const auto one = control(25);
  EXPECT_FALSE(one->hold(1e6, kEnds, {{25}, {25 + 65534}}));
  EXPECT_NE(one->outcome().find("has the class 7e70:1a"), std::string::npos);
  // Addresses without ports of IPv4.
  const auto other = control(26);
  EXPECT_FALSE(other->hold(
      1e6, {{true, false, ""}, {true, false, "[::1]:4000"}, {true, false, "10.0.0.1:x"}}, {{26}}));
  EXPECT_NE(other->outcome().find("no process of the job has an address"), std::string::npos);
  EXPECT_EQ(text_of("root"), "qdisc noqueue 0: root refcnt 2\n");
  // No device.
  write("calls", "");
  const auto none = control(27, "");
  EXPECT_FALSE(none->hold(1e6, kEnds, {{27}}));
  none->remove_left_behind({{27}});
  EXPECT_EQ(none->outcome(), "");
  EXPECT_EQ(text_of("calls"), "");
}

TEST(TrafficControlText, Classes) {
  const std::vector<TcClass> all = tc_classes_in(
      "class htb 7e70:1 root prio 0 rate 8Mbit ceil 8Mbit burst 1600b cburst 1600b \n"
      "class htb 7e70:ff parent 7e70:1 prio 0 rate 12345Kbit ceil 1Gbit\n"
      "class htb 8001:2 root prio 0 rate 8Mbit\n"
      "class mq 7e70:3 root\n"
      "class htb 7e70:x root rate 8Mbit\n"
      "class htb 7e70:4 root rate\n"
      "class htb 7e70:5 root rate fast\n"
      "class htb 7e70:6 root rate Kbit\n"
      "\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].minor, 1);
  EXPECT_EQ(all[0].bits_per_second, 8e6);
  EXPECT_EQ(all[1].minor, 255);
  EXPECT_EQ(all[1].bits_per_second, 12'345e3);
  EXPECT_EQ(tc_classes_in("class htb 7e70:1 root rate 900bit")[0].bits_per_second, 900);
  EXPECT_TRUE(tc_classes_in("").empty());
}

TEST(TrafficControlText, TheRoot) {
  EXPECT_EQ(tc_root_in("qdisc mq 0: root \nqdisc fq_codel 0: parent :1 limit 5p\n"), "0:");
  EXPECT_EQ(tc_root_in("qdisc htb 7e70: root refcnt 2\nqdisc ingress ffff: parent ffff:fff1\n"),
            "7e70:");
  EXPECT_FALSE(tc_root_in("Cannot find device \"eth7\"\n").has_value());
  EXPECT_FALSE(tc_root_in("").has_value());
}

TEST(TrafficControlText, ClassesOfJobs) {
  EXPECT_EQ(tc_minor_of({0}), 1);
  EXPECT_EQ(tc_minor_of({65533}), 65534);
  EXPECT_EQ(tc_minor_of({65534}), 1);
}

TEST(RunProgram, ItsOutputAndItsFailure) {
  const auto said = run_program({"echo", "a", "b c"});
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(said.value(), "a b c\n");
  const auto failed = run_program({"sh", "-c", "echo no >&2; exit 3"});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "sh failed: no");
  const auto none = run_program({"no-such-program-of-tenuto"});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("cannot start no-such-program-of-tenuto"), std::string::npos);
  const auto hangs = run_program({"sleep", "1000"}, std::chrono::milliseconds(1));
  ASSERT_FALSE(hangs.ok());
  EXPECT_EQ(hangs.error().code, Code::Timeout);
}

}  // namespace
}  // namespace tenuto
