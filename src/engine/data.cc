#include "engine/data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "engine/files.h"
#include "engine/stage_module.h"

namespace tenuto {
namespace {

Error refuse(std::string message) { return {Code::Invalid, Reach::Job, std::move(message)}; }

// Chooses the rows of a Draw, by the job's settings.
struct Sampler {
  explicit Sampler(const Job& job)
      : seed(static_cast<uint64_t>(job.seed)),
        rows(job.parallel.micro_rows),
        held_out_rows(int64_t{std::max(1, job.validate_micros)} * rows) {}

  uint64_t seed;
  int64_t rows;
  int64_t held_out_rows;  // of one whole held-out pass

  // A place in [0, count) for a row: random for training, evenly spread for the held-out pass.
  int64_t place(const Draw& draw, int64_t row, int64_t count, uint64_t what) const {
    __extension__ using Wide = unsigned __int128;
    if (draw.held_out) {
      const int64_t index = (draw.micro * rows + row) % held_out_rows;
      return static_cast<int64_t>(static_cast<Wide>(index) * static_cast<uint64_t>(count) /
                                  static_cast<uint64_t>(held_out_rows));
    }
    const uint64_t bits = mix(mix(seed, what), static_cast<uint64_t>(draw.iteration.value),
                              static_cast<uint64_t>(draw.micro), static_cast<uint64_t>(row));
    return static_cast<int64_t>(static_cast<Wide>(bits) * static_cast<uint64_t>(count) >> 64);
  }
};

constexpr uint64_t kPlaceKey = 0x706c616365;  // tells draws of places from draws of classes
constexpr uint64_t kClassKey = 0x636c617373;

// How many of `count` items at the end of a file are held out.
int64_t held_out_of(int64_t count, double share) {
  return static_cast<int64_t>(std::floor(static_cast<double>(count) * share));
}

// `part` of the text is too short for windows of `need` bytes.
Error too_short(std::string_view part, const std::string& of, int64_t have, int64_t need,
                double share) {
  const auto whole = static_cast<int64_t>(std::ceil(static_cast<double>(need) / share)) + 1;
  return refuse(cat("data.paths: the ", part, " part of ", of, " has ", have,
                    " bytes, and a row of model.sequence needs ", need, ": give at least ", whole,
                    " bytes of text, or a shorter sequence"));
}

// The class of each row.
template <class ClassOf>
Tensors classes_of(int64_t rows, const ClassOf& class_of) {
  const at::Tensor classes = at::empty({rows}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    classes.mutable_data_ptr<int64_t>()[row] = class_of(row);
  }
  return {classes};
}

class TextData : public Data {
 public:
  explicit TextData(const Job& job) : sampler_(job), sequence_(job.model.sequence) {}

  Status read(const Job& job) {
    Result<std::vector<UserFile>> files = read_user_files(job.data.paths);
    if (!files.ok()) return files.error();
    const double share = job.data.held_out;
    for (const UserFile& file : files.value()) {
      const auto size = static_cast<int64_t>(file.bytes.size());
      const auto cut = static_cast<size_t>(size - held_out_of(size, share));
      training_.append(file.bytes, 0, cut);
      held_out_.append(file.bytes, cut);
    }
    const std::string of = cat(files.value().size(), " files");
    const int64_t need = sequence_ + 1;
    if (length(training_) < need) {
      return too_short("training", of, length(training_), need, 1 - share);
    }
    if (length(held_out_) < need) {
      return too_short("held-out", of, length(held_out_), need, share);
    }
    return ok();
  }

  DataExtent extent() const override { return {}; }

  Tensors inputs(const Draw& draw) const override { return {bytes(draw, 0)}; }
  Tensors targets(const Draw& draw) const override { return {bytes(draw, 1).view({-1})}; }

 private:
  // The bytes of the rows, each row shifted forward by `ahead` bytes of the text.
  at::Tensor bytes(const Draw& draw, int64_t ahead) const {
    const at::Tensor rows = at::empty({sampler_.rows, sequence_}, at::kLong);
    int64_t* into = rows.mutable_data_ptr<int64_t>();
    const std::string& text = draw.held_out ? held_out_ : training_;
    for (int64_t row = 0; row < sampler_.rows; ++row) {
      const int64_t first = sampler_.place(draw, row, length(text) - sequence_, kPlaceKey) + ahead;
      const auto* from = reinterpret_cast<const unsigned char*>(text.data()) + first;
      into = std::copy(from, from + sequence_, into);
    }
    return rows;
  }
  static int64_t length(const std::string& text) { return static_cast<int64_t>(text.size()); }
  Sampler sampler_;
  int64_t sequence_;
  std::string training_, held_out_;
};

class ClassData : public Data {
 public:
  explicit ClassData(const Job& job) : sampler_(job), window_(job.model.sequence) {}

