#include "world/keys.h"

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
      key("job.name", slot<&Job::name>, "name of the run and of its folder"),
      key("job.steps", slot<&Job::steps>, "optimizer steps to train", whole(1, kManySteps)),
      key("job.seed", slot<&Job::seed>, "seed of parameters, data and dropout", whole(0, 9e15)),
      key("job.directory", slot<&Job::directory>, "runs are written to directory/name"),
      key("job.checkpoint_every", slot<&Job::checkpoint_every>,
          "steps between checkpoints; 0 = only at the end", whole(0, kManySteps)),
      key("job.checkpoint_asynchronous", slot<&Job::checkpoint_asynchronous>,
          "a worker copies its state and writes it while steps go on; not with server shards"),
      key("job.keep", slot<&Job::keep>, "checkpoints kept; older ones are removed",
          whole(1, kMany)),
      key("job.validate_every", slot<&Job::validate_every>,
          "steps between validations; 0 = only at the end", whole(0, kManySteps)),
      key("job.validate_micros", slot<&Job::validate_micros>,
          "micro-batches of one validation, over all pipelines; 0 = never validate",
          whole(0, kMany)),
      key("job.evaluate", slot<&Job::evaluate>,
          "a checkpoint, or a run: one validation of its parameters, and no step; empty = train"),
      key("job.trace_steps", slot<&Job::trace_steps>, "steps written as Chrome traces",
          whole(0, kManySteps)),
      key("job.trace_first", slot<&Job::trace_first>, "so many first steps are traced, too",
          whole(0, kManySteps)),
      key("job.trace_last", slot<&Job::trace_last>, "so many last steps are traced, too",
          whole(0, kManySteps)),
      key("job.trace_after", slot<&Job::trace_after>,
          "steps traced after each detection, decision or death", whole(0, kManySteps)),
      key("job.trace_megabytes", slot<&Job::trace_megabytes>,
          "size of all traces of a run; the oldest are removed", whole(1, kMany)),
      key("data.kind", slot<&Job::data, &DataSettings::kind>,
          "text: bytes to continue; classes: each file is one class; csv: numbers, class last",
          {"text", "classes", "csv"}),
      key("data.paths", slot<&Job::data, &DataSettings::paths>, "files or folders to learn from"),
      key("data.held_out", slot<&Job::data, &DataSettings::held_out>,
          "share of each file's end kept for validation",
          Range{.low = 0, .high = 0.5, .low_open = true}),
  };
}

std::vector<Key> model_keys() {
  return {
      key("model.kind", slot<&Job::model, &ModelSettings::kind>,
          "gpt: a transformer over bytes; mlp: a classifier; module: PyTorch modules of a script",
          {"gpt", "mlp", "module"}),
      key("model.layers", slot<&Job::model, &ModelSettings::layers>,
          "gpt: transformer blocks; mlp: hidden layers; module: modules", whole(1, 1e5)),
      key("model.width", slot<&Job::model, &ModelSettings::width>,
          "size of a hidden vector; gpt: a multiple of heads", whole(1, 1e6)),
      key("model.heads", slot<&Job::model, &ModelSettings::heads>, "gpt: attention heads",
          whole(1, 1e5)),
      key("model.sequence", slot<&Job::model, &ModelSettings::sequence>,
          "gpt: bytes per row; mlp on classes: bytes per window", whole(1, 1e6)),
      key("model.dropout", slot<&Job::model, &ModelSettings::dropout>,
          "share of activations dropped in training", kBelow1),
      key("model.tied", slot<&Job::model, &ModelSettings::tied>,
          "gpt: the head shares the embedding's weight; module: set by tenuto launch"),
      key("model.digest", slot<&Job::model, &ModelSettings::digest>,
          "module: what the scripts of all workers must have alike; set by tenuto launch"),
  };
}

