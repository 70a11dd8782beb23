#include "world/fit.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/address_range.h"
#include "base/fixed_sum.h"
#include "base/text.h"
#include "world/cluster.h"
#include "world/model_profile.h"
#include "world/sync_fit.h"

namespace tenuto {

namespace {

constexpr int32_t kMostWorkers = 16384;

using Found = std::optional<Misfit>;

Found misfit_of_name(const Job& job) {
  const std::string& name = job.name;
  const bool fits = !name.empty() && name.size() <= 200 && name[0] != '.' && name[0] != '-' &&
                    name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (!fits) {
    return Misfit{"job.name", cat("\"", name,
                                  "\" cannot name a folder: expected letters, digits, '.', '_' and "
                                  "'-', starting with a letter or digit, 200 at most")};
  }
  if (job.directory.empty()) return Misfit{"job.directory", "is empty: expected a folder"};
  return {};
}

// A run that only evaluates is synchronous, and has a pass to do.
Found misfit_of_evaluation(const Job& job) {
  if (job.evaluate.empty()) return {};
  if (job.validate_micros == 0) {
    return Misfit{"job.validate_micros",
                  "is 0, and job.evaluate asks for a held-out pass: give the number of its "
                  "micro-batches"};
  }
  if (job.is_served()) {
    return Misfit{"job.evaluate",
                  "does not go with server shards: take sync.architecture = \"all-reduce\" and "
                  "sync.mode = \"synchronous\""};
  }
  return {};
}

// What the layers of a model are, for people.
const char* layers_in_words(const ModelSettings& model) {
  if (model.kind == "module") return "the modules of the script";
  return model.kind == "gpt" ? "embedding, blocks and head" : "hidden layers and head";
}

// What Python modules do not go with, and what goes with nothing else.
Found misfit_of_module(const Job& job) {
  if (job.model.kind != "module" && job.optimizer.kind == "torch") {
    return Misfit{"optimizer.kind",
                  cat("\"torch\" is the optimizer of a script, and model.kind = \"", job.model.kind,
                      "\" has none: take \"adamw\" or \"sgd\"")};
  }
  if (job.model.kind != "module") return {};
  if (job.device.kind == "paced") {
    return Misfit{"device.kind",
                  "\"paced\" computes nothing, and model.kind = \"module\" trains modules: take "
                  "\"cpu\" or \"cuda\""};
  }
  if (job.is_served() && job.optimizer.kind == "torch") {
    return Misfit{
        "optimizer.kind",
        "\"torch\" updates the parameters of a stage, and with this sync mode each process "
        "keeps a range of them: leave the optimizer of tenuto.Pipeline out"};
  }
  return {};
}

Found misfit_of_model(const Job& job) {
  const ModelSettings& model = job.model;
  const int32_t layers = cut_layers(model);
  if (job.device.layers != nullptr && job.parallel.stages > cut_layers(job)) {
    return Misfit{"parallel.stages", cat(job.parallel.stages, " is more than the ", cut_layers(job),
                                         " layers of ", job.device.profile, ": lower it")};
  }
  if (job.device.kind != "paced" && job.parallel.stages > layers) {
    return Misfit{
        "parallel.stages",
        cat(job.parallel.stages, " is more than the ", layers, " layers that ",
            layers_in_words(model), " make: lower it or raise model.layers (", model.layers, ")")};
  }
  if (model.kind == "gpt" && model.width % model.heads != 0) {
    return Misfit{"model.width", cat(model.width, " is not a multiple of model.heads (",
                                     model.heads, "): every head needs an equal share")};
  }
  if (model.kind == "mlp" && model.tied) {
    return Misfit{"model.tied", cat("true needs model.kind = \"gpt\", found \"", model.kind,
                                    "\": an mlp has no embedding that its head can share")};
  }
  return {};
}

Found misfit_of_data(const Job& job) {
  if (job.device.kind == "paced") return {};
  const bool module = job.model.kind == "module";
  if (module && job.data.paths.empty()) return {};  // the script has the data
  if (job.data.paths.empty()) {
    return Misfit{"data.paths", cat("is empty: device.kind = \"", job.device.kind,
                                    "\" learns from files; name some, e.g. paths = "
                                    "[\"/usr/share/games/fortunes\"]")};
  }
  for (const std::string& path : job.data.paths) {
    if (path.empty()) return Misfit{"data.paths", "holds an empty path: expected a file or folder"};
  }
  const bool text = job.data.kind == "text";
  if (!module && text != (job.model.kind == "gpt")) {
    return Misfit{"data.kind",
                  cat("\"", job.data.kind, "\" does not fit model.kind = \"", job.model.kind,
                      "\": a gpt learns from \"text\", an mlp from \"classes\" or \"csv\"")};
  }
  return {};
}

// Model and cluster files need paced devices, and no settings that these files replace.
Found misfit_of_files(const Job& job) {
  const DeviceSettings &device = job.device, plain;
  const NetworkSettings &network = job.network, quiet;
  for (const auto& [key, path] : {std::pair("device.profile", &device.profile),
                                  std::pair("network.cluster", &network.cluster)}) {
    if (path->empty() || device.kind == "paced") continue;
    return Misfit{key, cat("rehearses ", path == &device.profile ? "a model" : "a cluster",
                           ", which only device.kind = \"paced\" does; found \"", device.kind,
                           "\": leave it out")};
  }
  struct Replaced {
    const std::string* by;
    const char *by_key, *key;
    bool given;
  };
  for (const Replaced& each : {
           Replaced{&device.profile, "device.profile", "device.forward_ms",
                    device.forward_ms != plain.forward_ms},
           Replaced{&device.profile, "device.profile", "device.backward_input_ms",
                    device.backward_input_ms != plain.backward_input_ms},
           Replaced{&device.profile, "device.profile", "device.backward_weight_ms",
                    device.backward_weight_ms != plain.backward_weight_ms},
           Replaced{&device.profile, "device.profile", "device.message_bytes",
                    device.message_bytes != plain.message_bytes},
           Replaced{&device.profile, "device.profile", "device.parameter_bytes",
                    device.parameter_bytes != plain.parameter_bytes},
           Replaced{&network.cluster, "network.cluster", "network.latency_ms",
                    network.latency_ms != quiet.latency_ms},
           Replaced{&network.cluster, "network.cluster", "network.megabytes_per_second",
                    network.megabytes_per_second != quiet.megabytes_per_second},
       }) {
    if (each.by->empty() || !each.given) continue;
    return Misfit{each.key, cat("is given, and ", *each.by, " (", each.by_key,
                                ") already says it: leave one out")};
  }
  return {};
}

Found misfit_of_devices(const Job& job) {
  if (job.network.devices == nullptr) return {};
  const size_t devices = job.network.devices->workers.size();
  if (devices >= static_cast<size_t>(job.worker_count())) return {};
  return Misfit{"network.cluster",
                cat("has ", devices, " devices in ", job.network.cluster, ", and the job has ",
                    job.worker_count(), " workers: give a device for each worker")};
}

Found misfit_of_paced(const Job& job) {
  struct Paced {
    const char* key;
    const std::vector<double>* times;
  };
  const DeviceSettings& device = job.device;
  for (const Paced& paced : {Paced{"device.forward_ms", &device.forward_ms},
                             Paced{"device.backward_input_ms", &device.backward_input_ms},
                             Paced{"device.backward_weight_ms", &device.backward_weight_ms}}) {
    const size_t count = paced.times->size();
    if (count != 1 && count != static_cast<size_t>(job.parallel.stages)) {
      return Misfit{paced.key, cat("has ", count, " numbers: expected one, or one per stage (",
                                   job.parallel.stages, ")")};
    }
  }
  if (Found found = misfit_of_files(job)) return found;
  if (device.kind == "paced") return {};
  const char* key = job.network.latency_ms != 0             ? "network.latency_ms"
                    : job.network.megabytes_per_second != 0 ? "network.megabytes_per_second"
                                                            : nullptr;
  if (key == nullptr) return {};
  return Misfit{key, cat("rehearses a slow link, which only device.kind = \"paced\" does; found \"",
                         device.kind, "\": set it to 0")};
}

Found misfit_of_send(const Job& job) {
  if (job.network.send != "blocking") return {};
  const char* needs = "is a rehearsal on a virtual clock, in the order of the lists: ";
  if (job.device.kind != "paced") {
    return Misfit{"network.send", cat("\"blocking\" ", needs, "it needs device.kind = \"paced\", ",
                                      "found \"", job.device.kind, "\"")};
  }
  if (job.device.clock != "virtual") {
    return Misfit{"network.send",
                  cat("\"blocking\" ", needs, "it needs device.clock = \"virtual\", ", "found \"",
                      job.device.clock, "\"")};
  }
  if (job.parallel.dispatch == "ready") {
    return Misfit{"network.send",
                  cat("\"blocking\" ", needs, "it needs parallel.dispatch = \"listed\", found \"",
                      job.parallel.dispatch, "\"")};
  }
  if (job.parallel.optimizer != "barrier") {
    return Misfit{"network.send",
                  cat("\"blocking\" ", needs, "it needs parallel.optimizer = \"barrier\", found \"",
                      job.parallel.optimizer, "\"")};
  }
  return {};
}

// Live workers can do the work of dead ones only under ready dispatch.
Found misfit_of_absence(const Job& job) {
  for (size_t i = 0; i < job.faults.size(); ++i) {
    if (job.faults[i].kind != "dead-worker" || job.network.send != "blocking") continue;
    return Misfit{cat("fault[", i, "].kind"),
                  "\"dead-worker\" needs ready dispatch, which network.send = \"blocking\" cannot "
                  "have: take \"offloaded\""};
  }
  return {};
}

Found misfit_of_path(const Job& job) {
  const std::string& path = job.network.path;
  if (path == "auto" || job.device.kind == "cuda") return {};
  return Misfit{"network.path",
                cat("\"", path, "\" says how messages leave the memory of an accelerator, and ",
                    "device.kind = \"", job.device.kind, "\" is none: remove it")};
}

Found misfit_of_numerics(const Job& job) {
  if (job.resilience.numerics != "reproducible") return {};
  if (job.device.kind == "cuda") {
    return Misfit{"resilience.numerics",
                  "\"reproducible\" sums in the host's memory: it needs device.kind = \"cpu\", or "
                  "\"paced\", whose sums are exact; found \"cuda\""};
  }
  const int64_t micros = int64_t{job.parallel.pipelines} * job.parallel.micros;
  if (micros <= kFixedTerms) return {};
  return Misfit{"resilience.numerics",
                cat("\"reproducible\" sums up to ", kFixedTerms, " micro-batches a step, found ",
                    job.parallel.pipelines, " pipelines of ", job.parallel.micros)};
}

// Of a slow link that is a pair of workers or a port; `name`: of its table, with a point.
Found misfit_of_slow_links(const Fault& fault, const Job& job, const std::string& name) {
  const int32_t workers = job.worker_count();
  if (!fault.pair.empty()) {
    const auto pair = pair_of(fault, job.seats());
    if (pair && std::max(pair->first, pair->second).value < workers) return {};
    return Misfit{
        name + "pair",
        cat("\"", fault.pair, "\" does not name two workers of this job: expected, for ",
            "example, \"0.0-0.1\"; each is PIPELINE.STAGE or a number from 0 to ", workers - 1)};
  }
  Cluster cluster;  // as cluster_of() would make it; the file may lack devices
  cluster.workers.resize(static_cast<size_t>(workers));
  if (job.network.devices != nullptr) cluster.ports = job.network.devices->ports;
  std::erase_if(cluster.ports, [&](const Port& port) {
    return port.devices.empty() || port.devices.front().value >= workers;
  });
  if (port_of(fault, job.seats(), cluster)) return {};
  return Misfit{name + "port",
                cat("\"", fault.port, "\" is neither a port of network.cluster nor a worker of ",
                    "this job: expected the name of a port, or PIPELINE.STAGE, or a number from 0 ",
                    "to ", workers - 1)};
}

// With a schedule file, the number of workers is known only after the file is read; then
// load_effective_job does this check.
Found misfit_of_faults(const Job& job) {
  const int32_t stages = job.parallel.stages, workers = job.worker_count();
  const Seats seats = job.seats();
  for (size_t i = 0; i < job.faults.size(); ++i) {
    const Fault& fault = job.faults[i];
    const std::string name = cat("fault[", i, "].");
    if (is_of_coordinator(fault) || fault.kind == "chaos") continue;  // chaos draws only what fits
    if (is_hog(fault) && job.device.kind == "paced") {
      return Misfit{
          name + "kind",
          cat("\"", fault.kind, "\" takes real resources from a host, and a paced device ",
              "only imitates computing: take a \"slow-worker\" or a \"slow-link\", or ",
              "device.kind = \"cpu\"")};
    }
    if (is_of_worker(fault)) {
      const WorkerId worker = worker_of(fault, seats);
      const int32_t end = is_hog(fault) ? job.process_count() : workers;
      if (worker.value >= 0 && worker.value < end) continue;
      return Misfit{name + "worker",
                    cat("\"", fault.worker, "\" is no worker of this job: expected \"",
                        "PIPELINE.STAGE\" of ",
                        job.parallel.holders.empty()
                            ? cat(job.parallel.pipelines, " pipelines with ", stages, " stages")
                            : cat(stages, " stages whose holders the plan lists"),
                        ", or 0 to ", end - 1)};
    }
    if (fault.link >= 0) {
      if (fault.link + 1 < stages) continue;
      return Misfit{
          name + "link",
          cat(fault.link, " would join stages ", fault.link, " and ", fault.link + 1, ": ", stages,
              stages == 1 ? " stage has no link"
                          : cat(" stages have the links 0 to ", stages - 2))};
    }
    if (!fault.pair.empty() || !fault.port.empty()) {
      if (Found found = misfit_of_slow_links(fault, job, name)) return found;
      continue;
    }
    for (const auto& [key, worker] : {std::pair("from", fault.from), std::pair("to", fault.to)}) {
      if (worker < workers) continue;
      return Misfit{name + key,
                    cat(worker, " is no worker of this job: expected 0 to ", workers - 1)};
    }
    if (fault.from == fault.to) {
      return Misfit{name + "to", cat(fault.to, " is the worker that sends: expected another")};
    }
  }
  return {};
}

// Listed holders are those of a plan file, which was checked; a job file can give them too.
Found misfit_of_holders(const Job& job) {
  const ParallelSettings& parallel = job.parallel;
  if (parallel.holders.empty()) return {};
  if (parallel.plan.empty()) {
    return Misfit{"parallel.holders", "is taken from a plan file: name one in parallel.plan"};
  }
  if (parallel.holders.size() != static_cast<size_t>(parallel.stages)) {
    return Misfit{"parallel.holders", cat("has ", parallel.holders.size(), " texts: expected ",
                                          parallel.stages, ", one for each stage")};
  }
  std::set<WorkerId> seated;
  const Seats seats = job.seats();
  for (const std::vector<WorkerId>& workers : seats.listed()) {
    bool fits = !workers.empty();
    for (const WorkerId worker : workers) {
      fits =
          fits && worker.value >= 0 && worker.value < kMostWorkers && seated.insert(worker).second;
    }
    if (!fits) {
      return Misfit{"parallel.holders", cat("expects the numbers of workers, each once, from 0 to ",
                                            kMostWorkers - 1, ", at least one for each stage")};
    }
  }
  return {};
}

Found misfit_of_workers(const Job& job) {
  // Lists of ops are held whole in memory: these limits keep a typing error from filling it.
  constexpr int64_t kMostOps = 100'000'000;
  const int64_t workers = int64_t{job.parallel.stages} * job.parallel.pipelines;
  if (workers > kMostWorkers || job.worker_count() > kMostWorkers) {
    return Misfit{"parallel.pipelines", cat("x parallel.stages makes ", workers,
                                            " workers: expected ", kMostWorkers, " at most")};
  }
  if (workers * job.parallel.micros * std::max(job.parallel.chunks, 1) > kMostOps) {
    return Misfit{"parallel.micros", cat(job.parallel.micros, " on ", workers,
                                         " workers is more than ", kMostOps, " ops a step")};
  }
  return {};
}

bool is_host_and_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  return read.ec == std::errc{} && read.ptr == end;
}

Found misfit_of_network(const Job& job) {
  if (job.network.device.empty()) {
    return Misfit{"network.device", "is empty: expected a network device such as \"lo\""};
  }
  for (const std::string& range : job.network.allow) {
    if (read_address_range(range)) continue;
    return Misfit{"network.allow",
                  cat("has \"", range,
                      "\", which is no address or network: expected some such as \"10.0.0.7\", "
                      "\"10.0.0.0/8\" or \"fe80::/10\"")};
  }
  if (!job.network.allow.empty() && job.network.wire == "ucx") {
    return Misfit{"network.allow",
                  "is given, and network.wire is \"ucx\", which lets anybody connect: use \"tcp\""};
  }
  if (job.network.tls && job.network.wire == "ucx") {
    return Misfit{"network.tls",
                  "is true, and network.wire is \"ucx\", which does not encrypt: use \"tcp\""};
  }
  if (job.network.tls && job.coordinator.tls.empty()) {
    return Misfit{"network.tls",
                  "is true, and coordinator.tls is empty: expected a folder with ca.pem, cert.pem "
                  "and key.pem there"};
  }
  const std::string& listen = job.coordinator.listen;
  if (!is_host_and_port(listen)) {
    return Misfit{"coordinator.listen", cat("\"", listen,
                                            "\" is not host:port with a port in [0, 65535]; "
                                            "\"127.0.0.1:0\" takes any free port of this host")};
  }
  const std::string& page = job.coordinator.page;
  if (page != "off" && !is_host_and_port(page)) {
    return Misfit{"coordinator.page", cat("\"", page,
                                          "\" is neither \"off\" nor host:port with a port in [0, "
                                          "65535]; \"127.0.0.1:0\" takes any free port of this "
                                          "host")};
  }
  const bool wants_etcd = job.coordinator.store == "etcd";
  if (wants_etcd == job.coordinator.etcd.empty()) {
    return Misfit{"coordinator.etcd", wants_etcd
                                          ? "is empty: coordinator.store = \"etcd\" needs the "
                                            "host:port of at least one member"
                                          : cat("is given, and coordinator.store is \"",
                                                job.coordinator.store, "\": expected \"etcd\"")};
  }
  const std::vector<std::string>& launch = job.coordinator.launch;
  if (!launch.empty() && launch.front().empty()) {
    return Misfit{"coordinator.launch",
                  "begins with an empty word: expected a program such as \"numactl\""};
  }
  return {};
}

}  // namespace

