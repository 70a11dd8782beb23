// The job: all that a user can ask of a training run, with its defaults. The same keys as in the
// TOML file; docs/formats.md lists them with their meaning and range, world/load.h reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "world/fault.h"

namespace tenuto {

struct Cluster;
struct ModelProfile;

// [data]
struct DataSettings {
  std::string kind = "text";       // text | classes | csv
  std::vector<std::string> paths;  // files or folders of the user; text: every file without NUL
                                   // bytes, sorted by path; classes: each file is one class; csv:
                                   // numbers, the last column is the class
  double held_out = 0.1;           // share of each file's end kept for validation, (0, 0.5]
};

// [model]
struct ModelSettings {
  std::string kind = "gpt";  // gpt | mlp | module: PyTorch modules of the user's script
  int32_t layers = 4;  // gpt: transformer blocks; mlp: hidden layers; module: modules of the list
  int32_t width = 128;
  int32_t heads = 4;       // gpt
  int32_t sequence = 128;  // gpt: bytes per row; mlp on classes: bytes per window
  double dropout = 0.0;    // [0, 1)
  bool tied = false;       // gpt: the head shares the embedding's weight; module: the last layer a
                           // weight of the first one
  std::string digest;      // module: what all processes of the script must have alike; empty =
                           // not compared
};

// [optimizer]
struct OptimizerSettings {
  std::string kind = "adamw";  // adamw | sgd | torch: the script has the rule, and its settings
                               // replace all those below but clip
  std::string rule;            // torch: the class of the script's optimizer
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;  // adamw
  double momentum = 0.9;                             // sgd
  double weight_decay = 0.1;
  double clip = 1.0;                // global gradient norm; 0 = never clip
  int32_t warm_up_steps = 20;       // learning rate rises linearly over these
  std::string schedule = "cosine";  // cosine | constant
  double minimum_rate = 0.1;        // share of learning_rate that cosine ends at
};

// [parallel]
struct ParallelSettings {
  int32_t stages = 1;  // workers of a pipeline
  int32_t pipelines = 1;
  int32_t chunks = 0;      // stages of one worker; 0 = the order's default
  int32_t micros = 4;      // micro-batches per pipeline and step
  int32_t micro_rows = 4;  // rows (sequences, samples) of one micro-batch
  std::string order = "1f1b";
  std::string dispatch = "auto";      // auto | ready | listed
  int32_t memory = 0;                 // micro-batches a worker may hold; 0 = unlimited
  bool split_backward = false;        // if the key is not set, the order decides
  std::string recompute = "none";     // none | all: these stages keep only their input and run the
                                      // forward again; a plan file sets it by stage
  std::string schedule;               // a file of lists instead of an order; empty = none
  std::string plan;                   // a plan file: stages, holders, lists; empty = none
  std::vector<std::string> holders;   // of each place the worker numbers, separated by spaces;
                                      // taken from the plan file. Empty = the places of a grid
  std::string optimizer = "barrier";  // barrier | staggered: each stage steps when its own
                                      // gradients are whole
  std::string all_reduce = "ring";    // ring | halving | tree | direct | late-one | auto
};

// [device]
struct DeviceSettings {
  std::string kind = "cpu";        // cpu | cuda | paced
  std::string precision = "fp32";  // fp32 | bf16 (autocast)
  int32_t threads = 1;             // CPU threads of one worker
  // paced: the length of each op, one number per stage or one for all
  std::vector<double> forward_ms = {5}, backward_input_ms = {5}, backward_weight_ms = {5};
  std::string clock = "virtual";   // paced: virtual | real
  int64_t message_bytes = 65536;   // paced, and model.kind = "module": size of an activation and
                                   // of a gradient
  int64_t parameter_bytes = 4096;  // paced: weights of one stage
  std::string profile;             // paced: a model file with the times and bytes of each layer,
                                   // in place of the five settings above; empty = none
  std::string profile_content;     // of that file; taken from it when the job is loaded
  std::shared_ptr<const ModelProfile> layers;  // the same, read; null = no profile
};

// [network]
struct NetworkSettings {
  std::string wire = "auto";        // auto | tcp | ucx | memory (threads of one process: tests)
  std::string device = "lo";        // network device that carries the traffic
  std::vector<std::string> allow;   // over TCP: who may connect to a worker; empty = everybody
  bool tls = false;                 // over TCP: messages are encrypted
  std::string progress = "event";   // over TCP: event | auto | poll
  std::string protocol = "auto";    // auto | eager | rendezvous
  std::string path = "auto";        // accelerators: auto | direct | staged
  double latency_ms = 0;            // paced: one way, of every link
  double megabytes_per_second = 0;  // paced: of every link; 0 = unlimited
  std::string send = "offloaded";   // paced, virtual clock: offloaded | blocking
  std::string cluster;              // paced: a cluster file with the devices' speeds and the links,
                                    // in place of the two settings above; empty = none
  std::string cluster_content;      // of that file; taken from it when the job is loaded
  std::shared_ptr<const Cluster> devices;    // the same, read; null = no cluster file
  double transfer_megabytes_per_second = 0;  // over TCP: of each state transfer; 0 = unlimited
  double connect_seconds = 30;               // limit for all peers to be connected
  double silence_seconds = 60;               // a step without progress for this long ends the run
};

// [resilience]
struct ResilienceSettings {
  std::string mode = "act";               // act | observe | off: all remedies but those of deaths
  std::string slow_links = "adapt";       // adapt | observe | off
  std::string slow_workers = "observe";   // adapt | observe
  std::string layers = "off";             // adapt | observe | off: layers move between workers
  std::string dead_workers = "continue";  // continue | stop
  double silence_seconds = 2;             // a worker that is silent for this long is dead
  std::string numerics = "fast";          // fast | reproducible: same bits under any routing
  int32_t restarts = 0;                   // how often the launcher restarts each dead worker
  int32_t copies = 0;                     // of each stage's state, on workers of other stages
};

// [sync]
struct SyncSettings {
  std::string mode = "synchronous";         // a sync mode (ir/sync_mode.h) | auto
  std::string architecture = "all-reduce";  // all-reduce: no processes but replicas | servers
  int32_t servers = 2;                      // servers: processes that keep the parameters
  std::string chooser = "look-ahead";       // auto: look-ahead | heuristic | learned
  std::string chooser_file;                 // learned: what it has learned; empty = nothing
  std::string chooser_content;              // of that file; taken from it when the job is loaded
  double kappa = 2;                         // what age costs (docs/sync-modes.md)
  bool learn_kappa = false;                 // auto: from the losses; kappa is the first estimate
  std::string ledger;                       // servers: file of the host's jobs; empty = none
  double ledger_megabytes_per_second = 0;   // of the host's network; 0 = as the kernel says
  std::string tc;                           // device whose traffic is controlled; empty = none
};

// [coordinator]
struct CoordinatorSettings {
  std::string listen = "127.0.0.1:0";  // port 0 = any free one
  std::string token;                   // empty = a fresh random one
  std::string store = "journal";       // journal | memory | etcd
  std::vector<std::string> etcd;       // host:port of the members of an etcd cluster
  std::string tls;                     // folder with certificates; empty = no encryption
  std::string page = "127.0.0.1:0";    // host:port of the page, port 0 = any free one; or "off"
  std::vector<std::string> launch;     // words in front of the command that starts each worker
};

// [job] and all sections.
struct Job {
  std::string name = "run";
  int64_t steps = 100;
  int64_t seed = 1;
  std::string directory = "runs";  // runs are written to directory/name
  int64_t checkpoint_every = 50;   // steps; 0 = only at the end
  // Checkpoints are copied between two steps and written while steps go on; not those of server
  // shards, and not the last one of a run.
  bool checkpoint_asynchronous = false;
  int32_t keep = 3;             // checkpoints kept
  int64_t validate_every = 50;  // steps; 0 = only at the end
  int32_t validate_micros = 8;  // micro-batches of one validation, over all pipelines
  // A checkpoint, or a run of which the newest one is taken: the run makes one held-out pass with
  // its parameters, and no step. Empty = it trains.
  std::string evaluate;
  // Steps written as Chrome traces: these; the first and the last ones of the job; and so many
  // after each detection, decision or death. The oldest traces go when all together are larger than
  // the megabytes.
  std::vector<int64_t> trace_steps;
  int64_t trace_first = 0, trace_last = 0, trace_after = 0;
  int32_t trace_megabytes = 1000;
  DataSettings data;
  ModelSettings model;
  OptimizerSettings optimizer;
  ParallelSettings parallel;
  DeviceSettings device;
  NetworkSettings network;
  ResilienceSettings resilience;
  SyncSettings sync;
  CoordinatorSettings coordinator;
  std::vector<Fault> faults;  // [[fault]]; load_job replaces each trace and chaos by its faults

