// Writes a stage's weights to a checkpoint shard and reads them from the shards of any partition.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "engine/weights.h"

namespace tenuto {
namespace {

constexpr const char* kForm = "1";  // version of the shards' names and metadata
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kUpdates = "optimizer_updates";
constexpr const char* kVersion = "version";

Error refuse(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += cat(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

// The opened shards, and which file has each tensor.
struct Shards {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, SafetensorsFile*> home;
  std::string optimizer;
  int64_t updates = 0;
};

Result<std::string> metadata(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found != file.metadata().end()) return found->second;
  return Error{Code::Corrupt, Reach::Job,
               cat(file.path(), ": its metadata has no ", key, ": not a checkpoint of Tenuto")};
}

Result<int64_t> number(const SafetensorsFile& file, const std::string& key) {
  const Result<std::string> text = metadata(file, key);
  if (!text.ok()) return text.error();
  int64_t value = 0;
  const char* end = text.value().data() + text.value().size();
  const auto read = std::from_chars(text.value().data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) {
    return Error{Code::Corrupt, Reach::Job,
                 cat(file.path(), ": metadata ", key, " is not a number: ", text.value())};
  }
  return value;
}

// Opens all shards. If `version` is not below 0, each shard must have it.
Result<Shards> open_shards(const std::vector<std::string>& paths, int64_t version) {
  Shards shards;
  for (const std::string& path : paths) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file.ok()) return file.error();
    const Result<int64_t> found = number(file.value(), kVersion);
    const Result<int64_t> updates = number(file.value(), kUpdates);
    const Result<std::string> optimizer = metadata(file.value(), kOptimizer);
    if (!found.ok()) return found.error();
    if (!updates.ok()) return updates.error();
    if (!optimizer.ok()) return optimizer.error();
    if (version >= 0 && found.value() != version) {
      return Error{Code::Corrupt, Reach::Job,
                   cat(path, ": is of step ", found.value(), ", expected ", version,
                       ": shards of two checkpoints are mixed")};
    }
    shards.updates = updates.value();
    shards.optimizer = optimizer.value();
    shards.files.push_back(std::make_unique<SafetensorsFile>(std::move(file).value()));
    SafetensorsFile* opened = shards.files.back().get();
    for (const auto& [name, place] : opened->tensors()) shards.home.emplace(name, opened);
  }
  return shards;
}

Status read_tensor(const Shards& shards, const std::string& name, const ParameterCard& card,
                   const at::Tensor& flat, int64_t first) {
  const auto found = shards.home.find(name);
  if (found == shards.home.end()) {
    return refuse(cat("no shard has the tensor ", name, " (of ", shards.files.size(),
                      " shards): they are of another model, or one is missing"));
  }
  const TensorPlace& place = found->second->tensors().at(name);
  if (place.dtype != "F32" || place.shape != card.shape) {
    return refuse(cat(found->second->path(), ": tensor ", name, " is ", place.dtype, " ",
                      text_of(place.shape), ", this job's model needs F32 ", text_of(card.shape),
                      ": resume with the settings of [model] that wrote it"));
  }
  return found->second->read(name, bytes_of(flat.narrow(0, first, card.count())));
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> Weights::state() const {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (size_t i = 0; i < moments_.size(); ++i) named.emplace_back(moment_names_[i], moments_[i]);
  return named;
}

std::vector<std::pair<std::string, at::Tensor>> Weights::flats_on_host() const {
  std::vector<std::pair<std::string, at::Tensor>> flats = state();
  flats.insert(flats.begin(), {"", values_});
  for (auto& named : flats) named.second = named.second.cpu();
  return flats;
}

// The tensors of a shard; their bytes are those of `flats`.
StateTensors Weights::tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& flats,
                                 int64_t version) const {
  std::vector<NamedTensor> tensors;
  for (const auto& [suffix, flat] : flats) {
    for (const Weight& weight : all_) {
      if (!weight.card.counted) continue;  // the tied weight is in the first stage's shard
      const std::string name =
          suffix.empty() ? weight.card.name : cat("optimizer.", weight.card.name, ".", suffix);
      tensors.push_back({name, "F32", weight.card.shape,
                         bytes_of(flat.narrow(0, weight.first, weight.card.count()))});
    }
  }
  return {std::move(tensors),
          {{"format", "pt"},
           {"tenuto", kForm},
           {kVersion, cat(version)},
           {kOptimizer, optimizer_},
           {kUpdates, cat(updates_)}}};
}

Status Weights::save(const std::string& path, int64_t version) const {
  const auto flats = flats_on_host();
  return write_state_file(path, tensors_of(flats, version));
}

StateCopy Weights::copy(int64_t version) const {
  const auto flats = flats_on_host();
  return StateCopy(tensors_of(flats, version));
}

// The flat tensors of the state, in the order in which a part holds their elements.
std::vector<at::Tensor> Weights::state_rows() const {
  std::vector<at::Tensor> rows = {values_.detach()};
  for (const auto& [name, row] : state()) rows.push_back(row);
  return rows;
}

// Rows of a part of the state. There are at least two, even if the optimizer has no tensor: the
// first unit holds the number of updates, whose 8 bytes must fit.
int64_t Weights::row_count() const { return std::max<int64_t>(2, std::ssize(state_rows())); }

int64_t Weights::state_unit() const { return row_count() * static_cast<int64_t>(sizeof(float)); }

int64_t Weights::state_bytes() const { return (1 + count_) * state_unit(); }

// What a part holds: `count` elements of each row and, if `number`, also the number of updates.
struct Weights::Part {
  bool number = false;
  int64_t first = 0, count = 0;
};

Weights::Part Weights::part_of(int64_t first, int64_t size) const {
  const int64_t unit = state_unit();
  CHECK(first >= 0 && size >= 0 && first + size <= state_bytes(), "a part of the state");
  CHECK(first % unit == 0 && size % unit == 0, cat("a part of the state is made of units of ", unit,
                                                   " bytes: not ", size, " from ", first, " on"));
  const bool number = first == 0 && size > 0;
  return {number, number ? 0 : first / unit - 1, size / unit - (number ? 1 : 0)};
}

void Weights::read_state(int64_t first, std::span<std::byte> to) const {
  const at::NoGradGuard guard;
  const Part part = part_of(first, std::ssize(to));
  if (part.number) {
    const auto unit = to.first(static_cast<size_t>(state_unit()));
    std::fill(unit.begin(), unit.end(), std::byte{0});
    std::memcpy(unit.data(), &updates_, sizeof(updates_));
    to = to.subspan(unit.size());
  }
  if (part.count == 0) return;
  const std::vector<at::Tensor> rows = state_rows();
  const at::Tensor target = at::from_blob(to.data(), {row_count(), part.count}, at::kFloat);
  if (rows.size() == 1) target.select(0, 1).zero_();
  for (size_t r = 0; r < rows.size(); ++r) {
    target.select(0, static_cast<int64_t>(r)).copy_(rows[r].narrow(0, part.first, part.count));
  }
}

void Weights::write_state(int64_t first, std::span<const std::byte> from) {
  const at::NoGradGuard guard;
  const Part part = part_of(first, std::ssize(from));
  if (part.number) {
    std::memcpy(&updates_, from.data(), sizeof(updates_));
    from = from.subspan(static_cast<size_t>(state_unit()));
  }
  if (part.count == 0) return;
  const std::vector<at::Tensor> rows = state_rows();
  const at::Tensor source =
      at::from_blob(const_cast<std::byte*>(from.data()), {row_count(), part.count}, at::kFloat);
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].narrow(0, part.first, part.count).copy_(source.select(0, static_cast<int64_t>(r)));
  }
  refresh_low();
}

