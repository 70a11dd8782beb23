// PyTorch's schedule CSV, in and out: what torch.distributed.pipelining dumps and loads, so that
// its schedules can be checked, priced and trained here, and ours can run there (docs/formats.md).
//
// One row a worker (its "rank"), one action a cell, a blank cell is idle time. An action is
// <stage><kind><micro-batch>: F forward, B whole backward, I its half for the inputs, W its half
// for the weights; SEND_F RECV_F SEND_B RECV_B messages, named by the stage that sends or receives;
// (3F1;2B0)OVERLAP_F_B several actions, one after the other; 2REDUCE_GRAD the end of a stage's
// gradient; 2UNSHARD and 2RESHARD the gathering and dropping of sharded weights (FSDP), which
// Tenuto does not shard: they do nothing here. A file without messages is "compute only", one with
// them is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "ir/torch_run.h"

namespace tenuto {

// What a CSV says: the ops of one pipeline, without the step's end (reduction, norm, update).
struct CsvSchedule {
  Schedule schedule;      // lists[r] = row r; a whole backward is its two halves side by side
  bool messages = false;  // the file places messages itself
  bool splits = false;    // some backward comes in two cells
  // What Tenuto does differently from the file: one sentence each.
  std::vector<std::string> notes;
  // For a file with messages: what PyTorch's runtime would do with it.
  std::optional<TorchRun> torch;
};

// True when the text cannot be our own text or JSON and begins as a CSV of actions does.
bool looks_like_csv(std::string_view text);

// Reads a CSV. To check the schedule, make a plan of it (plan/given_plan.h) and call `check`.
//
// Errors: Invalid/Call    not of this form; source, line, column, what was expected and found
//         Infeasible/Job  well formed, but Tenuto cannot run it: a message whose other end is on no
//                         other worker, a REDUCE_GRAD before the stage's last weight gradient
Result<CsvSchedule> schedule_from_csv(std::string_view text, std::string_view source);

// How backwards are written. Whole: B, at the place of its half for the inputs. Split: I and W.
// Apart: B if nothing stands between the two halves, else I and W.
enum class CsvBackward : uint8_t { Whole, Split, Apart };

// What to write.
struct CsvOptions {
  bool messages = false;  // complete, with REDUCE_GRAD; else compute only
  CsvBackward backward = CsvBackward::Whole;
  int32_t pipeline = -1;  // which one; -1 = the only one
};

// The compute of one pipeline as CSV. Messages are placed anew, each SEND with its RECV, in one
// order that all rows share, because PyTorch receives the messages between two ranks in the order
// of sending. Dispatch, limits, layers and the held-out pass are not part of a CSV.
//
// Requires: check(plan) is ok
// Errors:   Invalid/Call    no such pipeline, or several and none chosen
//           Infeasible/Job  work of one pipeline is spread over others, or a list cannot run in
//                           list order because the plan needs its ready dispatch
Result<std::string> to_csv(const Plan& plan, const CsvOptions& options);

}  // namespace tenuto
