#include "runtime/paced_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tenuto {

namespace {

using Json = nlohmann::json;

std::string tensor_name(StageId stage) { return cat("stage.", stage, ".weight"); }

Error refused(const std::string& path, const std::string& why) {
  return {Code::Corrupt, Reach::Job, cat(path, ": ", why)};
}

Status write_all(const std::string& path, std::string_view bytes) {
  const auto failed = [&](const char* what) {
    return Error{errno == ENOSPC ? Code::Exhausted : Code::Invalid, Reach::Job,
                 cat(path, ": cannot ", what, ": ", std::strerror(errno))};
  };
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return failed("create");
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = write(file, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      Error error = failed("write");
      close(file);
      return error;
    }
    written += static_cast<size_t>(count);
  }
  if (fsync(file) != 0) {
    Error error = failed("sync");
    close(file);
    return error;
  }
  if (close(file) != 0) return failed("close");
  return ok();
}

// One file's tensors: where each lies and what the file says of itself.
struct Opened {
  Json header;
  std::string bytes;
  size_t data = 0;  // where the data begin
};

Result<Opened> open_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Code::Invalid, Reach::Job, cat(path, ": cannot read the file")};
  Opened opened;
  opened.bytes.assign(std::istreambuf_iterator<char>(file), {});
  uint64_t length = 0;
  if (opened.bytes.size() < sizeof(length)) return refused(path, "the file is cut off");
  std::memcpy(&length, opened.bytes.data(), sizeof(length));
  if (length > opened.bytes.size() - sizeof(length)) return refused(path, "the header is cut off");
  opened.data = sizeof(length) + length;
  opened.header = Json::parse(opened.bytes.begin() + sizeof(length),
                              opened.bytes.begin() + static_cast<int64_t>(opened.data), nullptr,
                              /*allow_exceptions=*/false);
  if (!opened.header.is_object()) return refused(path, "the header is no JSON object");
  return opened;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<std::vector<float>> read_tensor(const std::string& path, const Opened& opened,
                                       const Json& tensor, size_t count) {
  const auto shape = tensor.find("shape"), offsets = tensor.find("data_offsets");
  const auto numbers = [](const Json& list, size_t size) {
    if (!list.is_array() || list.size() != size) return false;
    for (const Json& each : list) {
      if (!each.is_number_unsigned()) return false;
    }
    return true;
  };
  if (text_of(tensor, "dtype") != "F32" || shape == tensor.end() || !numbers(*shape, 1) ||
      offsets == tensor.end() || !numbers(*offsets, 2)) {
    return refused(path, "the tensor is not a row of fp32 numbers");
  }
  const auto elements = (*shape)[0].get<uint64_t>();
  const auto first = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
  const uint64_t size = opened.bytes.size() - opened.data;
  if (first > end || end > size || (end - first) / sizeof(float) != elements ||
      (end - first) % sizeof(float) != 0) {
    return refused(path, "the tensor lies outside of the file: it is cut off or damaged");
  }
  if (elements != count) {
    return Error{Code::Invalid, Reach::Job,
                 cat(path, ": the stage has ", elements, " weights, expected ", count,
                     ": device.parameter_bytes differs from the run that wrote it")};
  }
  std::vector<float> weights(count);
  std::memcpy(weights.data(), opened.bytes.data() + opened.data + first, count * sizeof(float));
  return weights;
}

}  // namespace

Status save_paced(const std::string& path, StageId stage, int32_t stage_count, int64_t version,
                  const std::vector<float>& weights) {
  const size_t size = weights.size() * sizeof(float);
  Json header;
  header["__metadata__"] = {{"stages", cat(stage_count)}, {"version", cat(version)}};
  header[tensor_name(stage)] = {
      {"dtype", "F32"}, {"shape", {weights.size()}}, {"data_offsets", {0, size}}};
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes(sizeof(uint64_t), '\0');
  const uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  bytes.append(reinterpret_cast<const char*>(weights.data()), size);
  const std::string unfinished = path + ".part";
  if (Status status = write_all(unfinished, bytes); !status.ok()) {
    unlink(unfinished.c_str());
    return status;
  }
  std::error_code code;
  std::filesystem::rename(unfinished, path, code);
  if (code) {
    return Error{Code::Invalid, Reach::Job, cat(path, ": cannot rename: ", code.message())};
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return ok();
}

Result<std::vector<float>> load_paced(const std::vector<std::string>& paths, StageId stage,
                                      int32_t stage_count, int64_t version, size_t count) {
  for (const std::string& path : paths) {
    const Result<Opened> opened = open_file(path);
    if (!opened.ok()) return opened.error();
    const Json& header = opened.value().header;
    const auto tensor = header.find(tensor_name(stage));
    if (tensor == header.end()) continue;
    const auto about = header.find("__metadata__");
    const Json empty = Json::object();
    const Json& said = about != header.end() && about->is_object() ? *about : empty;
    if (text_of(said, "stages") != cat(stage_count) || text_of(said, "version") != cat(version)) {
      return Error{Code::Invalid, Reach::Job,
                   cat(path, ": holds version '", text_of(said, "version"), "' of a run with '",
                       text_of(said, "stages"), "' stages, expected version ", version, " and ",
                       stage_count, " stages: a paced device keeps its stages")};
    }
    if (!tensor->is_object()) return refused(path, "the tensor has no description");
    return read_tensor(path, opened.value(), *tensor, count);
  }
  return Error{Code::Invalid, Reach::Job,
               cat("none of ", paths.size(), " files holds ", tensor_name(stage))};
}

}  // namespace tenuto