Status Weights::load(const std::vector<std::string>& paths, int64_t version) {
  return read_into(paths, version, true);
}

Status Weights::load_values(const std::vector<std::string>& paths) {
  return read_into(paths, -1, false);
}

Status Weights::read_into(const std::vector<std::string>& paths, int64_t version, bool with_state) {
  const at::NoGradGuard guard;
  const Result<Shards> shards = open_shards(paths, version);
  if (!shards.ok()) return shards.error();
  if (with_state && !paths.empty() && shards.value().optimizer != optimizer_) {
    return refuse(cat(paths.front(), ": was trained with optimizer.kind = \"",
                      shards.value().optimizer, "\", the job says \"", optimizer_,
                      "\": resume with the same"));
  }
  std::vector<std::pair<std::string, at::Tensor>> flats;
  if (with_state) flats = state();
  flats.insert(flats.begin(), {"", values_});
  std::vector<at::Tensor> read;
  for (const auto& [suffix, flat] : flats) {
    read.push_back(at::empty_like(flat, flat.options().device(at::kCPU)).zero_());
    for (const Weight& weight : all_) {
      const std::string name =
          suffix.empty() ? weight.card.name : cat("optimizer.", weight.card.name, ".", suffix);
      Status one = read_tensor(shards.value(), name, weight.card, read.back(), weight.first);
      if (!one.ok()) return one;
    }
  }
  for (size_t i = 0; i < flats.size(); ++i) flats[i].second.copy_(read[i]);
  if (with_state) updates_ = shards.value().updates;
  refresh_low();
  return ok();
}

}  // namespace tenuto
