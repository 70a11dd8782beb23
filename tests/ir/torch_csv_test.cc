// Reads and writes PyTorch's schedule CSV.
#include "ir/torch_csv.h"

#include <gtest/gtest.h>

#include "ir/check.h"
#include "ir/text.h"
#include "plan/given_plan.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

// Only the lists, one line each.
std::string rows_of(const Schedule& schedule) {
  const std::string text = to_text(schedule);
  return text.substr(text.find('\n') + 1);
}

CsvSchedule read(std::string_view text) {
  auto csv = schedule_from_csv(text, "x.csv");
  EXPECT_TRUE(csv.ok()) << csv.error().message;
  return csv.ok() ? csv.value() : CsvSchedule{};
}

Error refusal(std::string_view text) {
  const auto csv = schedule_from_csv(text, "x.csv");
  EXPECT_FALSE(csv.ok()) << text;
  return csv.ok() ? Error{} : csv.error();
}

Result<Plan> plan_of(const CsvSchedule& csv) {
  Shape shape;
  shape.layers = csv.schedule.stage_count;
  shape.order = "x.csv";
  shape.split_backward = csv.splits;
  return make_given_plan({csv.schedule, csv.messages}, shape);
}

std::string written(const Plan& plan, const CsvOptions& options) {
  const auto text = to_csv(plan, options);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? text.value() : "";
}