std::vector<Key> optimizer_keys() {
  return {
      key("optimizer.kind", slot<&Job::optimizer, &OptimizerSettings::kind>,
          "the update rule; torch: that of a script's tenuto.Pipeline, which sets this key",
          {"adamw", "sgd", "torch"}),
      key("optimizer.rule", slot<&Job::optimizer, &OptimizerSettings::rule>,
          "torch: the class of the optimizer; set by tenuto launch"),
      key("optimizer.learning_rate", slot<&Job::optimizer, &OptimizerSettings::learning_rate>,
          "highest learning rate", kAbove0),
      key("optimizer.beta1", slot<&Job::optimizer, &OptimizerSettings::beta1>,
          "adamw: decay of the first moment", kBelow1),
      key("optimizer.beta2", slot<&Job::optimizer, &OptimizerSettings::beta2>,
          "adamw: decay of the second moment", kBelow1),
      key("optimizer.epsilon", slot<&Job::optimizer, &OptimizerSettings::epsilon>,
          "adamw: added to the root of the second moment", kAbove0),
      key("optimizer.momentum", slot<&Job::optimizer, &OptimizerSettings::momentum>,
          "sgd: decay of the velocity", kBelow1),
      key("optimizer.weight_decay", slot<&Job::optimizer, &OptimizerSettings::weight_decay>,
          "decay of the weights per step, times the learning rate", kAtLeast0),
      key("optimizer.clip", slot<&Job::optimizer, &OptimizerSettings::clip>,
          "the global gradient norm is clipped to this; 0 = never", kAtLeast0),
      key("optimizer.warm_up_steps", slot<&Job::optimizer, &OptimizerSettings::warm_up_steps>,
          "the learning rate rises linearly over these", whole(0, 1e9)),
      key("optimizer.schedule", slot<&Job::optimizer, &OptimizerSettings::schedule>,
          "the learning rate after the warm-up", {"cosine", "constant"}),
      key("optimizer.minimum_rate", slot<&Job::optimizer, &OptimizerSettings::minimum_rate>,
          "share of learning_rate that cosine ends at", kShare),
  };
}

std::vector<Key> parallel_keys() {
  return {
      key("parallel.stages", slot<&Job::parallel, &ParallelSettings::stages>,
          "workers of one pipeline, each with a part of the layers", whole(1, 16384)),
      key("parallel.pipelines", slot<&Job::parallel, &ParallelSettings::pipelines>,
          "copies of the model that share a step's data", whole(1, 4096)),
      key("parallel.chunks", slot<&Job::parallel, &ParallelSettings::chunks>,
          "stages that each worker holds; 0 = the order's default, 2 for most interleaved orders",
          whole(0, 1000)),
      key("parallel.micros", slot<&Job::parallel, &ParallelSettings::micros>,
          "micro-batches per pipeline and step", whole(1, kMany)),
      key("parallel.micro_rows", slot<&Job::parallel, &ParallelSettings::micro_rows>,
          "rows (sequences, samples) of one micro-batch", whole(1, kMany)),
      key("parallel.order", slot<&Job::parallel, &ParallelSettings::order>,
          "order of the ops; tenuto schedule list shows the names"),
      key("parallel.dispatch", slot<&Job::parallel, &ParallelSettings::dispatch>,
          "ready: a worker runs the first op whose inputs are here, within the order's warm-up "
          "and memory limits; listed: it runs its ops in the plan's order, which is the default "
          "for a schedule file that does not say ready; auto: ready, unless the simulator, with "
          "messages a little late, finds listed 1 % faster",
          {"auto", "ready", "listed"}),
      key("parallel.memory", slot<&Job::parallel, &ParallelSettings::memory>,
          "micro-batches a worker may hold; 0 = unlimited", whole(0, kMany)),
      key("parallel.split_backward", slot<&Job::parallel, &ParallelSettings::split_backward>,
          "gradients of inputs and of weights are two ops; the default is the order's"),
      key("parallel.recompute", slot<&Job::parallel, &ParallelSettings::recompute>,
          "all: every stage keeps only its input from forward to backward and runs its forward "
          "again before its backward: less memory, a longer step, the same numbers; a plan file "
          "says it for each stage",
          {"none", "all"}),
      key("parallel.optimizer", slot<&Job::parallel, &ParallelSettings::optimizer>,
          "barrier: all stages step when the norm of all is known; staggered: each stage steps "
          "when its own gradients are complete, and undoes the step if the norm requires "
          "clipping; auto: staggered while few steps are clipped and it is faster",
          {"barrier", "staggered", "auto"}),
      key("parallel.all_reduce", slot<&Job::parallel, &ParallelSettings::all_reduce>,
          "how the holders of a stage sum its gradients: ring, halving, tree, direct, late-one "
          "(the others sum up while one is late) or auto: late-one or halving where the simulator "
          "finds it 2 % faster than the ring, as when a worker is slow; see tenuto collective "
          "list"),
      key("parallel.schedule", slot<&Job::parallel, &ParallelSettings::schedule>,
          "file with one pipeline's lists, instead of an order: text, JSON or PyTorch's CSV"),
      key("parallel.plan", slot<&Job::parallel, &ParallelSettings::plan>,
          "file with a whole plan in JSON: who holds which layers, and every worker's list; "
          "stages, pipelines and micros are then the plan's"),
      key("parallel.holders", slot<&Job::parallel, &ParallelSettings::holders>,
          "the workers of each stage, as numbers separated by spaces, in runs whose plan file "
          "gives stages unequal numbers of workers; taken from parallel.plan"),
  };
}

