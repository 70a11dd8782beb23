#include "world/keys.h"

#include <array>
#include <cmath>

#include "base/text.h"
#include "world/key_ranges.h"

namespace tenuto {

namespace {

// slot<&Job::optimizer, &OptimizerSettings::clip>: the address of that member in a job.
template <auto... kMembers>
Slot slot(Job& job) {
  return &(job.*....*kMembers);
}

std::vector<Key> run_keys() {
  return {
      {"job.name", slot<&Job::name>, kAnyNumber, {}, "name of the run and of its folder"},
      {"job.steps", slot<&Job::steps>, whole(1, kManySteps), {}, "optimizer steps to train"},
      {"job.seed", slot<&Job::seed>, whole(0, 9e15), {}, "seed of parameters, data and dropout"},
      {"job.directory",
       slot<&Job::directory>,
       kAnyNumber,
       {},
       "runs are written to directory/name"},
      {"job.checkpoint_every",
       slot<&Job::checkpoint_every>,
       whole(0, kManySteps),
       {},
       "steps between checkpoints; 0 = only at the end"},
      {"job.keep",
       slot<&Job::keep>,
       whole(1, kMany),
       {},
       "checkpoints kept; older ones are removed"},
      {"job.validate_every",
       slot<&Job::validate_every>,
       whole(0, kManySteps),
       {},
       "steps between validations; 0 = only at the end"},
      {"job.validate_micros",
       slot<&Job::validate_micros>,
       whole(0, kMany),
       {},
       "micro-batches of one validation, over all pipelines; 0 = never validate"},
      {"job.trace_steps",
       slot<&Job::trace_steps>,
       whole(0, kManySteps),
       {},
       "steps written as Chrome traces"},
      {"data.kind",
       slot<&Job::data, &DataSettings::kind>,
       kAnyNumber,
       {"text", "classes", "csv"},
       "text: bytes to continue; classes: each file is one class; csv: numbers, class last"},
      {"data.paths",
       slot<&Job::data, &DataSettings::paths>,
       kAnyNumber,
       {},
       "files or folders to learn from"},
      {"data.held_out",
       slot<&Job::data, &DataSettings::held_out>,
       {.low = 0, .high = 0.5, .low_open = true},
       {},
       "share of each file's end kept for validation"},
  };
}

std::vector<Key> model_keys() {
  return {
      {"model.kind",
       slot<&Job::model, &ModelSettings::kind>,
       kAnyNumber,
       {"gpt", "mlp"},
       "gpt: a transformer over bytes; mlp: a classifier"},
      {"model.layers",
       slot<&Job::model, &ModelSettings::layers>,
       whole(1, 1e5),
       {},
       "gpt: transformer blocks; mlp: hidden layers"},
      {"model.width",
       slot<&Job::model, &ModelSettings::width>,
       whole(1, 1e6),
       {},
       "size of a hidden vector; gpt: a multiple of heads"},
      {"model.heads",
       slot<&Job::model, &ModelSettings::heads>,
       whole(1, 1e5),
       {},
       "gpt: attention heads"},
      {"model.sequence",
       slot<&Job::model, &ModelSettings::sequence>,
       whole(1, 1e6),
       {},
       "gpt: bytes per row; mlp on classes: bytes per window"},
      {"model.dropout",
       slot<&Job::model, &ModelSettings::dropout>,
       kBelow1,
       {},
       "share of activations dropped in training"},
      {"model.tied",
       slot<&Job::model, &ModelSettings::tied>,
       kAnyNumber,
       {},
       "gpt: the head shares the embedding's weight"},
  };
}

std::vector<Key> optimizer_keys() {
  return {
      {"optimizer.kind",
       slot<&Job::optimizer, &OptimizerSettings::kind>,
       kAnyNumber,
       {"adamw", "sgd"},
       "the update rule"},
      {"optimizer.learning_rate",
       slot<&Job::optimizer, &OptimizerSettings::learning_rate>,
       kAbove0,
       {},
       "highest learning rate"},
      {"optimizer.beta1",
       slot<&Job::optimizer, &OptimizerSettings::beta1>,
       kBelow1,
       {},
       "adamw: decay of the first moment"},
      {"optimizer.beta2",
       slot<&Job::optimizer, &OptimizerSettings::beta2>,
       kBelow1,
       {},
       "adamw: decay of the second moment"},
      {"optimizer.epsilon",
       slot<&Job::optimizer, &OptimizerSettings::epsilon>,
       kAbove0,
       {},
       "adamw: added to the root of the second moment"},
      {"optimizer.momentum",
       slot<&Job::optimizer, &OptimizerSettings::momentum>,
       kBelow1,
       {},
       "sgd: decay of the velocity"},
      {"optimizer.weight_decay",
       slot<&Job::optimizer, &OptimizerSettings::weight_decay>,
       kAtLeast0,
       {},
       "decay of the weights per step, times the learning rate"},
      {"optimizer.clip",
       slot<&Job::optimizer, &OptimizerSettings::clip>,
       kAtLeast0,
       {},
       "the global gradient norm is clipped to this; 0 = never"},
      {"optimizer.warm_up_steps",
       slot<&Job::optimizer, &OptimizerSettings::warm_up_steps>,
       whole(0, 1e9),
       {},
       "the learning rate rises linearly over these"},
      {"optimizer.schedule",
       slot<&Job::optimizer, &OptimizerSettings::schedule>,
       kAnyNumber,
       {"cosine", "constant"},
       "the learning rate after the warm-up"},
      {"optimizer.minimum_rate",
       slot<&Job::optimizer, &OptimizerSettings::minimum_rate>,
       kShare,
       {},
       "share of learning_rate that cosine ends at"},
  };
}

std::vector<Key> parallel_keys() {
  return {
      {"parallel.stages",
       slot<&Job::parallel, &ParallelSettings::stages>,
       whole(1, 16384),
       {},
       "workers of one pipeline, each with a part of the layers"},
      {"parallel.pipelines",
       slot<&Job::parallel, &ParallelSettings::pipelines>,
       whole(1, 4096),
       {},
       "copies of the model that share a step's data"},
      {"parallel.chunks",
       slot<&Job::parallel, &ParallelSettings::chunks>,
       whole(0, 1000),
       {},
       "stages that each worker holds; 0 = the order's default, 2 for most interleaved orders"},
      {"parallel.micros",
       slot<&Job::parallel, &ParallelSettings::micros>,
       whole(1, kMany),
       {},
       "micro-batches per pipeline and step"},
      {"parallel.micro_rows",
       slot<&Job::parallel, &ParallelSettings::micro_rows>,
       whole(1, kMany),
       {},
       "rows (sequences, samples) of one micro-batch"},
      {"parallel.order",
       slot<&Job::parallel, &ParallelSettings::order>,
       kAnyNumber,
       {},
       "order of the ops; tenuto schedule list shows the names"},
      {"parallel.dispatch",
       slot<&Job::parallel, &ParallelSettings::dispatch>,
       kAnyNumber,
       {"auto", "ready", "listed"},
       "ready: the first op whose inputs are here, the order keeping its warm-ups and limits; "
       "listed: in the plan's order, the default for a schedule's file that does not say ready; "
       "auto: ready, unless with messages a little late the simulator finds listed 1 % shorter"},
      {"parallel.memory",
       slot<&Job::parallel, &ParallelSettings::memory>,
       whole(0, kMany),
       {},
       "micro-batches a worker may hold; 0 = unlimited"},
      {"parallel.split_backward",
       slot<&Job::parallel, &ParallelSettings::split_backward>,
       kAnyNumber,
       {},
       "gradients of inputs and of weights are two ops; the default is the order's"},
      {"parallel.optimizer",
       slot<&Job::parallel, &ParallelSettings::optimizer>,
       kAnyNumber,
       {"barrier", "staggered", "auto"},
       "barrier: all stages step when the norm of all is known; staggered: each when its own "
       "gradients are complete, and undoes the step if the norm requires clipping; auto: "
       "staggered while few steps are clipped and it is faster"},
      {"parallel.all_reduce",
       slot<&Job::parallel, &ParallelSettings::all_reduce>,
       kAnyNumber,
       {},
       "how the holders of a stage sum its gradients: ring, halving, tree, direct, late-one (the "
       "others sum up while one is late) or auto: late-one or halving where the simulator finds it "
       "2 % faster than the ring, as when a worker is slow; see tenuto collective list"},
      {"parallel.schedule",
       slot<&Job::parallel, &ParallelSettings::schedule>,
       kAnyNumber,
       {},
       "file with one pipeline's lists, instead of an order: text, JSON or PyTorch's CSV"},
  };
}

std::vector<Key> device_keys() {
  return {
      {"device.kind",
       slot<&Job::device, &DeviceSettings::kind>,
       kAnyNumber,
       {"cpu", "cuda", "paced"},
       "what computes; paced: each op lasts a given time"},
      {"device.precision",
       slot<&Job::device, &DeviceSettings::precision>,
       kAnyNumber,
       {"fp32", "bf16"},
       "bf16: autocast, parameters stay fp32"},
      {"device.threads",
       slot<&Job::device, &DeviceSettings::threads>,
       whole(1, 1024),
       {},
       "CPU threads of one worker"},
      {"device.forward_ms",
       slot<&Job::device, &DeviceSettings::forward_ms>,
       kMilliseconds,
       {},
       "paced: length of a forward, one number or one per stage"},
      {"device.backward_input_ms",
       slot<&Job::device, &DeviceSettings::backward_input_ms>,
       kMilliseconds,
       {},
       "paced: length of a backward for the input, one number or one per stage"},
      {"device.backward_weight_ms",
       slot<&Job::device, &DeviceSettings::backward_weight_ms>,
       kMilliseconds,
       {},
       "paced: length of a backward for the weights, one number or one per stage"},
      {"device.clock",
       slot<&Job::device, &DeviceSettings::clock>,
       kAnyNumber,
       {"virtual", "real"},
       "paced: virtual hides late wake-ups and records them; real lets them count",
       {{"nominal", "virtual"}}},
      {"device.message_bytes",
       slot<&Job::device, &DeviceSettings::message_bytes>,
       whole(64, kManyBytes),
       {},
       "paced: size of an activation and of a gradient"},
      {"device.parameter_bytes",
       slot<&Job::device, &DeviceSettings::parameter_bytes>,
       whole(16, kManyBytes),
       {},
       "paced: weights of one stage"},
  };
}

std::vector<Key> network_keys() {
  return {
      {"network.transport",
       slot<&Job::network, &NetworkSettings::transport>,
       kAnyNumber,
       {"ucx", "memory"},
       "ucx: between processes; memory: threads of one process, for tests"},
      {"network.device",
       slot<&Job::network, &NetworkSettings::device>,
       kAnyNumber,
       {},
       "network device that carries the traffic"},
      {"network.protocol",
       slot<&Job::network, &NetworkSettings::protocol>,
       kAnyNumber,
       {"auto", "eager", "rendezvous"},
       "how UCX sends large messages"},
      {"network.path",
       slot<&Job::network, &NetworkSettings::path>,
       kAnyNumber,
       {"auto", "direct", "staged"},
       "accelerators: messages leave device memory directly, or staged through the host's"},
      {"network.latency_ms",
       slot<&Job::network, &NetworkSettings::latency_ms>,
       kMilliseconds,
       {},
       "paced: one way, of every link"},
      {"network.megabytes_per_second",
       slot<&Job::network, &NetworkSettings::megabytes_per_second>,
       kMegabytesPerSecond,
       {},
       "paced: rate of every link; 0 = unlimited"},
      {"network.send",
       slot<&Job::network, &NetworkSettings::send>,
       kAnyNumber,
       {"offloaded", "blocking"},
       "paced: how messages are sent; blocking: through the device's queue, where other ops wait"},
      {"network.connect_seconds",
       slot<&Job::network, &NetworkSettings::connect_seconds>,
       {.low = 0, .high = 86400, .low_open = true},
       {},
       "time limit for connecting to all peers"},
      {"network.silence_seconds",
       slot<&Job::network, &NetworkSettings::silence_seconds>,
       {.low = 0, .high = 86400, .low_open = true},
       {},
       "a step without progress for this time ends the run"},
  };
}

std::vector<Key> control_keys() {
  return {
      {"resilience.slow_links",
       slot<&Job::resilience, &ResilienceSettings::slow_links>,
       kAnyNumber,
       {"adapt", "observe", "off"},
       "adapt: change the order of ops to absorb a slow link's delay; observe: only "
       "tell"},
      {"resilience.slow_workers",
       slot<&Job::resilience, &ResilienceSettings::slow_workers>,
       kAnyNumber,
       {"adapt", "observe"},
       "adapt: give micro-batches of a slow worker to others, which changes the last bits of sums; "
       "observe: only tell; needs slow_links = \"adapt\""},
      {"resilience.dead_workers",
       slot<&Job::resilience, &ResilienceSettings::dead_workers>,
       kAnyNumber,
       {"continue", "stop"},
       "continue: continue without a lost worker while each stage has another holder; stop: save "
       "and "
       "end the run, as with blocking messages always"},
      {"resilience.silence_seconds",
       slot<&Job::resilience, &ResilienceSettings::silence_seconds>,
       {.low = 0, .high = 86400, .low_open = true},
       {},
       "a worker that is silent for this time is declared dead"},
      {"resilience.numerics",
       slot<&Job::resilience, &ResilienceSettings::numerics>,
       kAnyNumber,
       {"fast", "reproducible"},
       "fast: gradients are summed in fp32, as they come; reproducible: in fixed point, the same "
       "bits whoever ran which micro-batch, for 32 bytes a parameter and four times the bytes of a "
       "reduction"},
      {"resilience.restarts",
       slot<&Job::resilience, &ResilienceSettings::restarts>,
       whole(0, 1000),
       {},
       "how often the process of each worker that has died is started again, to join the run or to "
       "begin it: after 1 s, then 2 s, and so on twice as long"},
      {"resilience.copies",
       slot<&Job::resilience, &ResilienceSettings::copies>,
       whole(0, 1),
       {},
       "workers of another stage that also hold each stage, so that it survives all its workers; "
       "it "
       "costs the stage's memory and update once more"},
  };
}

std::vector<Key> coordinator_keys() {
  return {
      {"coordinator.listen",
       slot<&Job::coordinator, &CoordinatorSettings::listen>,
       kAnyNumber,
       {},
       "host:port of the coordinator; port 0 = any free one"},
      {"coordinator.token",
       slot<&Job::coordinator, &CoordinatorSettings::token>,
       kAnyNumber,
       {},
       "secret that workers must show; empty = a fresh random one"},
      {"coordinator.store",
       slot<&Job::coordinator, &CoordinatorSettings::store>,
       kAnyNumber,
       {"journal", "memory", "etcd"},
       "where the coordinator records its decisions: a file in the run's folder, nowhere "
       "(its death then ends the run), or an etcd cluster"},
      {"coordinator.etcd",
       slot<&Job::coordinator, &CoordinatorSettings::etcd>,
       kAnyNumber,
       {},
       "host:port of the members of the etcd cluster; for store = \"etcd\""},
      {"coordinator.tls",
       slot<&Job::coordinator, &CoordinatorSettings::tls>,
       kAnyNumber,
       {},
       "folder with ca.pem, cert.pem and key.pem: connections with the coordinator are "
       "encrypted, and both ends show certificates of that authority (none)"},
      {"coordinator.launch",
       slot<&Job::coordinator, &CoordinatorSettings::launch>,
       kAnyNumber,
       {},
       "words put before the command that starts each worker; {worker} = its number"},
  };
}

constexpr std::string_view kLater = "belongs to a later version of Tenuto; remove it";
constexpr std::string_view kTensor =
    "asks for a group of devices that share one model shard (tensor parallelism), which is not in "
    "scope yet: a worker is one process with one device; remove it";
constexpr std::array<LaterName, 4> kLaterNames = {{{"sync", kLater},
                                                   {"parallel.tensor", kTensor},
                                                   {"parallel.tensor_parallel", kTensor},
                                                   {"device.per_worker", kTensor}}};

std::string type_words(const Slot& slot) {
  struct Words {
    std::string operator()(std::string*) const { return "a string"; }
    std::string operator()(bool*) const { return "true or false"; }
    std::string operator()(int32_t*) const { return "a whole number"; }
    std::string operator()(int64_t*) const { return "a whole number"; }
    std::string operator()(double*) const { return "a number"; }
    std::string operator()(std::vector<std::string>*) const { return "a list of strings"; }
    std::string operator()(std::vector<int64_t>*) const { return "a list of whole numbers"; }
    std::string operator()(std::vector<double>*) const { return "a list of numbers"; }
  };
  return std::visit(Words{}, slot);
}

// A bound as text for people: 1e6, not 1000000.
std::string bound(double number) {
  return std::isinf(number) ? (number < 0 ? "-inf" : "inf") : piece(number);
}

std::string toml_of(const std::string& text) { return toml_string(text); }
std::string toml_of(bool value) { return piece(value); }
std::string toml_of(int32_t value) { return piece(value); }
std::string toml_of(int64_t value) { return piece(value); }
std::string toml_of(double value) {
  std::string text = piece(value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
template <class T>
std::string toml_of(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ", ") + toml_of(values[i]);
  return text + "]";
}

}  // namespace

bool Range::contains(double number) const {
  if (!std::isfinite(number)) return false;
  if (zero && number == 0) return true;
  return (low_open ? number > low : number >= low) && (high_open ? number < high : number <= high);
}

const std::vector<Key>& job_keys() {
  static const std::vector<Key> kKeys = [] {
    std::vector<Key> all;
    for (const auto& part : {run_keys(), model_keys(), optimizer_keys(), parallel_keys(),
                             device_keys(), network_keys(), control_keys(), coordinator_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kKeys;
}

namespace {

const Key* find_in(const std::vector<Key>& keys, std::string_view name) {
  for (const Key& key : keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace

const Key* find_key(std::string_view name) { return find_in(job_keys(), name); }
const Key* find_fault_key(std::string_view name) { return find_in(fault_keys(), name); }

std::string expected(const Key& key) {
  if (!key.choices.empty()) {
    std::string text;
    for (size_t i = 0; i < key.choices.size(); ++i) {
      if (i > 0) text += i + 1 == key.choices.size() ? " or " : ", ";
      text += cat("\"", key.choices[i], "\"");
    }
    return text;
  }
  Job job;
  std::string text = type_words(key.slot(job));
  const Range& range = key.range;
  if (std::isinf(range.low) && std::isinf(range.high)) return text;
  return cat(range.zero ? "0, or " : "", text, " in ", range.low_open ? '(' : '[', bound(range.low),
             ", ", bound(range.high), range.high_open || std::isinf(range.high) ? ')' : ']');
}

std::string value_text(const Key& key, const Job& job) {
  Job copy = job;
  return std::visit([](auto* value) { return toml_of(*value); }, key.slot(copy));
}

std::string toml_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += cat("\\u00", kDigits[byte >> 4], kDigits[byte & 15]);
    } else {
      out += letter;
    }
  }
  return out + "\"";
}

std::string_view later_sentence(std::string_view name) {
  for (const LaterName& later : kLaterNames) {
    if (later.name == name) return later.sentence;
  }
  return {};
}

}  // namespace tenuto
