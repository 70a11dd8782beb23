// Writes seeds for the corpus, made by our own writers: fuzz_seeds FOLDER makes FOLDER/NAME/* for
// every target. Shapes are small, because a fuzzer tries short inputs faster.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "base/safetensors.h"
#include "base/text.h"
#include "control/store.h"
#include "ir/text.h"
#include "ir/torch_csv.h"
#include "parameter_server/message_bytes.h"
#include "plan/make_plan.h"
#include "protocol/wire.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/greeting.h"
#include "world/keys.h"
#include "world/load.h"

namespace fs = std::filesystem;
using namespace tenuto;

namespace {

int fault(const std::string& sentence) {
  std::fprintf(stderr, "fuzz_seeds: %s\n", sentence.c_str());
  return 1;
}

bool put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  return static_cast<bool>(std::ofstream(path, std::ios::binary) << text);
}

// Every order in a few shapes, as text, JSON and CSV.
int plan_seeds(const fs::path& folder) {
  for (const OrderCard& card : order_cards()) {
    for (const bool wide : {false, true}) {
      Shape shape;
      shape.stages = 2;
      shape.layers = 4;
      shape.pipelines = wide ? 2 : 1;
      shape.micros = 4;
      shape.order = card.name;
      shape.split_backward = card.splits_backward;
      shape.dispatch = wide ? Dispatch::Ready : Dispatch::Listed;
      // No tied head where the first and the last stage are on one worker: make_plan refuses it.
      shape.tied = wide && card.placement != Placement::V;
      shape.evaluation_micros = wide ? 1 : 0;
      const auto plan = make_plan(shape);
      if (!plan.ok()) return fault(card.name + ": " + plan.error().message);
      const std::string name = cat(card.name, wide ? "-wide" : "-plain");
      if (!put(folder / "schedule" / name, to_text(plan.value().schedule)) ||
          !put(folder / "plan" / name, to_json(plan.value()))) {
        return fault("the seeds cannot be written");
      }
      if (wide) continue;
      for (const bool messages : {false, true}) {
        CsvOptions options;
        options.messages = messages;
        options.backward = CsvBackward::Apart;
        const auto csv = to_csv(plan.value(), options);
        if (!csv.ok()) return fault(card.name + ": " + csv.error().message);
        const std::string form = messages ? "-complete" : "-compute";
        if (!put(folder / "csv" / (card.name + form), csv.value())) {
          return fault("the seeds cannot be written");
        }
      }
    }
  }
  return 0;
}

// A default job as it is printed, one with a paced device, and each section of the latter as flags.
int job_seeds(const fs::path& folder) {
  Job job;
  job.data.paths = {"data/a.txt", "data/\"b\" \\ \u00e9"};
  bool written = put(folder / "job" / "text", to_toml(job));
  job.device.kind = "paced";
  job.parallel.stages = 2;
  job.parallel.order = "zb-h1";
  job.parallel.dispatch = "ready";
  job.device.forward_ms = {1.5, 2};
  job.network.latency_ms = 0.25;
  job.trace_steps = {1, 5};
  written = written && put(folder / "job" / "paced", to_toml(job));
  std::map<std::string, std::string> sections;
  for (const Key& key : job_keys()) {
    std::string& flags = sections[std::string(key.name.substr(0, key.name.find('.')))];
    flags += cat(flags.empty() ? "" : "\n", "--", key.name, "=", value_text(key, job));
  }
  for (const auto& [section, flags] : sections) {
    written = written && put(folder / "flags" / section, flags);
  }
  return written ? 0 : fault("the seeds cannot be written");
}