std::vector<Key> device_keys() {
  return {
      key("device.kind", slot<&Job::device, &DeviceSettings::kind>,
          "what computes; paced: each op lasts a given time", {"cpu", "cuda", "paced"}),
      key("device.precision", slot<&Job::device, &DeviceSettings::precision>,
          "bf16: autocast, parameters stay fp32", {"fp32", "bf16"}),
      key("device.threads", slot<&Job::device, &DeviceSettings::threads>,
          "CPU threads of one worker", whole(1, 1024)),
      key("device.forward_ms", slot<&Job::device, &DeviceSettings::forward_ms>,
          "paced: length of a forward, one number or one per stage", kMilliseconds),
      key("device.backward_input_ms", slot<&Job::device, &DeviceSettings::backward_input_ms>,
          "paced: length of a backward for the input, one number or one per stage", kMilliseconds),
      key("device.backward_weight_ms", slot<&Job::device, &DeviceSettings::backward_weight_ms>,
          "paced: length of a backward for the weights, one number or one per stage",
          kMilliseconds),
      key("device.clock", slot<&Job::device, &DeviceSettings::clock>,
          "paced: virtual hides late wake-ups and records them; real lets them count",
          {"virtual", "real"}, {{"nominal", "virtual"}}),
      key("device.message_bytes", slot<&Job::device, &DeviceSettings::message_bytes>,
          "paced: size of an activation and of a gradient", whole(64, kManyBytes)),
      key("device.parameter_bytes", slot<&Job::device, &DeviceSettings::parameter_bytes>,
          "paced: weights of one stage", whole(16, kManyBytes)),
      key("device.profile", slot<&Job::device, &DeviceSettings::profile>,
          "paced: a model file with the times and bytes of each layer, as `tenuto profile` writes "
          "it, instead of the times and bytes above"),
      key("device.profile_content", slot<&Job::device, &DeviceSettings::profile_content>,
          "the content of that file; taken from device.profile, so that all workers have the same"),
  };
}

std::vector<Key> network_keys() {
  return {
      formerly("network.transport",
               key("network.wire", slot<&Job::network, &NetworkSettings::wire>,
                   "between processes: tcp, plain sockets; ucx; auto: ucx where it reaches the "
                   "accelerator's memory, else tcp; memory: threads of one process, for tests",
                   {"auto", "tcp", "ucx", "memory"})),
      key("network.device", slot<&Job::network, &NetworkSettings::device>,
          "network device that carries the traffic"),
      key("network.allow", slot<&Job::network, &NetworkSettings::allow>,
          "over TCP: addresses and networks from which workers may connect to each other, such as "
          "10.0.0.0/8; empty = from anywhere"),
      key("network.tls", slot<&Job::network, &NetworkSettings::tls>,
          "over TCP: workers encrypt their messages to each other (TLS 1.3) and show each other "
          "the "
          "certificates of coordinator.tls"),
      key("network.progress", slot<&Job::network, &NetworkSettings::progress>,
          "over TCP: what a waiting worker does; event: it sleeps until a message arrives; auto: "
          "it "
          "looks for messages for 50 us before it sleeps, if its host has a core for each worker; "
          "poll: it looks for messages all the time and takes a whole core",
          {"event", "auto", "poll"}),
      key("network.protocol", slot<&Job::network, &NetworkSettings::protocol>,
          "how UCX sends large messages", {"auto", "eager", "rendezvous"}),
      key("network.path", slot<&Job::network, &NetworkSettings::path>,
          "accelerators: messages leave device memory directly, or staged through the host's",
          {"auto", "direct", "staged"}),
      key("network.latency_ms", slot<&Job::network, &NetworkSettings::latency_ms>,
          "paced: one way, of every link", kMilliseconds),
      key("network.megabytes_per_second",
          slot<&Job::network, &NetworkSettings::megabytes_per_second>,
          "paced: rate of every link; 0 = unlimited", kMegabytesPerSecond),
      key("network.send", slot<&Job::network, &NetworkSettings::send>,
          "paced: how messages are sent; blocking: through the device's queue, where other ops "
          "wait",
          {"offloaded", "blocking"}),
      key("network.cluster", slot<&Job::network, &NetworkSettings::cluster>,
          "paced: a cluster file with the speed of each device and the links between them, instead "
          "of latency_ms and megabytes_per_second"),
      key("network.cluster_content", slot<&Job::network, &NetworkSettings::cluster_content>,
          "the content of that file; taken from network.cluster, so that all workers have the "
          "same"),
      key("network.transfer_megabytes_per_second",
          slot<&Job::network, &NetworkSettings::transfer_megabytes_per_second>,
          "over TCP: the most that the state for a worker that joins takes of its link; 0 = "
          "unlimited; messages of steps always go first",
          kMegabytesPerSecond),
      key("network.connect_seconds", slot<&Job::network, &NetworkSettings::connect_seconds>,
          "time limit for connecting to all peers",
          Range{.low = 0, .high = 86400, .low_open = true}),
      key("network.silence_seconds", slot<&Job::network, &NetworkSettings::silence_seconds>,
          "a step without progress for this time ends the run",
          Range{.low = 0, .high = 86400, .low_open = true}),
  };
}

