// Text and JSON: what is written is read back unchanged; wrong input is refused with its place.
#include "ir/text.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "ir/check.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros, const std::string& order,
             bool tied = false) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = order;
  shape.tied = tied && stages > 1 && find_card(order)->placement != Placement::V;
  shape.memory = 64;
  shape.evaluation_micros = pipelines + 1;
  shape.dispatch = tied ? Dispatch::Ready : Dispatch::Listed;
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok());
  return std::move(plan).value();
}

TEST(Text, RoundTrip) {
  for (const OrderCard& card : order_cards()) {
    for (int32_t stages = 1; stages <= 4; ++stages) {
      for (int32_t pipelines = 1; pipelines <= 3; ++pipelines) {
        const Plan plan = plan_of(stages, pipelines, 8, card.name, pipelines == 2);
        for (const Schedule* schedule : {&plan.schedule, &plan.evaluation}) {
          const auto back = schedule_from_text(to_text(*schedule), "test");
          ASSERT_TRUE(back.ok()) << back.error().message;
          EXPECT_EQ(back.value(), *schedule);
        }
        const auto back = plan_from_json(to_json(plan), "test");
        ASSERT_TRUE(back.ok()) << back.error().message;
        EXPECT_EQ(back.value(), plan);
      }
    }
  }
}

TEST(Text, BlanksAndRemarks) {
  const auto schedule = schedule_from_text(
      "# two stages\n\nstages 1 micros 1   # sizes\r\nw0:\tF0.0  B0.0 W0.0\n\n", "test");
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(schedule.value().lists.size(), 1u);
  EXPECT_EQ(schedule.value().lists[0].size(), 3u);
  EXPECT_EQ(schedule_from_text("stages 1 micros 1\nw0:\n", "test").value().lists[0].size(), 0u);
}

TEST(Text, Refusals) {
  const auto message = [](const char* text) {
    const auto schedule = schedule_from_text(text, "my.sched");
    EXPECT_FALSE(schedule.ok()) << text;
    return schedule.ok() ? std::string() : schedule.error().message;
  };
  EXPECT_EQ(message(""), "my.sched:1:1: expected 'stages', found the end of the text");
  EXPECT_EQ(message("stages 2"), "my.sched:1:9: expected 'micros', found the line's end");
  EXPECT_EQ(
      message("stages 2 micros two"),
      "my.sched:1:17: expected a count of micro-batches, a whole number from 0 to 2147483647, "
      "found 'two'");
  EXPECT_EQ(message("stages 1 micros 1\nw0: F0.0 X0.0"),
            "my.sched:2:10: expected an op such as F0.1, >a0.1@2, <g1.0@3, R0:0, M0 or U0, found "
            "'X0.0'");
  EXPECT_EQ(message("stages 1 micros 1\nw1: F0.0"),
            "my.sched:2:1: expected 'w0:' (lists stand in order), 'group' or 'collective', found "
            "'w1:'");
  EXPECT_EQ(message("stages 1 micros 1\ngroup 1: stages 0"),
            "my.sched:2:7: expected '0:' (each group has the next number from 0), found '1:'");
  EXPECT_EQ(message("stages 1 micros 1\ncollective 0: members 0 1 chunks 2\n round 0>1.0+ 1-0"),
            "my.sched:3:15: expected a move such as 0>1.0 or 0>1.0+, found '1-0'");
  for (const char* token :
       {"F0", "F0.", "F.0", "F0.0x", "F00.0", "F0.2147483648", ">a0.0", ">b0.0@1", "<n0.1@1", "R0",
        "R0/:1", "R0/32768:1", "M", "U0.0", "", "f0.0"}) {
    EXPECT_FALSE(op_from_text(token).ok()) << token;
  }
}

// Files from before there was recomputation have no such field, and read as without it.
TEST(Json, SaysWhichStagesRecompute) {
  Plan plan = plan_of(3, 1, 2, "1f1b");
  EXPECT_EQ(to_json(plan).find("recompute"), std::string::npos);
  plan.stages[1].recompute = true;
  EXPECT_EQ(recomputing(plan.stages), std::vector<StageId>{{1}});
  const auto back = plan_from_json(to_json(plan), "test");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value(), plan);
}

TEST(Json, Refusals) {
  const std::string good = to_json(plan_of(2, 1, 1, "1f1b"));
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    const auto plan = plan_from_json(text, "p.json");
    EXPECT_FALSE(plan.ok()) << to;
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(message("\"order\": \"1f1b\"", "\"ordr\": \"1f1b\""),
            "p.json: order is missing; expected a plan, as tenuto plan --plan writes it");
  EXPECT_EQ(message("\"order\": \"1f1b\"", "\"order\": \"1f1b\", \"limit\": 1"),
            "p.json: limit is not a field of a plan: did you mean limits?");
  EXPECT_EQ(message("\"listed\"", "\"sorted\""),
            "p.json: dispatch: expected 'listed' or 'ready', found \"sorted\"");
  EXPECT_EQ(message("\"layer_first\": 0", "\"layer_first\": -1"),
            "p.json: stages[0].layer_first: expected a whole number from 0 to 16384000, found -1");
  EXPECT_EQ(message("\"layer_first\": 0", "\"layer_first\": 0.5"),
            "p.json: stages[0].layer_first: expected a whole number from 0 to 16384000, found 0.5");
  EXPECT_EQ(message("\"layer_first\": 0", "\"layer_first\": 18446744073709551615"),
            "p.json: stages[0].layer_first: expected a whole number from 0 to 16384000, found "
            "18446744073709551615");
  EXPECT_EQ(message("\"split_backward\": false", "\"split_backward\": 0"),
            "p.json: split_backward: expected true or false, found 0");
  EXPECT_EQ(message("\"layer_first\": 0", "\"recompute\": 1, \"layer_first\": 0"),
            "p.json: stages[0].recompute: expected true or false, found 1");
  EXPECT_EQ(
      message("F0.0 >a0.0@1", "F0.0 >a0.0"),
      "p.json: schedule.lists[0], character 6: expected an op such as F0.1, >a0.1@2, R0:0, M0 "
      "or U0, found '>a0.0'");
  EXPECT_EQ(message("\"order\": \"1f1b\"", "\"order\": \"1f1b\", \"order\": \"gpipe\""),
            "p.json: the key order stands twice: leave one out");
  EXPECT_NE(message("\"order\": \"1f1b\",", "\"order\": \"1f1b\"").find("p.json:3:"),
            std::string::npos);
  EXPECT_FALSE(plan_from_json("", "p.json").ok());
  EXPECT_FALSE(plan_from_json("[]", "p.json").ok());
  EXPECT_FALSE(plan_from_json(good.substr(0, good.size() / 2), "p.json").ok());
}