// A worker's first report, one in the middle of a run, one in trouble, and one of a run with server
// shards; also a coordinator's facts.
int report_seeds(const fs::path& folder) {
  Report report{.worker = {1}, .sequence = 3, .term = 1, .epoch = 1, .phase = Phase::Running};
  bool written = put(folder / "report" / "first", to_wire(report).SerializeAsString());
  StepSummary step{.step = 0, .start_ns = 1000, .finish_ns = 5000};
  step.losses = {{{0}, 1.5}, {{1}, 2.5}};
  step.evaluation = {{{0}, 3.5}};
  step.gradient_norm = 0.5;
  step.sample = {
      {1}, 0, {{.from = {0}, .to = {1}, .messages = 2}}, {{{1}, {1}, OpKind::Forward, 2}}};
  step.sample.processor = ProcessorSample{.steps = 3, .run_delay = Duration(500), .pressure = 0.25};
  report.steps = {step};
  report.version = 1;
  report.shards = {{1, "stage-1.safetensors", 100, "0badcafe"}};
  written &= put(folder / "report" / "step", to_wire(report).SerializeAsString());
  report.phase = Phase::Frozen;
  report.resumes = true;
  StepInventory held{.step = 0, .attempt = 1};
  held.inventory = {{{ValueKind::Stash, -1, {1}, {0}}, {ValueKind::Total, -1, {1}, {}}}, {{1}}};
  held.losses = {0};
  report.held = {held};
  report.lost_peers = {{0}, {3}};
  report.repairs = {{1, {0}, 7, 12345}};
  report.failure = "it broke";
  report.failure_code = Code::Timeout;
  written &= put(folder / "report" / "trouble", to_wire(report).SerializeAsString());
  Report shards{.worker = {0}, .sequence = 3, .term = 1, .epoch = 1, .phase = Phase::Running};
  shards.elements = 64;
  shards.said = {{4, std::string("\1\0", 2)}, {5, ""}};
  shards.obeyed = 2;
  written &= put(folder / "report" / "shards", to_wire(shards).SerializeAsString());
  Facts facts{.run = "1f", .term = 2, .epoch = 3, .committed = 4, .members = {{0}, {2}}};
  facts.incarnations = {0, 1};
  facts.plan_name = "3-2";
  written &= put(folder / "facts" / "running", to_json(facts));
  facts.last_resort = LastResort{"worker 1 was killed"};
  facts.ending = Ending{75, "worker 1 was killed"};
  written &= put(folder / "facts" / "ended", to_json(facts));
  return written ? 0 : fault("the seeds cannot be written");
}

int safetensors_seeds(const fs::path& folder) {
  fs::create_directories(folder / "safetensors");
  const std::vector<std::byte> bytes(32, std::byte{0x3f});
  const auto part = [&](size_t count) { return std::span(bytes).first(count); };
  const auto write = [&](const char* name, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
    return write_safetensors((folder / "safetensors" / name).string(), tensors, metadata).ok();
  };
  bool written = write("empty", {}, {});
  written &= write("said", {}, {{"version", "3"}});
  written &= write("one", {{"stage.0.weight", "F32", {2, 3}, part(24)}}, {});
  std::vector<NamedTensor> all;
  all.push_back({"a", "F64", {4}, part(32)});
  all.push_back({"b", "I64", {}, part(8)});
  all.push_back({"c", "BF16", {2, 0, 5}, part(0)});
  all.push_back({"d", "BOOL", {1, 1}, part(1)});
  all.push_back({"e", "U8", {3}, part(3)});
  written &= write("all", all, {{"stages", "2"}, {"version", "10"}});
  return written ? 0 : fault("the seeds cannot be written");
}

