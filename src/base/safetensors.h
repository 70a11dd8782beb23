// The safetensors file: named tensors behind a JSON header. Written so that a crash leaves either
// the whole file or none; read so that no header can make us read outside the data.
//
// Form: 8 bytes little-endian header length, the header (an object: name -> dtype, shape,
// data_offsets; "__metadata__" -> strings), the data without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace tenuto {

// One tensor to be written. Names must differ; `bytes` must be the shape's size.
struct NamedTensor {
  std::string name;
  std::string dtype;  // F32, I64, ... as in the format
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes the file as an OutputFile: durable when it returns, and never incomplete under its own
// name.
//
// `after_piece`: called after each piece of a tensor; none: a tensor is written at once. The bytes
// of the file are the same.
//
// Errors: Exhausted/Job when the disk is full, Invalid/Job when the folder cannot be written;
//         Cancelled/Call when after_piece returned false: there is no file then
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata,
                         const AfterPiece& after_piece = {});

// Where one tensor lies in a file.
struct TensorPlace {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t first = 0, end = 0;  // bytes from the start of the data, half open
};

// An opened file whose header has been checked: all tensors lie within the file, without overlap or
// gap, and each is as large as its shape says.
class SafetensorsFile {
 public:
  // Reads and checks the header.
  //
  // Errors: Invalid/Job     the file cannot be opened
  //         Corrupt/Job     truncated, or a header that is not right: what and where
  static Result<SafetensorsFile> open(const std::string& path);
  // The strings of "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // All tensors by name.
  const std::map<std::string, TensorPlace>& tensors() const { return tensors_; }
  // Reads one tensor; `into` must have its size. Corrupt/Job when the file ends early.
  Status read(const std::string& name, std::span<std::byte> into);
  // The path that was opened.
  const std::string& path() const { return file_.path(); }

 private:
  Status read_header(std::string_view header, int64_t data_bytes);
  InputFile file_;
  int64_t data_first_ = 0;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorPlace> tensors_;
};

}  // namespace tenuto