  Status read(const Job& job) {
    Result<std::vector<UserFile>> files = read_user_files(job.data.paths);
    if (!files.ok()) return files.error();
    if (files.value().size() < 2) {
      return refuse(cat("data.paths: each file is a class, and there is only ",
                        files.value().front().path, ": name at least 2 files"));
    }
    const double share = job.data.held_out;
    for (UserFile& file : files.value()) {
      const auto size = static_cast<int64_t>(file.bytes.size());
      const int64_t kept = held_out_of(size, share);
      if (size - kept < window_) {
        return too_short("training", file.path, size - kept, window_, 1 - share);
      }
      if (kept < window_) return too_short("held-out", file.path, kept, window_, share);
      cut_.push_back(size - kept);
      texts_.push_back(std::move(file.bytes));
    }
    return ok();
  }

  DataExtent extent() const override { return {kVocabulary, static_cast<int64_t>(texts_.size())}; }

  Tensors inputs(const Draw& draw) const override {
    const float unit = static_cast<float>(kVocabulary) / static_cast<float>(window_);
    const at::Tensor features = at::zeros({sampler_.rows, kVocabulary}, at::kFloat);
    float* bins = features.mutable_data_ptr<float>();
    for (int64_t row = 0; row < sampler_.rows; ++row, bins += kVocabulary) {
      const auto one = static_cast<size_t>(class_of(draw, row));
      const int64_t length = draw.held_out ? std::ssize(texts_[one]) - cut_[one] : cut_[one];
      int64_t first = sampler_.place(draw, row, length - window_ + 1, kPlaceKey);
      if (draw.held_out) first += cut_[one];
      for (int64_t i = 0; i < window_; ++i) {
        bins[static_cast<unsigned char>(texts_[one][static_cast<size_t>(first + i)])] += unit;
      }
    }
    return {features};
  }

  Tensors targets(const Draw& draw) const override {
    return classes_of(sampler_.rows, [&](int64_t row) { return class_of(draw, row); });
  }

 private:
  int64_t class_of(const Draw& draw, int64_t row) const {
    const int64_t count = std::ssize(texts_);
    return draw.held_out ? (draw.micro * sampler_.rows + row) % count
                         : sampler_.place(draw, row, count, kClassKey);
  }

  Sampler sampler_;
  int64_t window_;
  std::vector<std::string> texts_;
  std::vector<int64_t> cut_;  // where each text's held-out part begins
};

// Reads the numbers of one line; false when one is not a finite number.
bool read_numbers(std::string_view line, std::vector<float>& numbers) {
  numbers.clear();
  while (true) {
    const size_t comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) {
      field.remove_prefix(1);
    }
    while (!field.empty() && (field.back() == ' ' || field.back() == '\r')) field.remove_suffix(1);
    float number = 0;
    const auto read = std::from_chars(field.data(), field.data() + field.size(), number);
    if (read.ec != std::errc() || read.ptr != field.data() + field.size() ||
        !std::isfinite(number)) {
      return false;
    }
    numbers.push_back(number);
    if (comma == std::string_view::npos) return true;
    line.remove_prefix(comma + 1);
  }
}

// Rows of numbers, one after the other.
struct Table {
  std::vector<float> numbers;
  std::vector<int64_t> classes;
};

class TableData : public Data {
 public:
  explicit TableData(const Job& job) : sampler_(job) {}

  Status read(const Job& job) {
    Result<std::vector<UserFile>> files = read_user_files(job.data.paths);
    if (!files.ok()) return files.error();
    for (const UserFile& file : files.value()) {
      if (Status added = add_file(file, job.data.held_out); !added.ok()) return added;
    }
    for (const auto& [name, table] :
         {std::pair{"training", &training_}, std::pair{"held-out", &held_out_}}) {
      if (table->classes.empty()) {
        return refuse(cat("data.paths: no ", name, " line in ", files.value().size(),
                          " files: give at least ", std::ceil(1 / job.data.held_out),
                          " lines of numbers"));
      }
    }
    scale();
    return ok();
  }

  DataExtent extent() const override { return {features_, classes_}; }

  Tensors inputs(const Draw& draw) const override {
    const at::Tensor features = at::empty({sampler_.rows, features_}, at::kFloat);
    float* into = features.mutable_data_ptr<float>();
    for (int64_t row = 0; row < sampler_.rows; ++row) {
      const float* from = table_of(draw).numbers.data() + line_of(draw, row) * features_;
      into = std::copy(from, from + features_, into);
    }
    return {features};
  }