std::vector<Key> control_keys() {
  return {
      key("resilience.mode", slot<&Job::resilience, &ResilienceSettings::mode>,
          "act: slow links and slow workers are treated as the next keys say; observe: only tell "
          "what would be done, and what it would gain; off: nothing is looked for",
          {"act", "observe", "off"}),
      key("resilience.slow_links", slot<&Job::resilience, &ResilienceSettings::slow_links>,
          "adapt: change the order of ops to absorb a slow link's delay; observe: only tell",
          {"adapt", "observe", "off"}),
      key("resilience.slow_workers", slot<&Job::resilience, &ResilienceSettings::slow_workers>,
          "adapt: give micro-batches of a slow worker to others, which changes the last bits of "
          "sums; observe: only tell; needs slow_links = \"adapt\"",
          {"adapt", "observe"}),
      key("resilience.layers", slot<&Job::resilience, &ResilienceSettings::layers>,
          "adapt: layers move between neighbouring stages while the run goes on, when a worker "
          "stays "
          "slow or is lost; observe: only tell what a move would gain; needs slow_links = "
          "\"adapt\"",
          {"adapt", "observe", "off"}),
      key("resilience.dead_workers", slot<&Job::resilience, &ResilienceSettings::dead_workers>,
          "continue: continue without a lost worker while each stage has another holder; stop: "
          "save and end the run; with blocking messages this always happens",
          {"continue", "stop"}),
      key("resilience.silence_seconds",
          slot<&Job::resilience, &ResilienceSettings::silence_seconds>,
          "a worker that is silent for this time is declared dead",
          Range{.low = 0, .high = 86400, .low_open = true}),
      key("resilience.numerics", slot<&Job::resilience, &ResilienceSettings::numerics>,
          "fast: gradients are summed in fp32, as they come; reproducible: in fixed point, the "
          "same bits whoever ran which micro-batch, for 32 bytes a parameter and four times the "
          "bytes of a reduction",
          {"fast", "reproducible"}),
      key("resilience.restarts", slot<&Job::resilience, &ResilienceSettings::restarts>,
          "how often the process of each worker is started again after it has died; the pause "
          "before it is 1 s, then 2 s, and doubles each time",
          whole(0, 1000)),
      key("resilience.copies", slot<&Job::resilience, &ResilienceSettings::copies>,
          "for each stage, how many workers of other stages also hold its state, so that the "
          "stage survives the loss of all its own workers; a copy costs the stage's memory and "
          "update once more",
          whole(0, 1)),
  };
}