// Messages of server shards: a small one of each form, and one that has something of everything.
int server_message_seeds(const fs::path& folder) {
  using namespace servers;
  Work work{.serial = 7, .offer = {{1}, {4}, {3}, {8}}, .local_steps = 2};
  work.micros = {{{0}, 16, 18}, {{1}, 32, 38}};
  work.applied = {24};
  const Membership membership{
      1, {0}, {{{{0}, 0, 100}, {{1}, {2}}}, {{{1}, 0, 50}, {{3}}}}, {{{4}, {5}}, {}}};
  Record record{.sequence = 9, .version = {5}, .committed = {4}, .updates_decided = 5};
  record.mode = {.kind = SyncKind::Ring, .count = 1, .parents = {{0}, {0}}, .bound = 3};
  record.streams = {{{4}, 40}, {{5}, 38}};
  record.returned = {{{0}, 8, 10}};
  record.open = {{work, true, false}};
  record.updates = {{{4, {4}, {work.offer}, {{0}}}, {work}}};
  record.filling = {{2}};
  const auto bytes = std::make_shared<const std::vector<std::byte>>(16);
  const std::map<std::string, decltype(Message::body)> bodies = {
      {"enter", Enter{membership}},
      {"report", KeeperReport{true, record, {5, 6}}},
      {"part", PartReport{}},
      {"record", record},
      {"assign", Assign{work, {{1}}, PeerId{5}}},
      {"wait", Assign{}},
      {"parameters", Parameters{bytes}},
      {"gradient", Gradient{7, bytes}},
      {"relayed", Relayed{7, 1, {{3}}, bytes}},
      {"stored", Stored{7}},
      {"fill", Fill{bytes, {{{3}, bytes}}, {{7, {3}, bytes}}}},
  };
  std::map<std::string, std::vector<std::byte>> seeds;
  for (const auto& [name, body] : bodies) {
    seeds[name] = encode({{1, {1}, {2}, {3}}, body}).head;
  }
  seeds["form"] = encode_command(FormCommand{4, {"127.0.0.1:4002", "127.0.0.1:4003"}});
  seeds["forming"] = encode_report(FormingReport{4, "127.0.0.1:4002"});
  bool written = true;
  for (const auto& [name, seed] : seeds) {
    written &= put(folder / "server_message" / name,
                   {reinterpret_cast<const char*>(seed.data()), seed.size()});
  }
  return written ? 0 : fault("the seeds cannot be written");
}

// What a peer over TCP says: a greeting's messages, an introduction, and frames to a link.
int tcp_seeds(const fs::path& folder) {
  const tcp::Entropy zero = [](std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  };
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  tcp::Introduction one;
  one.hello = {"tale", "", kWireVersion, WorkerId{3}, 1};
  one.instance = one.session = 7;
  one.address = "127.0.0.1:4711";
  const std::string introduction = tcp::write_introduction(one);
  tcp::Greeting listener("guess", zero);
  bool written =
      put(folder / "tcp" / "challenge", "d" + std::string(1, 0) + text(listener.output()));
  written &= put(folder / "tcp" / "introduction", "i" + std::string(1, 0) + introduction);
  std::string frames("m\5", 2);
  const auto add = [&frames, &text](tcp::Frame frame) {
    std::array<std::byte, tcp::kLongestFrame> bytes{};
    frames += text(std::span(bytes).first(tcp::encode(frame, bytes)));
  };
  add({tcp::FrameKind::Grant, 0, 1, 0, 100, {0, 0, 4}, {}});
  add({tcp::FrameKind::Grant, 0, 2, 0, 9, {0, 0, 3}, {}});
  add({tcp::FrameKind::AllGranted});
  add({tcp::FrameKind::Start, 0, 1});
  add({tcp::FrameKind::Start, 8, 3});
  frames += "12345678";
  add({tcp::FrameKind::Start, 60, 4});
  frames += std::string(60, 'x');
  add({tcp::FrameKind::Mismatch, 0, 2, 0, 5});
  add({tcp::FrameKind::Piece, 40, 4});
  frames += std::string(40, 'y');
  add({tcp::FrameKind::Got, 1});
  add({tcp::FrameKind::Bye});
  written &= put(folder / "tcp" / "frames", frames);
  return written ? 0 : fault("the seeds cannot be written");
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return fault("expected one word, the folder to write to");
  const fs::path folder = words[1];
  const int faults = plan_seeds(folder) + job_seeds(folder) + report_seeds(folder) +
                     safetensors_seeds(folder) + server_message_seeds(folder) + tcp_seeds(folder);
  return faults == 0 ? 0 : 1;
}