int32_t cut_layers(const ModelSettings& model) {
  if (model.kind == "module") return model.layers;
  return model.layers + (model.kind == "gpt" ? 2 : 1);
}

bool has_fine_stages(const Job& job) { return job.resilience.layers != "off"; }

TimeShare time_share_of(const Job& job, const std::vector<Stage>& stages, StageId stage) {
  const int32_t workers = job.parallel.stages;
  if (!has_fine_stages(job)) return time_share_of(stages, workers, stage);
  const int32_t chunks = std::max(1, static_cast<int32_t>(stages.size()) / workers);
  return {std::min(stage.value / chunks, workers - 1), chunks};
}

int32_t cut_layers(const Job& job) {
  return job.device.layers == nullptr ? cut_layers(job.model)
                                      : static_cast<int32_t>(job.device.layers->layers.size());
}

Found find_misfit_of_layers(const Job& job) {
  const ResilienceSettings& resilience = job.resilience;
  if (resilience.layers == "off") return {};
  const auto needs = [&](const std::string& what) {
    return Misfit{"resilience.layers", cat("\"", resilience.layers, "\" needs ", what)};
  };
  if (resilience.slow_links != "adapt") {
    return needs(cat("resilience.slow_links = \"adapt\", found \"", resilience.slow_links, "\""));
  }
  if (resilience.copies > 0) {
    return needs(cat("resilience.copies = 0, found ", resilience.copies));
  }
  if (job.network.send == "blocking") return needs("network.send = \"offloaded\"");
  if (job.parallel.stages < 2) {
    return needs("parallel.stages of at least 2: layers move between workers of one pipeline");
  }
  return {};
}

Found find_misfit(const Job& job) {
  for (const auto find : {misfit_of_name, misfit_of_holders, misfit_of_workers, find_misfit_of_sync,
                          misfit_of_model, misfit_of_data, misfit_of_paced, misfit_of_network,
                          misfit_of_send, misfit_of_absence, misfit_of_path, misfit_of_numerics,
                          find_misfit_of_layers, misfit_of_module, misfit_of_evaluation}) {
    if (Found found = find(job)) return found;
  }
  return job.parallel.schedule.empty() ? find_misfit_of_workers(job) : Found();
}

Found find_misfit_of_workers(const Job& job) {
  if (Found found = misfit_of_faults(job)) return found;
  return misfit_of_devices(job);
}

}  // namespace tenuto
