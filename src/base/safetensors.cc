#include "base/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kHeaderLimit = 64 << 20;  // far above any model's list of names
constexpr std::string_view kMetadata = "__metadata__";

// Bytes of one element, 0 for an unknown dtype.
int64_t element_bytes(std::string_view dtype) {
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

std::string make_header(const std::vector<NamedTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  int64_t place = 0;
  for (const NamedTensor& tensor : tensors) {
    const int64_t end = place + static_cast<int64_t>(tensor.bytes.size());
    CHECK(!header.contains(tensor.name), cat("tensor ", tensor.name, " is written twice"));
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {place, end}}};
    place = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  return text;
}

Status write_pieces(OutputFile& file, const std::string& path, std::span<const std::byte> bytes,
                    const AfterPiece& after_piece) {
  if (!after_piece) return file.write(bytes);
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
    if (Status written = file.write(piece); !written.ok()) return written;
    if (!after_piece()) return not_wanted(path);
    bytes = bytes.subspan(piece.size());
  }
  return ok();
}

Status write_all(OutputFile& file, const std::string& path, const std::vector<NamedTensor>& tensors,
                 const std::string& header, const AfterPiece& after_piece) {
  const uint64_t length = header.size();
  Status written = file.write(std::as_bytes(std::span(&length, 1)));
  if (written.ok()) written = file.write(header);
  for (const NamedTensor& tensor : tensors) {
    if (written.ok()) written = write_pieces(file, path, tensor.bytes, after_piece);
  }
  return written.ok() ? file.finish() : written;
}

// Parses a header. A name that comes twice is refused, because either could be meant.
Result<Json> parse_header(std::string_view header, const std::string& path) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      if (!names.insert(parsed.get<std::string>()).second) twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(header.begin(), header.end(), watch, false);
  if (json.is_discarded() || !json.is_object()) {
    return Error{Code::Corrupt, Reach::Job,
                 cat(path, ": the header is not a JSON object: the file is damaged")};
  }
  if (!twice.empty()) {
    return Error{Code::Corrupt, Reach::Job, cat(path, ": the header names ", twice, " twice")};
  }
  return json;
}

bool is_count(const Json& json) {
  return json.is_number_integer() &&
         (!json.is_number_unsigned() ||
          json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
         json.get<int64_t>() >= 0;
}

// The place that one header entry names, or what is wrong with it.
Result<TensorPlace> read_place(const Json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return invalid("needs dtype, shape and two data_offsets");
  }
  TensorPlace place;
  place.dtype = entry["dtype"].get<std::string>();
  const int64_t element = element_bytes(place.dtype);
  if (element == 0) return invalid(cat("has the unknown dtype ", place.dtype));
  const Json& offsets = entry["data_offsets"];
  if (!is_count(offsets[0]) || !is_count(offsets[1])) return invalid("has a wrong data offset");
  place.first = offsets[0].get<int64_t>();
  place.end = offsets[1].get<int64_t>();
  int64_t bytes = element;
  for (const Json& extent : entry["shape"]) {
    if (!is_count(extent) || __builtin_mul_overflow(bytes, extent.get<int64_t>(), &bytes)) {
      return invalid("has a wrong shape");
    }
    place.shape.push_back(extent.get<int64_t>());
  }
  if (place.end < place.first || place.end - place.first != bytes) {
    return invalid(cat("has ", place.end - place.first, " bytes where its shape needs ", bytes));
  }
  return place;
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata,
                         const AfterPiece& after_piece) {
  for (const NamedTensor& tensor : tensors) {
    int64_t bytes = element_bytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= extent;
    CHECK(bytes == static_cast<int64_t>(tensor.bytes.size()),
          cat("tensor ", tensor.name, " has ", tensor.bytes.size(), " bytes, not ", bytes));
  }
  auto file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  return write_all(file.value(), path, tensors, make_header(tensors, metadata), after_piece);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto opened = InputFile::open(path);
  if (!opened.ok()) {
    return Error{Code::Invalid, Reach::Job, opened.error().message};
  }
  SafetensorsFile file;
  file.file_ = std::move(opened).value();
  const auto corrupt = [&](const std::string& what) {
    return Error{Code::Corrupt, Reach::Job,
                 cat(path, ": ", what, ": take another checkpoint, this file is damaged")};
  };
  const int64_t file_bytes = file.file_.size();
  uint64_t length = 0;
  const auto start = file.file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (!start.ok() || start.value() != sizeof(length)) {
    return corrupt(cat("has ", file_bytes, " bytes, too few for a header"));
  }
  if (length > uint64_t{kHeaderLimit} || static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    return corrupt(cat("names a header of ", length, " bytes in a file of ", file_bytes));
  }
  std::string header(length, '\0');
  const auto read_header = file.file_.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  if (!read_header.ok() || read_header.value() != length) return corrupt("ends within its header");
  file.data_first_ = kLengthBytes + static_cast<int64_t>(length);
  Status read = file.read_header(header, file_bytes - file.data_first_);
  if (!read.ok()) return read.error();
  return file;
}

Status SafetensorsFile::read_header(std::string_view header, int64_t data_bytes) {
  const auto corrupt = [&](const std::string& what) {
    return Error{Code::Corrupt, Reach::Job,
                 cat(path(), ": ", what, ": take another checkpoint, this file is damaged")};
  };
  const Result<Json> json = parse_header(header, path());
  if (!json.ok()) return json.error();
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const auto& [name, entry] : json.value().items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) return corrupt("its metadata is not an object");
      for (const auto& [key, text] : entry.items()) {
        if (!text.is_string()) return corrupt(cat("metadata ", key, " is not a string"));
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    Result<TensorPlace> place = read_place(entry);
    if (!place.ok()) return corrupt(cat("tensor ", name, " ", place.error().message));
    if (place.value().end > data_bytes) {
      return corrupt(cat("tensor ", name, " ends at byte ", place.value().end, " of ", data_bytes,
                         " (truncated?)"));
    }
    taken.emplace_back(place.value().first, place.value().end);
    tensors_[name] = std::move(place).value();
  }
  std::sort(taken.begin(), taken.end());
  int64_t covered = 0;
  for (const auto& [first, end] : taken) {
    if (first != covered) return corrupt(cat("tensors overlap or leave a gap at byte ", covered));
    covered = end;
  }
  if (covered != data_bytes) {
    return corrupt(cat("its tensors cover ", covered, " bytes and the file has ", data_bytes));
  }
  return ok();
}

Status SafetensorsFile::read(const std::string& name, std::span<std::byte> into) {
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end(), cat(path(), " has no tensor ", name));
  const int64_t bytes = found->second.end - found->second.first;
  CHECK(bytes == static_cast<int64_t>(into.size()),
        cat("a buffer of ", into.size(), " for ", bytes));
  const auto count = file_.read(data_first_ + found->second.first, into);
  if (!count.ok() || count.value() != into.size()) {
    return Error{Code::Corrupt, Reach::Job,
                 cat(path(), ": ends within tensor ", name, ": the file was cut short")};
  }
  return ok();
}

}  // namespace tenuto
