// tenuto._tenuto: what the package `tenuto` needs of C++. Only tenuto/*.py calls it.
#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/text.h"
#include "engine/engine.h"
#include "protocol/client.h"
#include "protocol/saved_shard.h"
#include "protocol/tls.h"
#include "python_stage.h"
#include "worker/parent.h"
#include "worker/range_files.h"
#include "worker/worker_run.h"
#include "world/load.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

namespace py = pybind11;

// How long the coordinator has to answer a wish.
constexpr Duration kWishLimit = std::chrono::seconds(10);

// A user's mistake becomes a ValueError with the sentence.
[[noreturn]] void refuse(const Error& error) { throw py::value_error(error.message); }

// What the scripts of all workers must have alike; see Pipeline in tenuto/_pipeline.py. Before the
// dot stands what the model is, behind it what the script says; nothing if it could not be read.
Status check_digest(const Job& job, const std::string& digest) {
  const std::string& begun = job.model.digest;
  if (begun.empty() || begun == digest) return ok();
  const auto model_of = [](const std::string& all) { return all.substr(0, all.find('.')); };
  const auto text_of = [](const std::string& all) {
    const size_t dot = all.find('.');
    return dot == std::string::npos ? std::string() : all.substr(dot + 1);
  };
  if (model_of(begun) != model_of(digest)) {
    return Error{Code::Invalid, Reach::Job,
                 cat("two scripts that differ: the one of this worker makes other modules, ",
                     "initial values, shapes, seed or rows (", digest.substr(0, 12),
                     ") than that with which the run began (", begun.substr(0, 12),
                     "): start all workers with the same script, arguments and torch")};
  }
  const std::string mine = text_of(digest), theirs = text_of(begun);
  if (mine.empty() || theirs.empty() || mine == theirs) return ok();
  return Error{Code::Invalid, Reach::Job,
               cat("two scripts that differ: the code of this worker's script (",
                   mine.substr(0, 12), ") is not that with which the run began (",
                   theirs.substr(0, 12), "): start all workers with the same script")};
}

// Reads a job file (empty = none) with overrides "section.key=value".
py::dict read_job(const std::string& path, const std::vector<std::string>& overrides) {
  const Result<LoadedJob> loaded = load_job(path, overrides);
  if (!loaded.ok()) refuse(loaded.error());
  const Job& job = loaded.value().job;
  py::dict all;
  all["name"] = job.name;
  all["directory"] = job.directory;
  all["seed"] = job.seed;
  all["steps"] = job.steps;
  all["micro_rows"] = job.parallel.micro_rows;
  all["micros"] = job.parallel.micros;
  all["pipelines"] = job.parallel.pipelines;
  all["stages"] = job.parallel.stages;
  all["validate_micros"] = job.validate_micros;
  all["data"] = !job.data.paths.empty();
  all["threads"] = job.device.threads;
  all["precision"] = job.device.precision;
  all["device"] = job.device.kind;
  return all;
}

// The first micro-batch of the files that a job names: inputs and targets.
std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> file_batch(
    const std::string& path, const std::vector<std::string>& overrides) {
  const Result<LoadedJob> loaded = load_job(path, overrides);
  if (!loaded.ok()) refuse(loaded.error());
  if (loaded.value().job.data.paths.empty()) {
    throw py::value_error(
        "fit() without a data set learns from the job's files, and data.paths is "
        "empty: give one of the two");
  }
  const Result<std::unique_ptr<Data>> data = open_data(loaded.value().job);
  if (!data.ok()) refuse(data.error());
  return {data.value()->inputs({}), data.value()->targets({})};
}

// The values with which the parameter of that name begins in a model of Tenuto's own.
at::Tensor initial(const std::string& name, const std::vector<int64_t>& shape, double deviation,
                   int64_t seed) {
  const ParameterCard card{.name = name, .shape = shape, .deviation = deviation};
  const at::Tensor values = at::empty(shape, at::kFloat);
  initial_values(card, seed, {values.mutable_data_ptr<float>(), static_cast<size_t>(card.count())});
  return values;
}

// The parameters of a stage in a checkpoint whose files are ranges of parameters. `cards` are
// (name, shape, whether it is trained) of all parameters of the stage, in the order of the model.
std::vector<at::Tensor> served_parameters(
    const std::vector<std::string>& paths, int32_t stage,
    const std::vector<std::tuple<std::string, std::vector<int64_t>, bool>>& cards) {
  std::vector<ParameterCard> all;
  for (const auto& [name, shape, trained] : cards) {
    all.push_back({.name = name, .shape = shape, .trained = trained});
  }
  const ParameterLayout layout = layout_of(all);
  const Result<std::vector<float>> read = read_parameters(paths, {stage});
  if (!read.ok()) refuse(read.error());
  if (std::ssize(read.value()) != layout.count) {
    throw py::value_error(cat("the checkpoint is of another model: stage ", stage, " has ",
                              read.value().size(), " elements in it, and ", layout.count,
                              " in this one"));
  }
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < all.size(); ++i) {
    values.push_back(at::empty(all[i].shape, at::kFloat));
    std::copy_n(read.value().begin() + layout.first[i], all[i].count(),
                values.back().mutable_data_ptr<float>());
  }
  return values;
}

