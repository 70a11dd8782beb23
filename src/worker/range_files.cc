#include "worker/range_files.h"

#include <algorithm>
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
#include "parameter_server/message_bytes.h"
#include "protocol/saved_shard.h"

namespace tenuto {
namespace {

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

Result<std::vector<std::byte>> read_bytes(const std::vector<std::string>& paths,
                                          const std::string& file) {
  const std::optional<std::string> path = path_of(paths, file);
  if (!path) return corrupt(cat("the checkpoint has no file ", file, ": expected one"));
  const auto opened = InputFile::open(*path);
  if (!opened.ok()) return opened.error();
  std::vector<std::byte> bytes(static_cast<size_t>(opened.value().size()));
  const auto count = opened.value().read(0, bytes);
  if (!count.ok()) return count.error();
  if (count.value() == bytes.size()) return bytes;
  return corrupt(cat(*path, ": expected ", bytes.size(), " bytes, found ", count.value()));
}

}  // namespace

std::string range_file_name(const servers::ElementRange& range) {
  return cat("stage-", range.stage, "-range-", range.begin, "-", range.end, ".state");
}

std::string unfinished_folder(const std::string& directory, Mass applied, Mass full) {
  CHECK(full > Mass{}, "a step with micro-batches");
  return cat(directory, "/checkpoint-", applied.micros / full.micros, ".tmp");
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
  auto bytes = read_bytes(paths, range_file_name(range));
  if (!bytes.ok()) return bytes.error();
  return Payload(std::make_shared<const std::vector<std::byte>>(std::move(bytes).value()));
}

Result<Record> read_record(const std::vector<std::string>& paths) {
  const auto bytes = read_bytes(paths, kRecordFile);
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
