#include "bench/sync_peer.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "bench/line_process.h"
#include "parameter_server/mass_store.h"
#include "parameter_server/message_bytes.h"
#include "parameter_server/run_host.h"
#include "sync/chooser.h"
#include "sync/scenario_file.h"
#include "sync/trial_model.h"
#include "transport/process/process_wire.h"

namespace tenuto {

namespace {

using namespace servers;

constexpr int kFirstLine = 60'000;                         // milliseconds
constexpr Duration kReachLimit = std::chrono::seconds(3);  // of one process

void say(const HostReport& report) {
  std::printf("%s\n", to_line(encode_report(report)).c_str());
  std::fflush(stdout);
}

[[noreturn]] void die(const std::string& why) {
  say(FailedReport{why});
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

template <class T>
T required(Result<T> result) {
  if (!result.ok()) die(result.error().message);
  return std::move(result).value();
}

// Lets an update last as long as the scenario says. The keepers of a process take turns, and each
// has a part of the update's time.
class PacedStore : public ParameterStore {
 public:
  // `keepers`: those of the process, which this one is counted among while it lives.
  PacedStore(std::unique_ptr<ParameterStore> store, Duration apply, int64_t& keepers)
      : store_(std::move(store)), apply_(apply), keepers_(keepers) {
    ++keepers_;
  }
  PacedStore(const PacedStore&) = delete;
  PacedStore& operator=(const PacedStore&) = delete;
  ~PacedStore() override { --keepers_; }

  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override {
    const Duration begun = monotonic_clock().now();
    store_->apply(update, gradients);
    sleep_until(begun + apply_ / keepers_);
  }
  Payload parameters() const override { return store_->parameters(); }
  Payload save() const override { return store_->save(); }
  Status load(const Payload& state) override { return store_->load(state); }

 private:
  std::unique_ptr<ParameterStore> store_;
  Duration apply_;
  int64_t& keepers_;
};

Payload payload_of(std::span<const float> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

// ---- the iterations of a replica -------------------------------------------------------------

// Computes the gradients of the network, and makes each iteration last as long as the scenario
// draws.
class Trainer : public PartTrainer {
 public:
  explicit Trainer(const SyncPeerSettings& settings)
      : settings_(settings),
        scenario_(settings.scenario),
        times_(times_of(scenario_, settings.seed)),
        model_(settings.seed, scenario_.replicas) {}

  const SyncScenario& scenario() const { return scenario_; }
  const TrialModel& model() const { return model_; }

  Status begin(const Work& work, const std::vector<Payload>& parameters,
               Duration run_begun) override {
    begun_ = monotonic_clock().now();
    computed_ = Duration{};
    share_ = share_of(work.offer.mass, {settings_.batch});
    time_ = times_(work.offer.replica.value, work.offer.iteration.value, begun_ - run_begun);
    time_.compute =
        Duration(static_cast<int64_t>(static_cast<double>(time_.compute.count()) * share_));
    std::vector<float> all;
    for (const Payload& one : parameters) {
      const size_t before = all.size();
      all.resize(before + one->size() / sizeof(float));
      std::memcpy(all.data() + before, one->data(), one->size());
    }
    const std::vector<float> sum = gradient(all, work);
    gradients_.clear();
    size_t at = 0;
    for (const Payload& one : parameters) {
      const size_t count = one->size() / sizeof(float);
      gradients_.push_back(payload_of(std::span(sum).subspan(at, count)));
      at += count;
    }
    return ok();
  }

  std::optional<ComputedIteration> advance(Duration now) override {
    if (computed_ == Duration{} && now >= due()) computed_ = now;
    if (computed_ == Duration{} || now < due()) return {};
    return ComputedIteration{std::move(gradients_), {computed_ - begun_, now - computed_}, share_};
  }

  Duration due() const override {
    return begun_ + time_.compute + (computed_ == Duration{} ? Duration{} : time_.transfer);
  }

 private:
  // The sum over the micro-batches. Each is one sample, which its stream and its number draw.
  std::vector<float> gradient(std::span<const float> parameters, const Work& work) const {
    std::vector<float> sum(TrialModel::kParameters, 0.0f);
    for (const MicroRange& range : work.micros) {
      for (int64_t micro = range.begin; micro < range.end; ++micro) {
        const auto one = model_.gradient(parameters, range.stream.value, micro, 1).sum;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
      }
    }
    return sum;
  }

  const SyncPeerSettings& settings_;
  SyncScenario scenario_;
  IterationTimes times_;
  TrialModel model_;
  Duration begun_{}, computed_{};  // computed: zero while it computes
  IterationTime time_;             // that the iteration shall last
  double share_ = 1;
  std::vector<Payload> gradients_;
};

// ---- the process -----------------------------------------------------------------------------

// The lines of the parent.
class LineLink : public HostLink {
 public:
  explicit LineLink(LineReader& input) : input_(input) {}

  Result<std::optional<HostCommand>> next(Duration limit) override {
    const auto line = input_.next(static_cast<int>(limit / std::chrono::milliseconds(1)));
    if (!line) return none_;
    const auto command = decode_command(from_line(*line));
    if (!command.ok()) return command.error();
    return std::optional(command.value());
  }
  bool has_ended() const override { return input_.has_ended(); }
  Status report(const HostReport& report) override {
    say(report);
    return ok();
  }

 private:
  LineReader& input_;
  // A member, because g++ 12 warns of the fields of an empty optional that it moves.
  const std::optional<HostCommand> none_;
};

class SyncPeer {
 public:
  explicit SyncPeer(const SyncPeerSettings& settings)
      : settings_(settings), trainer_(settings_), self_(settings.process.number) {
    log_ = required(LineFile::open(cat(settings_.folder, "/process-", self_, ".log")));
  }

  void run(LineReader& input) {
    ProcessWireSettings wire;
    wire.workers = trainer_.scenario().replicas + settings_.ranges + 1;
    wire.connect_limit = kReachLimit;
    Hello hello;
    hello.job = "sync";
    hello.token = settings_.token;
    hello.version = kWireVersion;
    hello.self = self_;
    QueueMailbox mailbox;
    const std::unique_ptr<Transport> transport = required(make_process_wire(wire, hello, mailbox));
    LineLink link(input);
    sharpen_timer();
    require(run_host(*transport, mailbox, link, host_settings()));
  }

 private:
  HostSettings host_settings() {
    HostSettings host;
    host.process = settings_.process;
    host.peers.make_store = [this](const ElementRange& range) { return make_store(range); };
    host.peers.decider.record =
        first_record(required(sync_mode_from_text(settings_.mode)), trainer_.scenario().replicas);
    host.peers.decider.micros = settings_.batch;
    host.peers.write_down = [this](const std::string& text) { require(log_.write(text)); };
    host.choice.replicas = trainer_.scenario().replicas;
    host.choice.apply = trainer_.scenario().apply;
    host.choice.compute = trainer_.scenario().base.compute;
    host.choice.micros = settings_.batch;
    host.choice.kappa = settings_.kappa;
    host.choice.learns_kappa = settings_.learns_kappa;
    host.choice.seed = settings_.seed;
    if (settings_.chooses) host.chooser = look_ahead_chooser();
    host.trainer = &trainer_;
    host.save = [this](PeerId id, const ServerShard& keeper) { return save(id, keeper.store()); };
    return host;
  }

  std::unique_ptr<ParameterStore> make_store(const ElementRange& range) {
    MassStoreSettings store;
    store.optimizer = find_trial_optimizer(settings_.optimizer).value();
    store.rate = settings_.rate;
    store.full = {settings_.batch * trainer_.scenario().replicas};
    const std::vector<float> initial = trainer_.model().initial();
    std::vector<float> own(initial.begin() + range.begin, initial.begin() + range.end);
    auto made = required(MassStore::make(store, range, std::move(own)));
    return std::make_unique<PacedStore>(std::move(made), trainer_.scenario().apply, keepers_);
  }

  Status save(PeerId id, const ParameterStore& store) const {
    const Status fault = write(cat(settings_.folder, "/state-", id), store.save());
    if (!fault.ok()) return fault;
    return write(cat(settings_.folder, "/parameters-", id), store.parameters());
  }

  static Status write(const std::string& path, const Payload& payload) {
    const auto* bytes = reinterpret_cast<const char*>(payload->data());
    return write_file(path, std::string_view(bytes, payload->size()));
  }

  SyncPeerSettings settings_;
  Trainer trainer_;
  WorkerId self_;
  LineFile log_;
  int64_t keepers_ = 0;  // that live here
};

}  // namespace

std::string to_text(const SyncPeerSettings& settings) {
  const RunProcess& process = settings.process;
  const std::string scenario = to_toml(settings.scenario);  // of several lines
  return cat(process.number.value, " ", static_cast<int>(process.kind), " ", process.replica.value,
             " ", to_line(std::as_bytes(std::span(scenario))), " ", settings.mode, " ",
             settings.chooses ? 1 : 0, " ", settings.seed, " ", settings.batch, " ",
             settings.optimizer, " ", settings.rate, " ", settings.kappa, " ",
             settings.learns_kappa ? 1 : 0, " ", settings.ranges, " ", settings.folder, " ",
             settings.token);
}

SyncPeerSettings sync_peer_settings_from_text(const std::string& line) {
  SyncPeerSettings settings;
  std::istringstream words(line);
  int kind = 0;
  std::string scenario;
  words >> settings.process.number.value >> kind >> settings.process.replica.value >> scenario >>
      settings.mode >> settings.chooses >> settings.seed >> settings.batch >> settings.optimizer >>
      settings.rate >> settings.kappa >> settings.learns_kappa >> settings.ranges >>
      settings.folder >> settings.token;
  if (!words) die(cat("expected settings, found '", line, "'"));
  const std::vector<std::byte> bytes = from_line(scenario);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  settings.scenario = required(sync_scenario_from_toml(text, "settings"));
  settings.process.kind = static_cast<ProcessKind>(kind);
  settings.process.stage.value = 0;
  return settings;
}

std::string to_line(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  for (const std::byte one : bytes) {
    line += kDigits[std::to_integer<size_t>(one >> 4)];
    line += kDigits[std::to_integer<size_t>(one & std::byte{15})];
  }
  return line;
}

std::vector<std::byte> from_line(std::string_view line) {
  std::vector<std::byte> bytes;
  for (size_t at = 0; at < line.size(); at += 2) {
    const std::string_view two = line.substr(at, 2);
    uint8_t byte = 0;
    const auto parsed = std::from_chars(two.data(), two.data() + two.size(), byte, 16);
    if (two.size() != 2 || parsed.ptr != two.data() + 2) return {};
    bytes.push_back(std::byte{byte});
  }
  return bytes;
}

std::vector<ElementRange> ranges_of_trial(int32_t count) {
  std::vector<ElementRange> ranges;
  constexpr int64_t kAll = TrialModel::kParameters;
  for (int32_t i = 0; i < count; ++i) {
    ranges.push_back({{0}, kAll * i / count, kAll * (i + 1) / count});
  }
  return ranges;
}

int run_sync_peer() {
  LineReader input(STDIN_FILENO);
  const auto line = input.next(kFirstLine);
  if (!line) die("its parent gives no settings");
  SyncPeer peer(sync_peer_settings_from_text(*line));
  peer.run(input);
  return 0;
}

}  // namespace tenuto