std::vector<Key> sync_keys() {
  return {
      key("sync.mode", slot<&Job::sync, &SyncSettings::mode>,
          "which gradients make an update, and who waits for whom: a sync mode such as "
          "synchronous, x:3 or groups; auto: the chooser changes the mode while the run goes on"),
      key("sync.architecture", slot<&Job::sync, &SyncSettings::architecture>,
          "all-reduce: replicas keep the parameters: mode = \"synchronous\": all of them, and they "
          "sum their gradients; other modes: each keeps parts, and makes the updates of these; "
          "servers: other processes keep the parameters and make the updates, in any mode",
          {"all-reduce", "servers"}),
      key("sync.servers", slot<&Job::sync, &SyncSettings::servers>,
          "servers: how many processes keep the parameters; each parameter is kept twice if there "
          "are two or more; ignored without servers",
          whole(1, 256)),
      key("sync.chooser", slot<&Job::sync, &SyncSettings::chooser>,
          "mode = \"auto\": look-ahead: simulates every mode with the measured times; heuristic: a "
          "published formula; learned: the heuristic, until what it has learned is surely better",
          {"look-ahead", "heuristic", "learned"}),
      key("sync.chooser_file", slot<&Job::sync, &SyncSettings::chooser_file>,
          "learned: a chooser file, as `tenuto bench sync` writes it; empty = it has learned "
          "nothing"),
      key("sync.chooser_content", slot<&Job::sync, &SyncSettings::chooser_content>,
          "the content of that file; taken from sync.chooser_file, so that all processes have the "
          "same"),
      key("sync.kappa", slot<&Job::sync, &SyncSettings::kappa>,
          "mode = \"auto\": what the age of gradients costs; about 2 with AdamW, 0.6 for SGD with "
          "momentum, 0.3 for plain SGD",
          Range{.low = 0, .high = 100}),
      key("sync.learn_kappa", slot<&Job::sync, &SyncSettings::learn_kappa>,
          "mode = \"auto\": what age costs is learned from the losses of the run, beginning with "
          "sync.kappa; false: it is sync.kappa all the time"),
      key("sync.ledger", slot<&Job::sync, &SyncSettings::ledger>,
          "servers: a file that all jobs of a host name: a job then asks the others before mode = "
          "\"auto\" takes more of the host than the synchronous mode does; empty = it asks nobody"),
      key("sync.ledger_megabytes_per_second",
          slot<&Job::sync, &SyncSettings::ledger_megabytes_per_second>,
          "ledger: what network.device carries in each direction; 0 = what the kernel says, and if "
          "it does not know, sending is not governed",
          kMegabytesPerSecond),
      key("sync.tc", slot<&Job::sync, &SyncSettings::tc>,
          "ledger: network device whose traffic control (the program tc) holds the job to what it "
          "may send; empty = no device is touched, and transports pace themselves"),
  };
}

std::vector<Key> coordinator_keys() {
  return {
      key("coordinator.listen", slot<&Job::coordinator, &CoordinatorSettings::listen>,
          "host:port of the coordinator; port 0 = any free one"),
      key("coordinator.token", slot<&Job::coordinator, &CoordinatorSettings::token>,
          "secret that workers must show; it is not a flag and is not written to config.toml, "
          "because others may read both; empty = a fresh random one"),
      key("coordinator.store", slot<&Job::coordinator, &CoordinatorSettings::store>,
          "where the coordinator records its decisions: a file in the run's folder, nowhere (its "
          "death then ends the run), or an etcd cluster",
          {"journal", "memory", "etcd"}),
      key("coordinator.etcd", slot<&Job::coordinator, &CoordinatorSettings::etcd>,
          "host:port of the members of the etcd cluster; for store = \"etcd\""),
      key("coordinator.tls", slot<&Job::coordinator, &CoordinatorSettings::tls>,
          "folder with ca.pem, cert.pem and key.pem: connections with the coordinator are "
          "encrypted, and both ends show certificates signed by that ca.pem (none)"),
      key("coordinator.page", slot<&Job::coordinator, &CoordinatorSettings::page>,
          "host:port of the page that shows the run, and of its metrics; port 0 = any free one, "
          "off = no page"),
      key("coordinator.launch", slot<&Job::coordinator, &CoordinatorSettings::launch>,
          "words put before the command that starts each worker; {worker} = its number"),
  };
}

constexpr std::string_view kTensor =
    "asks for a group of devices that share one model shard (tensor parallelism), which is not in "
    "scope yet: a worker is one process with one device; remove it";
// Names that a later version may have, and the sentences that say so.
constexpr std::pair<std::string_view, std::string_view> kLaterNames[] = {
    {"parallel.tensor", kTensor},
    {"parallel.tensor_parallel", kTensor},
    {"device.per_worker", kTensor}};

// What a value of the key's type is, in words.
std::string type_words(const Slot& slot) {
  constexpr const char* kWords[] = {
      "a string", "true or false",     "a whole number",          "a whole number",
      "a number", "a list of strings", "a list of whole numbers", "a list of numbers"};
  static_assert(std::size(kWords) == std::variant_size_v<Slot>);
  return kWords[slot.index()];
}

// A bound as text for people: 1e+06, not 1000000.
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

const Key* find_in(const std::vector<Key>& keys, std::string_view name) {
  for (const Key& key : keys) {
    if (key.name == name || (!name.empty() && key.former == name)) return &key;
  }
  return nullptr;
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
    for (const auto& part :
         {run_keys(), model_keys(), optimizer_keys(), parallel_keys(), device_keys(),
          network_keys(), control_keys(), sync_keys(), coordinator_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kKeys;
}

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
  for (const auto& [later, sentence] : kLaterNames) {
    if (later == name) return sentence;
  }
  return {};
}

}  // namespace tenuto
