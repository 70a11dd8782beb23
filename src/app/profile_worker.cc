#include "app/profile_worker.h"

#include <memory>
#include <utility>
#include <vector>

#include "app/real_device.h"
#include "base/file.h"
#include "base/text.h"
#include "communicator/join.h"
#include "communicator/link_measure.h"
#include "plan/stage_plan.h"
#include "protocol/tls.h"
#include "worker/layer_times.h"
#include "world/fault.h"
#include "world/fit.h"
#include "world/load.h"

namespace tenuto {
namespace {

// A measured step has this many micro-batches and one update.
constexpr int32_t kMicros = 4;
// How long to wait for a message from the hub or from another worker.
constexpr Duration kSilence = std::chrono::minutes(2);
// How long to wait for the last messages when the transport closes.
constexpr Duration kCloseLimit = std::chrono::seconds(5);

Result<Job> read_job(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  return job_from_toml(text.value(), path);
}

}  // namespace

Status measure_layers_of(const LayersTask& task) {
  const Result<Job> job = read_job(task.job_file);
  if (!job.ok()) return job.error();
  const int32_t layers = cut_layers(job.value().model);
  const Result<Plan> apart = make_lone_plan(layers, 1, kMicros);
  if (!apart.ok()) return apart.error();
  const Result<Plan> whole = make_lone_plan(1, layers, kMicros);
  if (!whole.ok()) return whole.error();
  const LayerWork work{alone(job.value(), kMicros), apart.value(), whole.value(),
                       job.value().model.tied, from_milliseconds(task.seconds * 1000)};
  const Result<ModelProfile> profile = measure_layers(work, real_device());
  if (!profile.ok()) return profile.error();
  return write_file(task.out, to_json(profile.value()));
}

Status measure_links_with(const LinksTask& task) {
  Result<Job> job = read_job(task.job_file);
  if (!job.ok()) return job.error();
  job.value().faults.clear();
  if (job.value().device.kind != "paced") job.value().device.kind = "cpu";
  JoinSettings settings;
  settings.place = task.worker + 1;
  settings.count = task.workers + 1;
  settings.meeting = task.hub;
  settings.limit = from_milliseconds(job.value().network.connect_seconds * 1000);
  const Hello hello{links_hello(task.workers), task.token, kWireVersion, {settings.place}, 0};
  QueueMailbox mailbox;
  const auto tls = read_tls(job.value().coordinator.tls);
  if (!tls.ok()) return tls.error();
  Result<WorkerWire> wire =
      make_worker_wire(job.value(), hello, mailbox, real_device(), {tls.value(), {}});
  if (!wire.ok()) return wire.error();
  std::unique_ptr<Transport> transport = std::move(wire.value().transport);
  if (Status met = meet(settings, transport, mailbox); !met.ok()) return met;
  Status served = serve_measuring(*transport, mailbox, kSilence);
  const Status closed = transport->close(kCloseLimit);
  return served.ok() ? closed : served;
}

}  // namespace tenuto