// Cases that the fuzzer `plan` found, and similar ones.
TEST(Json, NumbersAndNestingHaveBounds) {
  const auto message = [](const std::string& text) {
    const auto plan = plan_from_json(text, "p.json");
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(message("1e910"), "p.json: a number of the plan is too large to be read");
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":[", "]}")}) {
    std::string text;
    for (int i = 0; i < 300'000; ++i) text += open;
    text += "1";
    for (int i = 0; i < 300'000; ++i) text += close;
    EXPECT_EQ(message(text),
              "p.json: expected a plan, found lists or objects nested 9 times and more");
  }
}

// The time of reading and check() grows linearly with the plan, also if one worker holds every
// stage and the text has many lines.
TEST(Text, ManyStagesAtOneWorker) {
  constexpr int kStages = 20'000;
  std::string forward, backward, update, groups;
  for (int s = 0; s < kStages; ++s) {
    const std::string name = std::to_string(s);
    const std::string last = std::to_string(kStages - 1 - s);
    forward += " F" + name + ".0";
    backward += " B" + last + ".0 W" + last + ".0";
    update += " R" + last + ":" + last + " M" + last;
    groups += "group " + name + ": stages " + name + " members 0 collective 0\n";
  }
  for (int s = 0; s < kStages; ++s) update += " U" + std::to_string(s);
  const std::string text = "stages " + std::to_string(kStages) + " micros 1\nw0:" + forward +
                           backward + update + "\n" + groups + "collective 0: members 0 chunks 1\n";
  const auto schedule = schedule_from_text(text, "x");
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  auto plan = plan_of_schedule(schedule.value(), "x");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
    plan.value().dispatch = dispatch;
    const Status status = check(plan.value());
    EXPECT_TRUE(status.ok()) << status.error().message.substr(0, 1000);
  }
}

TEST(Text, APlanNeedsAStageAndNoMoreThanOps) {
  for (const std::string count : {"0", "2", "2147483647"}) {
    const auto schedule = schedule_from_text("stages " + count + " micros 1\nw0: F0.0\n", "x");
    ASSERT_TRUE(schedule.ok());
    const auto plan = plan_of_schedule(schedule.value(), "x");
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().message,
              "x:1:8: expected a count of stages from 1 to the number of "
              "ops, 1, found " +
                  count);
  }
}

// Whatever the bytes, reading returns; a plan that was read can be checked and written.
TEST(Json, DamagedInput) {
  Random random(3);
  const Plan plan = plan_of(2, 2, 2, "1f1b", true);
  const std::string texts[] = {to_json(plan), to_text(plan.schedule)};
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = texts[i % 2];
    for (int64_t k = random.below(3); k >= 0; --k) {
      const auto place = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
      switch (random.below(3)) {
        case 0:
          text[place] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(place, static_cast<size_t>(random.below(9)));
          break;
        default:
          text.insert(place, 1, "0123456789 .:@><{}[]\"-"[random.below(22)]);
      }
    }
    if (i % 2 == 0) {
      const auto back = plan_from_json(text, "x");
      if (!back.ok()) continue;
      ++read;
      (void)check(back.value());
      EXPECT_EQ(plan_from_json(to_json(back.value()), "x").value(), back.value());
    } else {
      const auto back = schedule_from_text(text, "x");
      if (!back.ok()) continue;
      ++read;
      Plan damaged = plan;
      damaged.schedule = back.value();
      (void)check(damaged);
      EXPECT_EQ(schedule_from_text(to_text(back.value()), "x").value(), back.value());
    }
  }
  EXPECT_GT(read, 100);
}

TEST(Text, Table) {
  const Plan plan = plan_of(2, 1, 12, "gpipe");
  const std::string shown = table(plan.schedule, {{{0}, 3}, {{1}, 60}});
  EXPECT_EQ(
      shown,
      "w0: F0.0 >a0.0@1 F0.1 >a0.1@1 F0.2 >a0.2@1 F0.3 >a0.3@1 F0.4 >a0.4@1 F0.5 >a0.5@1 F0.6 "
      ">a0.6@1 ...\n"
      "                      ^\n"
      "w1: ... W1.9 B1.10 >g1.10@0 W1.10 B1.11 >g1.11@0 W1.11 R1:1 M1 >n1@0 <v0@0 U1\n"
      "                                                       ^");
}

}  // namespace
}  // namespace tenuto
