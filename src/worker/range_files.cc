#include "worker/range_files.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "parameter_server/mass_store.h"
#include "parameter_server/message_bytes.h"
#include "protocol/saved_shard.h"

namespace tenuto {
namespace {

using servers::ElementRange;
using servers::Payload;
using servers::Record;
using servers::SavedFile;

Error corrupt(std::string sentence) { return {Code::Corrupt, Reach::Job, std::move(sentence)}; }

// Writes a file of the folder, and adds what it is.
Status write_one(const std::string& folder, const std::string& name,
                 std::span<const std::byte> bytes, std::vector<SavedFile>& written) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Status done = write_file(cat(folder, "/", name), text);
  if (!done.ok()) return done;
  const Result<SavedShard> shard = describe_shard(folder, name, 0);
  if (!shard.ok()) return shard.error();
  written.push_back({name, shard.value().bytes, shard.value().checksum});
  return ok();
}

Result<std::vector<std::byte>> read_bytes(const std::string& path) {
  const auto opened = InputFile::open(path);
  if (!opened.ok()) return opened.error();
  std::vector<std::byte> bytes(static_cast<size_t>(opened.value().size()));
  const auto count = opened.value().read(0, bytes);
  if (!count.ok()) return count.error();
  if (count.value() == bytes.size()) return bytes;
  return corrupt(cat(path, ": expected ", bytes.size(), " bytes, found ", count.value()));
}

Result<Payload> read_state(const std::string& path) {
  auto bytes = read_bytes(path);
  if (!bytes.ok()) return bytes.error();
  return Payload(std::make_shared<const std::vector<std::byte>>(std::move(bytes).value()));
}

// The range that the file's name says; none = another file.
std::optional<servers::ElementRange> range_in(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  std::string_view rest = name;
  const auto number = [&rest](std::string_view before, auto& value) {
    if (!rest.starts_with(before)) return false;
    rest.remove_prefix(before.size());
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<size_t>(read.ptr - rest.data()));
    return read.ec == std::errc();
  };
  servers::ElementRange range;
  const bool is_range = number("stage-", range.stage.value) && number("-range-", range.begin) &&
                        number("-", range.end);
  if (!is_range || range.begin < 0 || range.end <= range.begin) return std::nullopt;
  // A name that write_range gives, so that no other file is taken for one of a range.
  return range_file_name(range) == name ? std::optional(range) : std::nullopt;
}

}  // namespace

std::string range_file_name(const servers::ElementRange& range) {
  return cat("stage-", range.stage, "-range-", range.begin, "-", range.end, ".state");
}

std::string unfinished_folder(const std::string& directory, Mass applied, Mass full) {
  CHECK(full > Mass{}, "a step with micro-batches");
  return unfinished_path(directory, applied.micros / full.micros);
}

Result<std::vector<SavedFile>> write_range(const std::string& folder,
                                           const servers::ElementRange& range,
                                           const servers::SavedState& state) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return Error{Code::Invalid, Reach::Job,
                 cat("the folder ", folder, " cannot be made: ", failure.message())};
  }
  std::vector<SavedFile> written;
  Status done = write_one(folder, range_file_name(range), *state.state, written);
  if (done.ok() && state.record) {
    // The record as a message: the form of its bytes is known there alone.
    const servers::EncodedMessage record = servers::encode({{}, *state.record});
    done = write_one(folder, kRecordFile, record.head, written);
  }
  if (!done.ok()) return done.error();
  return written;
}

std::optional<std::string> path_of(const std::vector<std::string>& paths, const std::string& file) {
  const auto is_it = [&](const std::string& path) {
    return std::filesystem::path(path).filename().string() == file;
  };
  const auto found = std::find_if(paths.begin(), paths.end(), is_it);
  return found == paths.end() ? std::nullopt : std::optional(*found);
}

Result<Payload> read_range(const std::vector<std::string>& paths,
                           const servers::ElementRange& range) {
  const std::string file = range_file_name(range);
  if (const auto path = path_of(paths, file)) return read_state(*path);
  std::vector<Payload> states;
  for (const std::string& path : paths) {
    const std::optional<servers::ElementRange> has = range_in(path);
    const bool is_part =
        has && has->stage == range.stage && has->begin < range.end && range.begin < has->end;
    if (!is_part) continue;
    auto state = read_state(path);
    if (!state.ok()) return state.error();
    states.push_back(std::move(state).value());
  }
  if (states.empty()) {
    return corrupt(cat("the checkpoint has no file ", file, " and none with a part of it"));
  }
  auto joined = servers::join_states(states, range);
  if (!joined.ok()) return corrupt(cat("the checkpoint's ", joined.error().message));
  return joined;
}

Result<std::vector<float>> read_parameters(const std::vector<std::string>& paths, StageId stage) {
  servers::ElementRange all{stage, 0, 0};
  for (const std::string& path : paths) {
    const std::optional<servers::ElementRange> has = range_in(path);
    if (has && has->stage == stage) all.end = std::max(all.end, has->end);
  }
  if (all.end == 0) return corrupt(cat("the checkpoint has no parameters of stage ", stage));
  const auto state = read_range(paths, all);
  if (!state.ok()) return state.error();
  auto parameters = servers::parameters_in(state.value(), all);
  if (!parameters.ok()) return corrupt(cat("the checkpoint's ", parameters.error().message));
  return parameters;
}

Result<Record> read_record(const std::vector<std::string>& paths) {
  const auto path = path_of(paths, kRecordFile);
  if (!path) return corrupt(cat("the checkpoint has no file ", kRecordFile, ": expected one"));
  const auto bytes = read_bytes(*path);
  if (!bytes.ok()) return bytes.error();
  const auto message = servers::decode(bytes.value(), {});
  if (!message.ok()) {
    return corrupt(cat("the checkpoint's ", kRecordFile, ": ", message.error().message));
  }
  const auto* record = std::get_if<Record>(&message.value().body);
  if (record != nullptr) return *record;
  return corrupt(
      cat("the checkpoint's ", kRecordFile, ": expected a record, found another message"));
}

}  // namespace tenuto
