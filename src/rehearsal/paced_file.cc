#include "rehearsal/paced_file.h"

#include <utility>

#include "base/safetensors.h"
#include "base/text.h"

namespace tenuto {

namespace {

std::string tensor_name(StageId stage) { return cat("stage.", stage, ".weight"); }

std::string said(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

}  // namespace

StateTensors paced_tensors(StageId stage, int32_t stage_count, int64_t version,
                           const std::vector<float>& weights) {
  NamedTensor tensor;
  tensor.name = tensor_name(stage);
  tensor.dtype = "F32";
  tensor.shape = {static_cast<int64_t>(weights.size())};
  tensor.bytes = std::as_bytes(std::span(weights));
  StateTensors all;
  all.tensors.push_back(std::move(tensor));
  all.metadata["stages"] = cat(stage_count);
  all.metadata["version"] = cat(version);
  return all;
}

Result<std::vector<float>> load_paced(const std::vector<std::string>& paths, StageId stage,
                                      int32_t stage_count, int64_t version, size_t count) {
  for (const std::string& path : paths) {
    auto file = SafetensorsFile::open(path);
    if (!file.ok()) return file.error();
    const auto tensor = file.value().tensors().find(tensor_name(stage));
    if (tensor == file.value().tensors().end()) continue;
    const std::string stages = said(file.value(), "stages");
    const std::string found = said(file.value(), "version");
    if (stages != cat(stage_count) || found != cat(version)) {
      return Error{Code::Invalid, Reach::Job,
                   cat(path, ": holds version '", found, "' of a run with '", stages,
                       "' stages, expected version ", version, " and ", stage_count,
                       " stages: a paced device keeps its stages")};
    }
    const TensorPlace& place = tensor->second;
    if (place.dtype != "F32" || place.shape.size() != 1) {
      return Error{Code::Corrupt, Reach::Job,
                   cat(path, ": the tensor is not a row of fp32 numbers")};
    }
    if (place.shape[0] != static_cast<int64_t>(count)) {
      return Error{Code::Invalid, Reach::Job,
                   cat(path, ": the stage has ", place.shape[0], " weights, expected ", count,
                       ": device.parameter_bytes differs from the run that wrote it")};
    }
    std::vector<float> weights(count);
    const Status read =
        file.value().read(tensor->first, std::as_writable_bytes(std::span(weights)));
    if (!read.ok()) return read.error();
    return weights;
  }
  return Error{Code::Invalid, Reach::Job,
               cat("none of ", paths.size(), " files holds ", tensor_name(stage))};
}

}  // namespace tenuto