  // Who has which place: those of parallel.holders, or a grid of stages x pipelines.
  Seats seats() const;
  // Workers of a fresh plan; those that a plan file leaves idle count if they are not the last.
  int32_t worker_count() const;
  // Whether processes of their own keep the parameters (server shards).
  bool has_servers() const { return sync.architecture == "servers"; }
  // Whether updates run through server shards: those of the servers, or without servers those in
  // the processes of the replicas. Otherwise all workers make each step together.
  bool is_served() const { return has_servers() || sync.mode != "synchronous"; }
  // Workers of a fresh plan, and behind them the servers, if the job has these.
  int32_t process_count() const { return worker_count() + (has_servers() ? sync.servers : 0); }
  // Micro-batches of a step, over all pipelines.
  int32_t micro_count() const { return parallel.micros * parallel.pipelines; }
  // The same as the mass of a step.
  int64_t full_mass() const { return micro_count(); }
  // Whether the step is traced whatever happens, by trace_steps, trace_first or trace_last.
  bool traces(int64_t step) const;
  // Whether the parameters after so many steps are validated.
  bool validates_after(int64_t steps_done) const;
  // The newest number of steps, up to this one, after which there is a validation. 0 = there is
  // none yet, or never one.
  int64_t last_validation(int64_t steps_done) const;
};

}  // namespace tenuto
