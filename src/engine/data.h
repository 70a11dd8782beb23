// What the model learns from: bytes of text, classes of files, or tables of numbers. The rows of a
// micro-batch are a function of (seed, iteration, micro-batch, row), the same on every worker. The
// iteration is the replica's: in synchronous training the step.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/boundary.h"
#include "ir/version.h"
#include "world/job.h"
#include "world/parameters.h"

namespace tenuto {

// Names the rows of one micro-batch: of an iteration of the replica, or of the held-out pass (then
// `micro` is counted from 0 and the rows are the same every time).
struct Draw {
  bool held_out = false;
  Iteration iteration;
  int32_t micro = 0;
};

// An opened data set. Rows are job.parallel.micro_rows a micro-batch.
class Data {
 public:
  virtual ~Data() = default;
  // What the model must know of the data.
  virtual DataExtent extent() const = 0;
  // The model's inputs, on the CPU. Text: bytes [rows, sequence]; classes and tables: numbers
  // [rows, features].
  virtual Tensors inputs(const Draw& draw) const = 0;
  // What the loss compares the model's outputs with, on the CPU. Text: the byte after each one of
  // the inputs; classes and tables: the class of each row.
  virtual Tensors targets(const Draw& draw) const = 0;
};

// Opens what job.data names. A folder stands for every regular file in it, at any depth, that has
// no NUL byte; symbolic links in it are not followed. Files are taken in the order of their paths;
// the last part of each, a share of data.held_out, is kept for validation.
//
// text     the files one after the other; a row is a window of sequence + 1 bytes
// classes  each file is one class; a row is a window of `sequence` bytes as counts of its 256 byte
//          values, scaled to mean 1
// csv      each line is a row of numbers, and its last number is the class; columns are scaled to
//          mean 0 and deviation 1 over the training lines; a first line that is not numbers is a
//          heading
//
// Errors: Invalid/Job for a missing file, too few bytes or lines (the error says how many are
//         needed), a line that is not numbers, and a kind that the model cannot learn from
Result<std::unique_ptr<Data>> open_data(const Job& job);

}  // namespace tenuto