  Tensors targets(const Draw& draw) const override {
    return classes_of(sampler_.rows, [&](int64_t row) {
      return table_of(draw).classes[static_cast<size_t>(line_of(draw, row))];
    });
  }

 private:
  const Table& table_of(const Draw& draw) const { return draw.held_out ? held_out_ : training_; }
  int64_t line_of(const Draw& draw, int64_t row) const {
    return sampler_.place(draw, row, std::ssize(table_of(draw).classes), kPlaceKey);
  }
  Status add_file(const UserFile& file, double share) {
    Table lines;
    std::vector<float> numbers;
    std::string_view rest = file.bytes;
    for (int64_t line = 1; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view text = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (text.empty() || text == "\r") continue;
      const bool read = read_numbers(text, numbers);
      if (!read && line == 1) continue;
      if (!read) return refuse(cat(file.path, ":", line, ": not a line of finite numbers"));
      if (Status added = add_line(cat(file.path, ":", line), numbers, lines); !added.ok()) {
        return added;
      }
    }
    const auto count = static_cast<int64_t>(lines.classes.size());
    const int64_t cut = count - held_out_of(count, share);
    for (int64_t i = 0; i < count; ++i) {
      Table& into = i < cut ? training_ : held_out_;
      const auto from = lines.numbers.begin() + i * features_;
      into.numbers.insert(into.numbers.end(), from, from + features_);
      into.classes.push_back(lines.classes[static_cast<size_t>(i)]);
    }
    return ok();
  }

  Status add_line(const std::string& place, const std::vector<float>& numbers, Table& lines) {
    constexpr int64_t kClassLimit = 65536;  // more is a column of measurements, not of classes
    const auto features = static_cast<int64_t>(numbers.size()) - 1;
    if (features < 1) return refuse(cat(place, ": needs at least a number and a class"));
    if (features_ == 0) features_ = features;
    if (features != features_) {
      return refuse(
          cat(place, ": has ", features + 1, " columns, the lines before have ", features_ + 1));
    }
    const float last = numbers.back();
    if (last < 0 || last >= kClassLimit || last != std::floor(last)) {
      return refuse(cat(place, ": the last column is the class, a whole number from 0 to ",
                        kClassLimit - 1, ", not ", last));
    }
    const auto one = static_cast<int64_t>(last);
    classes_ = std::max({classes_, one + 1, int64_t{2}});
    lines.numbers.insert(lines.numbers.end(), numbers.begin(), numbers.end() - 1);
    lines.classes.push_back(one);
    return ok();
  }

  void scale() {
    const auto rows = training_.classes.size();
    const auto columns = static_cast<size_t>(features_);
    for (size_t column = 0; column < columns; ++column) {
      double sum = 0, squares = 0;
      for (size_t i = 0; i < rows; ++i) sum += training_.numbers[i * columns + column];
      const double mean = sum / static_cast<double>(rows);
      for (size_t i = 0; i < rows; ++i) {
        const double off = training_.numbers[i * columns + column] - mean;
        squares += off * off;
      }
      const double deviation = std::sqrt(squares / static_cast<double>(rows));
      const double unit = deviation > 0 ? 1 / deviation : 1;
      for (Table* table : {&training_, &held_out_}) {
        for (size_t i = column; i < table->numbers.size(); i += columns) {
          table->numbers[i] = static_cast<float>((table->numbers[i] - mean) * unit);
        }
      }
    }
  }

  Sampler sampler_;
  int64_t features_ = 0, classes_ = 0;
  Table training_, held_out_;
};

template <class Kind>
Result<std::unique_ptr<Data>> opened(const Job& job) {
  auto data = std::make_unique<Kind>(job);
  if (Status read = data->read(job); !read.ok()) return read.error();
  return std::unique_ptr<Data>(std::move(data));
}

}  // namespace

Result<std::unique_ptr<Data>> open_data(const Job& job) {
  const bool text = job.data.kind == "text";
  const ModelKind& kind = model_kind(job.model);
  if (!kind.any_data && text != kind.text) {
    return refuse(cat("model.kind = \"", job.model.kind, "\" does not learn from data.kind = \"",
                      job.data.kind, "\": gpt takes text, mlp takes classes or csv"));
  }
  if (text) return opened<TextData>(job);
  if (job.data.kind == "classes") return opened<ClassData>(job);
  return opened<TableData>(job);
}

}  // namespace tenuto
