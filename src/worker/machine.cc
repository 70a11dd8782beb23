#include "worker/machine.h"

#include <algorithm>
#include <utility>

#include "base/address_range.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/text.h"
#include "rehearsal/virtual_clock.h"
#include "runtime/tag.h"
#include "world/fault.h"

namespace tenuto {
namespace {

// What a worker's wires are made of.
struct WireParts {
  const Job& job;
  const Hello& hello;
  const RealDevice& real;
  const WorkerHost& host;
  bool direct = false;  // the wire has to reach the device's memory
};

// The wire that the job asks for.
Result<std::unique_ptr<Transport>> make_wire(const WireParts& parts, Mailbox& mailbox) {
  const Job& job = parts.job;
  const NetworkSettings& network = job.network;
  ProcessWireSettings settings;
  settings.choice = wire_choice(job.network.wire);
  settings.workers = job.process_count();
  settings.device = network.device;
  settings.listen_host = address_of_device(network.device);
  if (settings.listen_host.empty()) {
    return Error{Code::Invalid, Reach::Job,
                 cat("network.device = \"", network.device,
                     "\" is no network device of this "
                     "machine that is up and has an IPv4 address: `ip -4 address` lists them")};
  }
  for (const std::string& range : network.allow) {
    if (const auto read = read_address_range(range)) settings.allowed.push_back(*read);
  }
  if (network.tls) settings.tls = parts.host.tls;
  if (network.tls && settings.tls == nullptr) {
    return Error{Code::Invalid, Reach::Job,
                 "network.tls is true, and this worker has no certificates: start it with --tls "
                 "FOLDER"};
  }
  settings.progress = wire_progress(network.progress);
  settings.workers_here = parts.host.workers;
  settings.purpose_of = purpose_of;
  std::shared_ptr<SendPace> pace = parts.host.pace;
  if (network.transfer_megabytes_per_second > 0) {
    if (pace == nullptr) pace = std::make_shared<SendPace>();
    pace->set_others(Purpose::Transfer, network.transfer_megabytes_per_second * 1e6);
  }
  settings.pace = pace;
  if (network.protocol == "eager") settings.protocol = UcxProtocol::Eager;
  if (network.protocol == "rendezvous") settings.protocol = UcxProtocol::Rendezvous;
  settings.device_memory = parts.direct;
  if (parts.direct && parts.real.bind_thread) {
    settings.on_thread = [bind = parts.real.bind_thread, device = job.device] { bind(device); };
  }
  settings.connect_limit = from_milliseconds(network.connect_seconds * 1000);
  // Less than the silence limit: a step that waits for a repair must not be taken for a hung one.
  settings.mend_limit = std::min(settings.mend_limit,
                                 Duration(from_milliseconds(network.silence_seconds * 1000) / 2));
  return make_process_wire(settings, parts.hello, mailbox);
}

// The transport without paths: a wire between processes, wrapped in a faulty one that slows links
// on the real clock or cuts them, if the job needs that.
Result<WorkerWire> make_plain_wire(const WireParts& parts, Mailbox& mailbox) {
  const Job& job = parts.job;
  const WorkerId self = parts.hello.self;
  FaultSettings settings;
  settings.seed = static_cast<uint64_t>(job.seed);
  const NetworkSettings& network = job.network;
  if (!on_virtual_clock(job)) {  // on a virtual clock, the LinkClock delays messages instead
    settings.others.latency = from_milliseconds(network.latency_ms);
    settings.others.bytes_per_second = network.megabytes_per_second * 1e6;
    const Cluster cluster = cluster_of(job);
    for (int32_t w = 0; network.devices != nullptr && w < job.worker_count(); ++w) {
      const Link link = cluster.link({w}, self);
      settings.links[{{w}, self}] = {link.latency, link.bytes_per_second, {}};
    }
  }
  WorkerWire wire;
  if (!can_cut_off(job)) {
    auto made = make_wire(parts, mailbox);
    if (!made.ok()) return made.error();
    wire.transport = std::move(made).value();
    return wire;
  }
  auto made = make_faulty_transport(settings, self, mailbox, monotonic_clock(), FaultDrive::Thread,
                                    [&](Mailbox& gate) { return make_wire(parts, gate); });
  if (!made.ok()) return made.error();
  wire.faulty = made.value().get();
  wire.transport = std::move(made).value();
  return wire;
}

// The key with which the job asks for TCP; null: with none.
const char* asks_for_tcp(const NetworkSettings& network) {
  if (wire_choice(network.wire) == WireChoice::Tcp) return "network.wire = \"tcp\"";
  if (!network.allow.empty()) return "network.allow";
  return network.tls ? "network.tls" : nullptr;
}

// Whether messages can go directly between the memories of the job's devices.
bool reaches_devices(const Job& job) {
  return job.device.kind == "cuda" && job.network.path != "staged" &&
         asks_for_tcp(job.network) == nullptr && ucx_device_memory();
}

// The rule that chooses the path of the job's messages, if its device has memory of its own.
Result<PathRule> make_path_rule(const Job& job) {
  PathRule rule;
  const std::string& path = job.network.path;
  rule.wish = path == "direct"   ? PathWish::Direct
              : path == "staged" ? PathWish::Staged
                                 : PathWish::Automatic;
  rule.direct_possible = reaches_devices(job);
  if (rule.wish != PathWish::Direct || rule.direct_possible) return rule;
  if (const char* key = asks_for_tcp(job.network)) {
    return Error{
        Code::Invalid, Reach::Job,
        cat("network.path = \"direct\" needs UCX, and ", key, " needs TCP: leave out one of them")};
  }
  return Error{Code::Invalid, Reach::Job,
               cat("network.path = \"direct\" needs a UCX that reaches the device's memory, and "
                   "UCX ",
                   ucx_version(), " cannot here (`ucx_info -d` shows no cuda_copy): take \"auto\" ",
                   "or \"staged\", or install UCX with CUDA")};
}

}  // namespace

WireChoice wire_of(const Job& job) {
  return chosen_wire(wire_choice(job.network.wire), reaches_devices(job));
}

Result<WorkerWire> make_worker_wire(const Job& job, const Hello& hello, Mailbox& mailbox,
                                    const RealDevice& real, const WorkerHost& host) {
  WireParts parts{job, hello, real, host};
  if (job.device.kind != "cuda") return make_plain_wire(parts, mailbox);
  const Result<PathRule> rule = make_path_rule(job);
  if (!rule.ok()) return rule.error();
  WorkerWire wire;
  wire.paths = rule.value();
  parts.direct = wire.paths.direct_possible;
  auto made = make_staged_transport(mailbox, monotonic_clock(),
                                    [&](Mailbox& gate) -> Result<std::unique_ptr<Transport>> {
                                      Result<WorkerWire> plain = make_plain_wire(parts, gate);
                                      if (!plain.ok()) return plain.error();
                                      wire.faulty = plain.value().faulty;
                                      return std::move(plain.value().transport);
                                    });
  if (!made.ok()) return made.error();
  wire.staged = made.value().get();
  wire.transport = std::move(made).value();
  return wire;
}

Result<WorkerCompute> make_compute(const Job& job, const Plan& plan, WorkerId self,
                                   const std::vector<StageId>& stages, Mailbox& mailbox,
                                   const RealDevice& real) {
  WorkerCompute made;
  if (job.device.kind == "paced") {
    sharpen_timer();
    std::unique_ptr<PacedDevice> paced = make_paced(job, plan, stages, monotonic_clock(), mailbox);
    made.paced = paced.get();
    made.compute = std::move(paced);
    if (on_virtual_clock(job)) {
      made.links = std::make_unique<LinkClock>(make_link_clock(job, plan, self));
      made.pacer = std::make_unique<VirtualClock>(*made.links);
    }
    return made;
  }
  Result<std::unique_ptr<Device>> compute = real.make(job, plan, stages, mailbox);
  if (!compute.ok()) return compute.error();
  made.compute = std::move(compute).value();
  return made;
}

}  // namespace tenuto