TEST(TorchCsv, ComputeOnly) {
  const CsvSchedule csv = read("0F0,0F1,,,0B0,0B1\r\n,1F0,1B0,1F1,1I1,1W1\r\n");
  EXPECT_FALSE(csv.messages);
  EXPECT_TRUE(csv.splits);
  EXPECT_EQ(csv.schedule.stage_count, 2);
  EXPECT_EQ(csv.schedule.micro_count, 2);
  EXPECT_EQ(rows_of(csv.schedule),
            "w0: F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nw1: F1.0 B1.0 W1.0 F1.1 B1.1 W1.1\n");
  const auto plan = plan_of(csv);
  ASSERT_TRUE(plan.ok());
  const Status status = check(plan.value());
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(TorchCsv, WithMessages) {
  const CsvSchedule csv =
      read("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
  EXPECT_TRUE(csv.messages);
  EXPECT_FALSE(csv.splits);
  EXPECT_EQ(rows_of(csv.schedule),
            "w0: F0.0 >a0.0@1 <g1.0@1 B0.0 W0.0\nw1: <a0.0@0 F1.0 B1.0 W1.0 >g1.0@0\n");
  const auto plan = plan_of(csv);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(check(plan.value()).ok());
}

// Cells that overlap are read in the order in which they stand; quotes, blanks, a byte order mark
// and blank lines at the end change nothing.
TEST(TorchCsv, Forms) {
  EXPECT_EQ(rows_of(read("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n").schedule),
            "w0: F0.0 F0.1 F0.2 B0.0 W0.0 B0.1 W0.1 B0.2 W0.2\n");
  const std::string plain = rows_of(read("0F0,0B0\n").schedule);
  EXPECT_EQ(rows_of(read("\xEF\xBB\xBF 0F0 , \"0B0\" ,\r\n\r\n \n").schedule), plain);
  EXPECT_EQ(rows_of(read("(0F0 ; 0B0)OVERLAP_F_B").schedule), plain);
  EXPECT_TRUE(looks_like_csv("0F0,0B0"));
  EXPECT_TRUE(looks_like_csv(",0F0"));
  EXPECT_TRUE(looks_like_csv("(0F0;0B0)OVERLAP_F_B"));
  EXPECT_FALSE(looks_like_csv("stages 2 micros 2"));
  EXPECT_FALSE(looks_like_csv("{\"order\": 1}"));
}

TEST(TorchCsv, RefusedWithItsPlace) {
  struct Case {
    const char *text, *starts, *says;
    Code code;
  };
  for (const Case& it : {
           Case{"0F0,0X0\n", "x.csv:1:5: '0X0': ", "expected <stage><kind>", Code::Invalid},
           Case{"0F0\n,1F\n", "x.csv:2:2: '1F': ", "expected <stage><kind>", Code::Invalid},
           Case{"0F0x", "x.csv:1:1: '0F0x': ", "such as 2F0", Code::Invalid},
           Case{"F0", "x.csv:1:1: 'F0': ", "such as 2F0", Code::Invalid},
           Case{"0F99999999999", "x.csv:1:1: ", "such as 2F0", Code::Invalid},
           Case{"0F0,0B7", "x.csv:1:5: '0B7': ", "without gaps", Code::Invalid},
           Case{"7F0,7B0", "x.csv:1:1: '7F0': ", "without gaps", Code::Invalid},
           Case{"(0F0;0B0)OVERLAP", "x.csv:1:1: ", "OVERLAP_F_B", Code::Invalid},
           Case{"0F0,(0SEND_F0)OVERLAP_F_B", "x.csv:1:6: '0SEND_F0': ", "overlap", Code::Invalid},
           Case{"\n\n", "x.csv:1:1: ", "found none", Code::Invalid},
           Case{"0UNSHARD0,0F0,0B0", "x.csv:1:1: '0UNSHARD0': ", "such as 2F0", Code::Invalid},
           Case{"(0F0;0RESHARD)OVERLAP_F_B", "x.csv:1:6: '0RESHARD': ", "overlap", Code::Invalid},
           Case{"0F0,0REDUCE_GRAD,0B0", "x.csv:1:5: '0REDUCE_GRAD': ",
                "'0B0' (line 1, column 18) stands behind it", Code::Infeasible},
           Case{"0F0,0SEND_F0,0B0", "x.csv:1:5: '0SEND_F0': ", "there is no stage 1",
                Code::Infeasible},
           Case{"0F0,0B0,1SEND_F0\n1F0,1B0", "x.csv:1:9: ", "no stage 2", Code::Infeasible},
           Case{"0F0,0SEND_F0,1F0,1B0,0B0", "x.csv:1:5: ", "within a rank", Code::Infeasible},
           Case{"0F0,0B0\n1SEND_B0", "x.csv:2:1: '1SEND_B0': ", "nobody runs an op of stage 1",
                Code::Infeasible},
           Case{"0F0,0B0\n1RECV_F0", "x.csv:2:1: '1RECV_F0': ", "nobody runs an op of stage 1",
                Code::Infeasible},
           Case{"0F0,0F1,0SEND_F1\n1F0,1B0", "x.csv:1:9: ", "nobody runs 1F1", Code::Infeasible},
       }) {
    const Error error = refusal(it.text);
    EXPECT_EQ(error.message.substr(0, std::string(it.starts).size()), it.starts) << it.text;
    EXPECT_NE(error.message.find(it.says), std::string::npos) << error.message;
    EXPECT_EQ(error.code, it.code) << error.message;
  }
}

// Cells of sharded weights do nothing here, and notes say so; notes also say which ranks reduce.
TEST(TorchCsv, ShardsAndReductionsAreNotes) {
  const CsvSchedule csv = read(
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n");
  EXPECT_EQ(rows_of(csv.schedule),
            "w0: F0.0 >a0.0@1 <g1.0@1 B0.0 W0.0\nw1: <a0.0@0 F1.0 B1.0 W1.0 >g1.0@0\n");
  ASSERT_EQ(csv.notes.size(), 2u);
  EXPECT_EQ(csv.notes[0].find("x.csv:1:1: '0UNSHARD' and 3 more do nothing here"), 0u);
  EXPECT_EQ(csv.notes[1].find("x.csv:1:36: '0REDUCE_GRAD' and 1 more stand for"), 0u);
  EXPECT_TRUE(read("0F0,0B0").notes.empty());
}

// These plans are right here. PyTorch runs a plan only if each rank can take its cells one after
// the other.
TEST(TorchCsv, WhatPyTorchWouldDo) {
  struct Case {
    const char* text;
    TorchEnding ending;
    const char* says;
  };
  for (const Case& it : {
           Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", TorchEnding::Runs,
                "runs it"},
           Case{"0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", TorchEnding::Hangs,
                "rank 0 stands at 0RECV_B0, which waits for 1SEND_B0; rank 1 stands at 1RECV_F0, "
                "which waits for 0SEND_F0"},
           Case{"0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
                TorchEnding::MixesUp,
                "message 1 from rank 0 to rank 1 is sent by 0SEND_F0 and taken by 1RECV_F1"},
           Case{"0F0,,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", TorchEnding::NotTaken,
                "line 1, column 5 is blank"},
       }) {
    const CsvSchedule csv = read(it.text);
    ASSERT_TRUE(csv.torch.has_value()) << it.text;
    EXPECT_EQ(csv.torch->ending, it.ending) << csv.torch->sentence;
    EXPECT_NE(csv.torch->sentence.find(it.says), std::string::npos) << csv.torch->sentence;
    const auto plan = plan_of(csv);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(check(plan.value()).ok()) << it.text;
    // After to_csv has placed the messages anew, PyTorch runs the plan, too.
    EXPECT_EQ(read(written(plan.value(), {true, CsvBackward::Whole, -1})).torch->ending,
              TorchEnding::Runs);
  }
  EXPECT_FALSE(read("0F0,0B0\n1F0,1B0\n").torch.has_value());
}

TEST(TorchCsv, Written) {
  Shape shape;
  shape.stages = shape.layers = shape.micros = 2;
  shape.split_backward = true;
  const Plan plan = make_plan(shape).value();
  EXPECT_EQ(written(plan, {}), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(written(plan, {false, CsvBackward::Split, -1}),
            "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
  EXPECT_EQ(written(plan, {false, CsvBackward::Apart, 0}), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(written(plan, {true, CsvBackward::Whole, 0}),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n");
}

TEST(TorchCsv, SeveralPipelines) {
  Shape shape;
  shape.stages = shape.layers = shape.micros = shape.pipelines = 2;
  const Plan plan = make_plan(shape).value();
  const auto none = to_csv(plan, {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("choose it with --pipeline 0 to 1"), std::string::npos);
  EXPECT_FALSE(to_csv(plan, {false, CsvBackward::Whole, 2}).ok());
  EXPECT_EQ(written(plan, {false, CsvBackward::Whole, 0}),
            written(plan, {false, CsvBackward::Whole, 1}));
  // The lists of one pipeline, used for two pipelines, give the same plan.
  const CsvSchedule csv = read(written(plan, {false, CsvBackward::Whole, 1}));
  shape.order = "x.csv";
  auto again = make_given_plan({csv.schedule, false}, shape);
  ASSERT_TRUE(again.ok()) << again.error().message;
  again.value().order = plan.order;
  EXPECT_EQ(again.value(), plan);
}

// A CSV cannot express work that has moved to another pipeline.
TEST(TorchCsv, MovedWork) {
  Shape shape;
  shape.stages = shape.layers = shape.micros = shape.pipelines = 2;
  Plan plan = make_plan(shape).value();
  plan.schedule.lists[2].push_back(plan.schedule.lists[0].front());
  const auto csv = to_csv(plan, {false, CsvBackward::Whole, 0});
  ASSERT_FALSE(csv.ok());
  EXPECT_NE(csv.error().message.find("worker 2 lists F0.0"), std::string::npos);
}

TEST(TorchCsv, EachStageMustBeAtOneWorker) {
  const auto refused = [](std::string_view text) {
    const auto plan = plan_of(read(text));
    EXPECT_FALSE(plan.ok()) << text;
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(refused("0F0,1F0,1B0,0B0\n0F1,1F1,1B1,0B1\n").substr(0, 62),
            "worker 1 lists F0.1 and worker 0 lists other ops of stage 0: a");
  EXPECT_EQ(refused("0F0,2F0,2B0,0B0\n"),
            "nobody lists an op of stage 1: stages are numbered from 0 without gaps");
  EXPECT_EQ(refused("0F0,0B0\n\n1F0,1B0\n"), "worker 1 lists no op of any stage: drop its list");
}

// Every order written and read gives the same plan, in every way of writing.
TEST(TorchCsv, RoundTrip) {
  for (const OrderCard& card : order_cards()) {
    for (const int32_t stages : {1, 2, 4}) {
      Shape shape;
      shape.stages = stages;
      shape.micros = 8;
      shape.order = card.name;
      shape.split_backward = card.splits_backward;
      const auto plan = make_plan(shape);
      ASSERT_TRUE(plan.ok()) << card.name << ": " << plan.error().message;
      ASSERT_TRUE(check(plan.value()).ok()) << card.name;
      const CsvBackward kept = card.splits_backward ? CsvBackward::Split : CsvBackward::Whole;
      for (const bool messages : {false, true}) {
        const std::string text = written(plan.value(), {messages, kept, -1});
        const CsvSchedule csv = read(text);
        EXPECT_EQ(csv.messages, messages && stages > 1) << card.name;
        const auto again = plan_of(csv);
        ASSERT_TRUE(again.ok()) << card.name << ": " << again.error().message;
        const Status status = check(again.value());
        EXPECT_TRUE(status.ok()) << card.name << ": " << status.error().message;
        EXPECT_EQ(written(again.value(), {messages, kept, -1}), text) << card.name;
        if (!messages) {
          EXPECT_EQ(again.value().schedule, plan.value().schedule) << card.name;
        }
      }
      const CsvSchedule apart = read(written(plan.value(), {true, CsvBackward::Apart, -1}));
      EXPECT_TRUE(check(plan_of(apart).value()).ok()) << card.name;
    }
  }
}

// Both ranks list the messages between them in one order, because PyTorch receives them in the
// order of sending.
TEST(TorchCsv, OneOrderOfMessages) {
  const CsvSchedule loop = read(
      "0F0,0F1,0F2,2F0,2F1,2F2,2B2,2B1,2B0,0B2,0B1,0B0\n"
      "1F0,1F1,1F2,3F0,3F1,3F2,3B2,3B1,3B0,1B2,1B1,1B0\n");
  const auto plan = plan_of(loop);
  ASSERT_TRUE(plan.ok());
  const CsvSchedule csv = read(written(plan.value(), {true, CsvBackward::Whole, -1}));
  const auto passing = [&](size_t from, OpKind kind) {
    std::string all;
    for (const Op& op : csv.schedule.lists[from]) {
      if (op.kind == kind) all += to_text(moved_value(op)) + " ";
    }
    return all;
  };
  EXPECT_EQ(passing(0, OpKind::Send), passing(1, OpKind::Recv));
  EXPECT_EQ(passing(1, OpKind::Send), passing(0, OpKind::Recv));
  EXPECT_NE(passing(0, OpKind::Send), "");
}

}  // namespace
}  // namespace tenuto
