#include "bench/sync_peer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
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
#include "parameter_server/account.h"
#include "parameter_server/mass_store.h"
#include "parameter_server/peer_process.h"
#include "sync/chooser.h"
#include "sync/trial_model.h"
#include "transport/process/process_wire.h"

namespace tenuto {

namespace {

using namespace servers;

constexpr int kFirstLines = 60'000;  // milliseconds
constexpr Duration kConnectLimit = std::chrono::seconds(20);
constexpr Duration kReachLimit = std::chrono::seconds(3);  // of one process
constexpr Duration kLook = std::chrono::milliseconds(10);  // at the parent's lines
constexpr Duration kNever = Duration::max();

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void die(const std::string& why) {
  say(cat("failed ", why));
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
  PacedStore(std::unique_ptr<ParameterStore> store, Duration apply, const int64_t& keepers)
      : store_(std::move(store)), apply_(apply), keepers_(keepers) {}

  void apply(const DecidedUpdate& update, std::span<const Payload> gradients) override {
    const Duration begun = monotonic_clock().now();
    store_->apply(update, gradients);
    sleep_until(begun + apply_ / std::max<int64_t>(1, keepers_));
  }
  Payload parameters() const override { return store_->parameters(); }
  Payload save() const override { return store_->save(); }
  Status load(const Payload& state) override { return store_->load(state); }

 private:
  std::unique_ptr<ParameterStore> store_;
  Duration apply_;
  const int64_t& keepers_;
};

Payload payload_of(std::span<const float> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

// ---- the iterations of a replica -------------------------------------------------------------

// What a replica computes now.
struct Iterating {
  int64_t serial = -1;
  Duration begun{}, computed{};  // computed: zero while it computes
  IterationTime time;            // that it shall last
  double share = 1;
  std::vector<Payload> gradients;
  // The moment at which it goes on.
  Duration due() const {
    return begun + time.compute + (computed == Duration{} ? Duration{} : time.transfer);
  }
};

class Trainer {
 public:
  explicit Trainer(const SyncPeerSettings& settings)
      : settings_(settings),
        scenario_(*find_sync_scenario(settings.scenario)),
        times_(times_of(scenario_, settings.seed)),
        model_(settings.seed, scenario_.replicas) {}

  const SyncScenario& scenario() const { return scenario_; }
  const TrialModel& model() const { return model_; }

  // The iteration of this work, which begins now. `run_begun`: the moment of the run's begin.
  Iterating begin(const Work& work, const std::vector<Payload>& parameters,
                  Duration run_begun) const {
    Iterating of;
    of.serial = work.serial;
    of.begun = monotonic_clock().now();
    of.share = share_of(work.offer.mass, {settings_.batch});
    of.time = times_(work.offer.replica.value, work.offer.iteration.value, of.begun - run_begun);
    of.time.compute =
        Duration(static_cast<int64_t>(static_cast<double>(of.time.compute.count()) * of.share));
    std::vector<float> all;
    for (const Payload& one : parameters) {
      const size_t before = all.size();
      all.resize(before + one->size() / sizeof(float));
      std::memcpy(all.data() + before, one->data(), one->size());
    }
    const std::vector<float> sum = gradient(all, work);
    size_t at = 0;
    for (const Payload& one : parameters) {
      const size_t count = one->size() / sizeof(float);
      of.gradients.push_back(payload_of(std::span(sum).subspan(at, count)));
      at += count;
    }
    return of;
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
};

// ---- the process -----------------------------------------------------------------------------

class SyncPeer {
 public:
  explicit SyncPeer(const SyncPeerSettings& settings)
      : settings_(settings), trainer_(settings_), self_(settings.process.number) {
    samples_.resize(static_cast<size_t>(trainer_.scenario().replicas));
    log_ = required(LineFile::open(cat(settings_.folder, "/process-", self_, ".log")));
  }

  void open(LineReader& input) {
    ProcessWireSettings wire;
    wire.workers = trainer_.scenario().replicas + settings_.ranges + 1;
    wire.connect_limit = kReachLimit;
    Hello hello;
    hello.job = "sync";
    hello.token = settings_.token;
    hello.version = kWireVersion;
    hello.self = self_;
    wire_ = required(make_process_wire(wire, hello, mailbox_));
    say(cat("address ", wire_->address().text));
    const auto line = input.next(kFirstLines);
    if (!line || !line->starts_with("connect")) die("its parent names no processes to connect to");
    connect(*line);
    net_.emplace(*wire_, mailbox_, self_);
    process_.emplace(*net_, peer_settings());
    say("ready");
  }

  void serve(LineReader& input) {
    sharpen_timer();
    while (!input.has_ended()) {
      if (!is_finished_) require(process_->wait(pause()));
      for (const WorkerId lost : process_->take_lost()) say(cat("lost ", lost));
      while (const auto line = input.next(is_finished_ ? 100 : 0)) take(*line);
      if (is_finished_) continue;
      train();
      choose();
      if (finishes_ && (process_->decider() == nullptr || process_->has_committed_all())) finish();
    }
  }

 private:
  // Those that started earlier. One that cannot be reached is lost, and the parent says so.
  void connect(const std::string& line) {
    std::istringstream words(line);
    std::string word, address;
    int32_t number = 0;
    uint64_t asked = 0;
    words >> word;
    while (words >> number >> address) {
      require(wire_->connect({number}, {address}, Ticket{++asked}));
    }
    while (asked > 0) {
      const auto done = mailbox_.wait(kConnectLimit);
      if (!done.ok()) die(done.error().message);
      if (done.value().ticket != kNoTicket) --asked;
    }
  }

  PeerProcessSettings peer_settings() {
    PeerProcessSettings peers;
    peers.self = self_;
    peers.make_store = [this](const ElementRange& range) { return make_store(range); };
    peers.decider.record =
        first_record(required(sync_mode_from_text(settings_.mode)), trainer_.scenario().replicas);
    peers.decider.micros = settings_.batch;
    peers.write_down = [this](const std::string& text) { require(log_.write(text)); };
    return peers;
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

  // Until the next moment at which something has to be done.
  Duration pause() const {
    const Duration now = monotonic_clock().now();
    return std::clamp(due_ - now, Duration{}, kLook);
  }

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "members") {
      place(line.substr(kind.size() + 1));
    } else if (kind == "begin") {
      int64_t moment = 0;
      words >> moment;
      run_begun_ = Duration(moment);
    } else if (kind == "install") {
      require(process_->install());
    } else if (kind == "lost") {
      int32_t number = 0;
      words >> number;
      process_->lose({number});
    } else if (kind == "sample") {
      size_t replica = 0;
      int64_t compute = 0, transfer = 0;
      double share = 1;
      words >> replica >> compute >> transfer >> share;
      samples_.at(replica).add({Duration(compute), Duration(transfer)}, share);
    } else if (kind == "stop") {
      stopped_ = true;
      due_ = kNever;
      say("stopped");
    } else if (kind == "finish") {
      finishes_ = true;
    } else {
      die(cat("its parent said '", line, "'"));
    }
  }

  void place(const std::string& text) {
    const PlacedMembers placed = required(placed_members_from_text(text));
    keepers_ = 0;
    for (const PeerId keeper : keepers_of(placed.members)) {
      keepers_ += placed.places.at(keeper) == self_ ? 1 : 0;
    }
    require(process_->place(placed));
    say(cat("placed ", placed.members.epoch));
  }

  // Goes on with the work of the part that lives here, if its moment has come.
  void train() {
    if (stopped_) return;
    due_ = kNever;
    for (const auto& [id, part] : process_->parts()) {
      if (!part.is_ready()) continue;
      if (own_.serial != part.work()->serial) {
        own_ = trainer_.begin(*part.work(), part.parameters(), run_begun_);
      }
      Duration now = monotonic_clock().now();
      if (own_.computed == Duration{} && now >= own_.due()) own_.computed = now;
      due_ = own_.due();
      if (own_.computed == Duration{} || now < due_) return;
      say(cat("sample ", settings_.process.replica, " ", (own_.computed - own_.begun).count(), " ",
              (now - own_.computed).count(), " ", own_.share));
      require(process_->offer(id, own_.serial, std::move(own_.gradients)));
      due_ = kNever;
      return;
    }
  }

  // Lets the look-ahead decide, if this is the process with the decider.
  void choose() {
    const Decider* decider = process_->decider();
    if (!settings_.chooses || finishes_ || decider == nullptr || !decider->is_ready()) return;
    const Duration now = monotonic_clock().now();
    if (decider_begun_ == Duration{}) {
      decider_begun_ = now;
      next_decision_ = now + kDecisionEvery;
    }
    if (now < next_decision_) return;
    next_decision_ = now + kDecisionEvery;
    ChooseInput input;
    for (const TimeSamples& of : samples_) {
      input.samples.push_back(of.all());
      if (!of.all().empty()) continue;
      input.samples.back().push_back(
          guess_from(now - decider_begun_, trainer_.scenario().base.compute));
    }
    input.apply = trainer_.scenario().apply;
    input.micros = settings_.batch;
    input.kappa = settings_.kappa;
    input.current = decider->record().mode;
    input.seed = settings_.seed;
    const SyncChoice choice = required(chooser_->choose(input));
    if (choice.mode == input.current) return;
    require(process_->change(choice.mode));
    say(cat("changed ", tenuto::to_text(choice.mode)));
  }

  void finish() {
    if (const Decider* decider = process_->decider()) {
      require(log_.write(to_text(decider->record())));
    }
    for (const auto& [id, keeper] : process_->keepers()) {
      write(cat(settings_.folder, "/state-", id), keeper.store().save());
      write(cat(settings_.folder, "/parameters-", id), keeper.store().parameters());
      say(cat("state ", id, " ", keeper.version().value));
    }
    is_finished_ = true;
    say("finished");
  }

  static void write(const std::string& path, const Payload& payload) {
    const auto* bytes = reinterpret_cast<const char*>(payload->data());
    require(write_file(path, std::string_view(bytes, payload->size())));
  }

  SyncPeerSettings settings_;
  Trainer trainer_;
  WorkerId self_;
  LineFile log_;
  QueueMailbox mailbox_;
  std::unique_ptr<Transport> wire_;
  std::optional<PeerNet> net_;
  std::optional<PeerProcess> process_;
  int64_t keepers_ = 0;  // that live here
  Duration run_begun_{};
  Iterating own_;
  Duration due_ = kNever;  // when the iteration goes on
  bool stopped_ = false, finishes_ = false, is_finished_ = false;
  std::vector<TimeSamples> samples_;  // of each replica, where the decider lives
  std::unique_ptr<Chooser> chooser_ = look_ahead_chooser();
  Duration decider_begun_{}, next_decision_{};
};

}  // namespace

std::string to_text(const SyncPeerSettings& settings) {
  const RunProcess& process = settings.process;
  return cat(process.number.value, " ", static_cast<int>(process.kind), " ", process.replica.value,
             " ", settings.scenario, " ", settings.mode, " ", settings.chooses ? 1 : 0, " ",
             settings.seed, " ", settings.batch, " ", settings.optimizer, " ", settings.rate, " ",
             settings.kappa, " ", settings.ranges, " ", settings.folder, " ", settings.token);
}

SyncPeerSettings sync_peer_settings_from_text(const std::string& line) {
  SyncPeerSettings settings;
  std::istringstream words(line);
  int kind = 0;
  words >> settings.process.number.value >> kind >> settings.process.replica.value >>
      settings.scenario >> settings.mode >> settings.chooses >> settings.seed >> settings.batch >>
      settings.optimizer >> settings.rate >> settings.kappa >> settings.ranges >> settings.folder >>
      settings.token;
  if (!words) die(cat("expected settings, found '", line, "'"));
  settings.process.kind = static_cast<ProcessKind>(kind);
  settings.process.stage.value = 0;
  return settings;
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
  const auto line = input.next(kFirstLines);
  if (!line) die("its parent gives no settings");
  SyncPeer peer(sync_peer_settings_from_text(*line));
  peer.open(input);
  peer.serve(input);
  return 0;
}

}  // namespace tenuto