// The size of a file of a checkpoint, and its checksum (crc32c) in hexadecimal digits.
std::pair<int64_t, std::string> describe_file(const std::string& folder, const std::string& name) {
  const Result<SavedShard> file = describe_shard(folder, name, 0);
  if (!file.ok()) refuse(file.error());
  return {file.value().bytes, file.value().checksum};
}

// Sends a wish of `tenuto inject` to the coordinator; returns its answer.
std::string ask(const std::string& coordinator, const std::string& job, const std::string& token,
                const std::string& tls, const std::string& wish) {
  const py::gil_scoped_release unlocked;
  const auto identity = read_tls(tls);
  if (!identity.ok()) refuse(identity.error());
  const Result<std::string> answer =
      ask_coordinator(coordinator, job, token, wish, kWishLimit, identity.value().get());
  if (!answer.ok()) refuse(answer.error());
  return answer.value();
}

// What a run needs of the script. All of it is called with the GIL.
struct Script {
  py::object stage;    // (first layer, end, is last) -> tenuto._stage.Stage
  py::object batch;    // see make_python_data; None: the job's files
  py::object stepped;  // (step, mean loss, gradient norm or None, learning rate); None: nobody
                       // wants to know
  std::string digest;
};

Result<std::unique_ptr<Device>> make_device(const Script& script, const Job& job, const Plan& plan,
                                            const std::vector<StageId>& stages, Mailbox& mailbox) {
  if (Status same = check_digest(job, script.digest); !same.ok()) return same.error();
  EngineOptions options;
  const auto layers = plan.stages.back().layer_end;
  // The script outlives the engine: see run().
  options.module = [&script, layers](const Job&, const DataExtent&,
                                     const Stage& stage) -> std::unique_ptr<StageModule> {
    return with_python([&] {
      return make_python_stage(
          script.stage(stage.layer_first, stage.layer_end, stage.layer_end == layers));
    });
  };
  if (!script.batch.is_none()) {
    options.data = [&script](const Job&) -> Result<std::unique_ptr<Data>> {
      const py::gil_scoped_acquire lock;
      return make_python_data(script.batch);
    };
  }
  return make_engine(job, plan, stages, mailbox, std::move(options));
}

// Takes part in a run to the end of this process's part. `settings` are the fields of
// WorkerSettings and the launcher's process, `parent`. Returns the exit code and a sentence.
std::pair<int, std::string> run(const py::dict& settings, py::object stage, py::object batch,
                                py::object stepped, const std::string& digest) {
  const auto text = [&](const char* key) { return py::cast<std::string>(settings[key]); };
  const auto number = [&](const char* key) { return py::cast<int32_t>(settings[key]); };
  const WorkerSettings worker{.coordinator = text("coordinator"),
                              .job = text("job"),
                              .token = text("token"),
                              .tls = text("tls"),
                              .self = {number("worker")},
                              .incarnation = number("incarnation")};
  const int parent = number("parent");
  const Script script{std::move(stage), std::move(batch), std::move(stepped), digest};
  const py::gil_scoped_release unlocked;
  if (!tie_to_parent(parent)) return {1, ""};
  keep_freed_memory();  // every micro-batch allocates the same activations
  RealDevice device;
  device.make = [&script](const Job& of, const Plan& plan, const std::vector<StageId>& stages,
                          Mailbox& mailbox) {
    return make_device(script, of, plan, stages, mailbox);
  };
  device.bind_thread = bind_device;
  // No memory counter: it replaces torch's allocator, and Python has memory of the present one.
  if (!script.stepped.is_none()) {
    device.stepped = [&script](const StepNews& news) {
      if (news.losses.empty()) return;
      double sum = 0;
      for (const MicroLoss& each : news.losses) sum += each.loss;
      const double mean = sum / static_cast<double>(news.losses.size());
      const py::gil_scoped_acquire lock;
      try {
        script.stepped(news.step, mean, news.gradient_norm, news.learning_rate);
      } catch (py::error_already_set& raised) {
        raised.discard_as_unraisable("a callback of tenuto.Pipeline");
      }
    };
  }
  const WorkerEnd end = run_worker(worker, device);
  return {end.exit_code, end.sentence};
}

}  // namespace
}  // namespace tenuto

PYBIND11_MODULE(_tenuto, module) {
  namespace py = pybind11;
  module.doc() = "What the package tenuto needs of C++; use the package.";
  module.def("read_job", tenuto::read_job, py::arg("path"), py::arg("overrides"));
  module.def("file_batch", tenuto::file_batch, py::arg("path"), py::arg("overrides"));
  module.def("ask", tenuto::ask, py::arg("coordinator"), py::arg("job"), py::arg("token"),
             py::arg("tls"), py::arg("wish"));
  module.def("describe_file", tenuto::describe_file, py::arg("folder"), py::arg("name"));
  module.def("initial", tenuto::initial, py::arg("name"), py::arg("shape"), py::arg("deviation"),
             py::arg("seed"));
  module.def("served_parameters", tenuto::served_parameters, py::arg("paths"), py::arg("stage"),
             py::arg("cards"));
  module.def("run", tenuto::run, py::arg("settings"), py::arg("stage"), py::arg("batch"),
             py::arg("stepped"), py::arg("digest"));
}
