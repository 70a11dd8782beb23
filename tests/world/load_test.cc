#include "world/load.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "source_tree.h"
#include "world/cluster.h"
#include "world/fault.h"
#include "world/fit.h"
#include "world/job_file.h"
#include "world/job_model.h"
#include "world/keys.h"
#include "world/model_profile.h"

namespace tenuto {
namespace {

// The error of load_job for a text, without the file's name.
std::string refusal(const std::string& text, const std::vector<std::string>& flags = {}) {
  const File file(text);
  const auto loaded = load_job(file.path(), flags);
  if (loaded.ok()) return "accepted";
  EXPECT_EQ(loaded.error().code, Code::Invalid);
  const std::string& message = loaded.error().message;
  const size_t at = message.find(file.path());
  return at == 0 ? message.substr(file.path().size() + 1) : message;
}

constexpr char kData[] = "[data]\npaths = ['a']\n";

TEST(Load, EmptyPathGivesTheDefaults) {
  const auto loaded = load_job("", {"device.kind=paced"});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().job.steps, 100);
  EXPECT_EQ(loaded.value().origin.at("job.steps"), "default");
  EXPECT_EQ(loaded.value().origin.at("device.kind"), "flag");
  EXPECT_EQ(loaded.value().origin.size(), job_keys().size());
}

TEST(Load, ReadsEveryTypeAndSaysWhereFrom) {
  const File file(
      "[job]\nsteps = 7\nname = \"a-b.c\"\n"
      "trace_steps = [1, 2]\n[data]\npaths = [\"x\", 'y z']\n"
      "[optimizer]\nclip = 2\nlearning_rate = 3e-4\n"
      "[model]\ntied = true\n[device]\nforward_ms = 4\n");
  const auto loaded = load_job(file.path(), {"--optimizer.clip=0.5"});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Job& job = loaded.value().job;
  EXPECT_EQ(job.steps, 7);
  EXPECT_EQ(job.name, "a-b.c");
  EXPECT_EQ(job.trace_steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(job.data.paths, (std::vector<std::string>{"x", "y z"}));
  EXPECT_EQ(job.optimizer.clip, 0.5);
  EXPECT_EQ(job.optimizer.learning_rate, 3e-4);
  EXPECT_TRUE(job.model.tied);
  EXPECT_EQ(job.device.forward_ms, std::vector<double>{4});
  EXPECT_EQ(loaded.value().origin.at("job.steps"), file.path() + ":2");
  EXPECT_EQ(loaded.value().origin.at("optimizer.clip"), "flag");
}

TEST(Load, FlagsTakeBareTextAndLists) {
  const auto loaded =
      load_job("", {"data.paths=/a b", "job.name=\"quoted\"", "device.kind=paced",
                    "parallel.stages=3", "device.forward_ms=1,2.5,3", "job.trace_steps=[4,5]",
                    "network.device=", "network.device=eth0", "parallel.order=a=b"});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().job.data.paths, std::vector<std::string>{"/a b"});
  EXPECT_EQ(loaded.value().job.name, "quoted");
  EXPECT_EQ(loaded.value().job.device.forward_ms, (std::vector<double>{1, 2.5, 3}));
  EXPECT_EQ(loaded.value().job.trace_steps, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(loaded.value().job.network.device, "eth0");
  EXPECT_EQ(loaded.value().job.parallel.order, "a=b");
}

TEST(Load, RefusesWithLineColumnAndNearestName) {
  EXPECT_EQ(refusal("[parallel]\nstagse = 2\n"),
            "2:1: [parallel] has no key stagse, did you mean stages?");
  EXPECT_EQ(refusal("[paralel]\nstages = 2\n"),
            "1:2: there is no section [paralel], did you mean parallel?");
  EXPECT_EQ(refusal("[job]\n  steps = \"ten\"\n"),
            "2:11: job.steps expects a whole number in [1, 1e+12], found \"ten\"");
  EXPECT_EQ(refusal("[job]\nsteps = 1.5\n"),
            "2:9: job.steps expects a whole number in [1, 1e+12], found 1.5");
  EXPECT_EQ(refusal("[model]\ndropout = 1\n"),
            "2:11: model.dropout expects a number in [0, 1), found 1");
  EXPECT_EQ(refusal("[optimizer]\nkind = \"adam\"\n"),
            "2:8: optimizer.kind expects \"adamw\", \"sgd\" or \"torch\", found \"adam\", did you "
            "mean adamw?");
  EXPECT_EQ(refusal("[device]\nforward_ms = [1, -2]\n"),
            "2:14: device.forward_ms expects a list of numbers in [0, 1e+09], found -2 as item 1");
  EXPECT_EQ(refusal("[model]\ntied = 1\n"), "2:8: model.tied expects true or false, found 1");
  EXPECT_EQ(refusal("[data]\npaths = [1]\n"),
            "2:9: data.paths expects a list of strings, found 1 as item 0");
}

TEST(Load, RefusesKeysInTheWrongPlace) {
  EXPECT_EQ(refusal("[job]\nlayers = 2\n"),
            "2:1: [job] has no key layers: it belongs to [model] or [resilience]");
  EXPECT_EQ(refusal("steps = 2\n"),
            "1:1: the key steps stands outside its section; it belongs to [job]");
  EXPECT_EQ(refusal("job = 2\n"), "1:1: job is a section: expected [job], found a whole number");
}

TEST(Load, DistinguishesLaterVersionsFromTypingErrors) {
  EXPECT_NE(refusal("[parallel]\ntensor = 2\n").find("tensor parallelism"), std::string::npos);
  EXPECT_EQ(refusal("[sink]\nx = 1\n").find("later"), std::string::npos);
}

TEST(Load, ReportsTheFirstFaultOfTheFileAndCountsTheOthers) {
  EXPECT_EQ(refusal("[parallel]\nstages = 0\n[job]\nsteps = 0\nkeep = 0\n"),
            "2:10: parallel.stages expects a whole number in [1, 16384], found 0 (and 2 faults "
            "more)");
}

TEST(Load, RefusesWhatIsNotToml) {
  EXPECT_EQ(refusal("[job\n").substr(0, 14), "1:5: not TOML:");
  EXPECT_EQ(refusal("[job]\nsteps = 1\nsteps = 2\n").substr(0, 2), "3:");
  EXPECT_NE(refusal("[job]\nname = \"\xff\"\n"), "accepted");
  EXPECT_NE(refusal(std::string((1 << 20) + 1, '#')).find("too many for a job in TOML"),
            std::string::npos);
  EXPECT_NE(load_job("/nowhere/job.toml", {}).error().message.find("no such file"),
            std::string::npos);
  EXPECT_NE(load_job("/tmp", {}).error().message.find("not a file"), std::string::npos);
}

// Inputs that would crash the parser itself; the fuzzers `job` and `flags` found them.
TEST(Load, RefusesInputThatCrashesTheParser) {
  EXPECT_EQ(refusal("[job]\n größe = 1\n").substr(0, 14), "2:4: not TOML:");
  EXPECT_EQ(refusal("[job]\nsteps = 1\"é\"\n").substr(0, 2), "2:");
  std::string parts = "a";
  for (int i = 0; i < 400'000; ++i) parts += ".a";
  EXPECT_EQ(refusal("# é\n" + parts + " = 1"),
            "2:32: not TOML: a name of more than 16 parts is no setting's name");
  EXPECT_EQ(refusal("[" + parts + "]"),
            "1:33: not TOML: a name of more than 16 parts is no setting's name");
  EXPECT_NE(refusal("", {"device.kind=paced", "job.steps=1\n" + parts + " = 1"}), "accepted");
  EXPECT_NE(refusal("a = " + std::string(400'000, '[')), "accepted");
  const std::string dots(100, '.');
  EXPECT_EQ(refusal("\xEF\xBB\xBF# é" + dots + "\n[coordinator]\ntoken = \"é '' \\\" y" + dots +
                    "\" # é\n[job]\ndirectory = '''é \\ ' " + dots +
                    "'''''\n[device]\nkind = \"\"\"\\\n  paced\"\"\"\nforward_ms = [1.5]\n"),
            "accepted");
}

TEST(Load, RefusesFlags) {
  const auto said = [](const std::string& flag) { return refusal(kData, {flag}); };
  EXPECT_EQ(said("--job.steps=many"),
            "--job.steps=many: job.steps expects a whole number in [1, 1e+12], found \"many\"");
  EXPECT_EQ(said("--job.steps="),
            "--job.steps=: job.steps expects a whole number in [1, 1e+12], found nothing");
  EXPECT_EQ(said("--job.stepz=1"), "--job.stepz=1: [job] has no key stepz, did you mean steps?");
  EXPECT_EQ(said("--jobs.steps=1"),
            "--jobs.steps=1: there is no section [jobs], did you mean job?");
  EXPECT_EQ(said("steps"), "\"steps\" is no setting: expected --section.key=value");
  EXPECT_EQ(said("--"), "\"--\" is no setting: expected --section.key=value");
  EXPECT_NE(said("--job.steps=1\nkeep = 2"), "accepted");
  EXPECT_NE(said("--parallel.tensor=2").find("tensor parallelism"), std::string::npos);
}

TEST(Load, BlockingMessagesNeedAVirtualClockAndLists) {
  const auto said = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {"network.send=blocking", "device.kind=paced", "parallel.dispatch=listed"});
    return refusal(kData, flags);
  };
  const std::string start =
      "--network.send=blocking: network.send \"blocking\" is a rehearsal on a virtual clock, in "
      "the "
      "order of the lists: it needs ";
  EXPECT_EQ(said({}), "accepted");
  EXPECT_EQ(said({"device.kind=cpu"}), start + "device.kind = \"paced\", found \"cpu\"");
  EXPECT_EQ(said({"device.clock=real"}), start + "device.clock = \"virtual\", found \"real\"");
  EXPECT_EQ(said({"parallel.dispatch=ready"}),
            start + "parallel.dispatch = \"listed\", found \"ready\"");
}

TEST(Load, PathsNeedAnAccelerator) {
  const auto said = [](const std::string& path, const std::string& kind) {
    return refusal(kData, {"network.path=" + path, "device.kind=" + kind});
  };
  EXPECT_EQ(said("auto", "cpu"), "accepted");
  EXPECT_EQ(said("direct", "cuda"), "accepted");
  EXPECT_EQ(said("staged", "cuda"), "accepted");
  EXPECT_EQ(
      said("staged", "cpu"),
      "--network.path=staged: network.path \"staged\" says how messages leave the memory of an "
      "accelerator, and device.kind = \"cpu\" is none: remove it");
  EXPECT_NE(said("direct", "paced"), "accepted");
}

TEST(Load, WhoMayConnectNeedsTcp) {
  EXPECT_EQ(refusal(kData, {"network.allow=10.0.0.0/8"}), "accepted");
  EXPECT_EQ(
      refusal(kData, {"network.allow=nowhere"}),
      "--network.allow=nowhere: network.allow has \"nowhere\", which is no address or network: "
      "expected some such as \"10.0.0.7\", \"10.0.0.0/8\" or \"fe80::/10\"");
  EXPECT_EQ(
      refusal(kData, {"network.allow=10.0.0.0/8", "network.wire=ucx"}),
      "--network.allow=10.0.0.0/8: network.allow is given, and network.wire is \"ucx\", which "
      "lets anybody connect: use \"tcp\"");
}

TEST(Load, EncryptionNeedsCertificatesAndTcp) {
  EXPECT_EQ(refusal(kData, {"network.tls=true", "coordinator.tls=certificates"}), "accepted");
  EXPECT_EQ(
      refusal(kData, {"network.tls=true"}),
      "--network.tls=true: network.tls is true, and coordinator.tls is empty: expected a folder "
      "with ca.pem, cert.pem and key.pem there");
  EXPECT_EQ(refusal(kData, {"network.tls=true", "coordinator.tls=x", "network.wire=ucx"}),
            "--network.tls=true: network.tls is true, and network.wire is \"ucx\", which does not "
            "encrypt: use \"tcp\"");
}

TEST(Load, RefusesContradictingKeys) {
  EXPECT_EQ(refusal("[model]\nlayers = 2\n[parallel]\nstages = 5\n[data]\npaths = ['a']\n"),
            "4:10: parallel.stages 5 is more than the 4 layers that embedding, blocks and head "
            "make: lower it or raise model.layers (2)");
  EXPECT_EQ(refusal("[model]\nwidth = 30\n[data]\npaths = ['a']\n"),
            "2:9: model.width 30 is not a multiple of model.heads (4): every head needs an equal "
            "share");
  EXPECT_EQ(refusal("[device]\nkind = 'paced'\nforward_ms = [1, 2]\n"),
            "3:14: device.forward_ms has 2 numbers: expected one, or one per stage (1)");
  EXPECT_EQ(refusal("[network]\nlatency_ms = 1\n[data]\npaths = ['a']\n").substr(0, 28),
            "2:14: network.latency_ms reh");
  EXPECT_EQ(refusal("[data]\npaths = []\n").substr(0, 23), "2:9: data.paths is empt");
  EXPECT_EQ(refusal("").substr(0, 19), "data.paths is empty");
  EXPECT_EQ(refusal("[data]\nkind='csv'\npaths=['a']\n").substr(0, 23),
            "2:6: data.kind \"csv\" do");
  EXPECT_EQ(
      refusal("[model]\nkind='mlp'\ntied=true\n[data]\nkind='csv'\npaths=['a']\n").substr(0, 15),
      "3:6: model.tied");
  EXPECT_EQ(refusal(kData, {"optimizer.kind=torch"}),
            "--optimizer.kind=torch: optimizer.kind \"torch\" is the optimizer of a script, and "
            "model.kind "
            "= \"gpt\" has none: take \"adamw\" or \"sgd\"");
  EXPECT_EQ(refusal("[model]\nkind='module'\n[optimizer]\nkind='torch'\n"), "accepted");
  for (const char* name : {"a/b", "..", "", "-x", "a b"}) {
    EXPECT_EQ(refusal(kData, {cat("job.name=", name)}).find("--job.name="), 0u) << name;
  }
  for (const char* listen : {"host", ":1", "host:", "host:70000", "host:1x", "host:-1"}) {
    EXPECT_NE(refusal(kData, {cat("coordinator.listen=", listen)}), "accepted") << listen;
  }
  EXPECT_EQ(refusal(kData, {"coordinator.listen=[::1]:80"}), "accepted");
  for (const char* page : {"on", ":1", "host:", "host:70000"}) {
    EXPECT_NE(refusal(kData, {cat("coordinator.page=", page)}), "accepted") << page;
  }
  EXPECT_EQ(refusal(kData, {"coordinator.page=off"}), "accepted");
  EXPECT_EQ(refusal(kData, {"coordinator.page=[::1]:80"}), "accepted");
}

// A value inside the key's range or choices, drawn at random, as TOML.
std::string random_value(const Key& key, Random& random) {
  Job job;
  const Slot slot = key.slot(job);
  if (!key.choices.empty()) {
    return toml_string(
        key.choices[static_cast<size_t>(random.below(static_cast<int64_t>(key.choices.size())))]);
  }
  if (std::holds_alternative<bool*>(slot)) return random.below(2) == 0 ? "true" : "false";
  if (std::holds_alternative<std::string*>(slot) ||
      std::holds_alternative<std::vector<std::string>*>(slot)) {
    std::string text;
    for (int64_t i = random.below(12); i >= 0; --i) {
      text += static_cast<char>(1 + random.below(126));
    }
    return toml_string(text);
  }
  const bool real =
      std::holds_alternative<double*>(slot) || std::holds_alternative<std::vector<double>*>(slot);
  const double high = std::min(key.range.high, 1e9), low = key.range.low;
  const double number = low + (high - low) * (0.001 + 0.99 * random.uniform());
  return real ? piece(number) : piece(static_cast<int64_t>(number));
}

TEST(Load, EtcdMembersNeedTheEtcdStore) {
  EXPECT_EQ(refusal(kData, {"coordinator.store=etcd", "coordinator.etcd=[\"a:2379\"]"}),
            "accepted");
  EXPECT_NE(refusal(kData, {"coordinator.store=etcd"}).find("coordinator.etcd is empty"),
            std::string::npos);
  EXPECT_NE(refusal(kData, {"coordinator.etcd=[\"a:2379\"]"})
                .find("coordinator.etcd is given, and coordinator.store is \"journal\""),
            std::string::npos);
}

TEST(Load, TextOfAJobReadsBackEqual) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::string text;
    for (const Key& key : job_keys()) {
      // Keys whose random values would not fit together keep their defaults.
      static const std::set<std::string_view> kTied = {"job.name",
                                                       "data.kind",
                                                       "model.kind",
                                                       "model.width",
                                                       "model.heads",
                                                       "model.tied",
                                                       "optimizer.kind",
                                                       "parallel.stages",
                                                       "parallel.pipelines",
                                                       "parallel.micros",
                                                       "device.kind",
                                                       "coordinator.listen",
                                                       "coordinator.page",
                                                       "network.send",
                                                       "network.path",
                                                       "network.allow",
                                                       "network.tls",
                                                       "coordinator.store",
                                                       "coordinator.etcd",
                                                       "parallel.plan",
                                                       "parallel.holders",
                                                       "device.profile",
                                                       "device.profile_content",
                                                       "network.cluster",
                                                       "network.cluster_content",
                                                       "resilience.layers",
                                                       "sync.mode",
                                                       "sync.architecture",
                                                       "sync.chooser_file",
                                                       "sync.chooser_content",
                                                       "sync.ledger",
                                                       "sync.tc"};
      if (kTied.count(key.name) > 0) continue;
      text += cat(key.name, " = ", random_value(key, random), "\n");
    }
    text += "device.kind = 'paced'\n";
    const auto job = job_from_toml(text, "made");
    ASSERT_TRUE(job.ok()) << job.error().message << "\n" << text;
    const std::string written = to_toml(job.value());
    const auto again = job_from_toml(written, "written");
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << written;
    EXPECT_EQ(to_toml(again.value()), written) << "seed " << seed;
    for (const Key& key : job_keys()) {
      if (key.name == "coordinator.token") continue;
      EXPECT_EQ(value_text(key, again.value()), value_text(key, job.value())) << key.name;
    }
  }
}

constexpr char kModelFile[] =
    "{\"rows\": [4], \"layers\": [{\"name\": \"a\", \"forward_ms\": [1], \"backward_input_ms\": "
    "[2],\n"
    " \"backward_weight_ms\": [3], \"activation_bytes\": 4, \"stash_bytes\": 5,\n"
    " \"parameter_bytes\": 6}]}";
constexpr char kClusterFile[] =
    "{\"devices\": 2, \"speed\": [0.5, 1],\n \"bandwidth_gbps\": [[0, 1], [2, 0]]}";

// The text of a job has all that its workers need, wherever its files are.
TEST(Load, FilesOfAJobTravelInItsText) {
  std::string text;
  {
    const File model(kModelFile), cluster(kClusterFile);
    const auto loaded = load_job("", {"device.kind=paced", cat("device.profile=", model.path()),
                                      cat("network.cluster=", cluster.path())});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().origin.at("device.profile_content"), model.path());
    text = to_toml(loaded.value().job);
  }
  const auto job = job_from_toml(text, "text");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(to_toml(job.value()), text);
  ASSERT_NE(job.value().device.layers, nullptr);
  EXPECT_EQ(cut_layers(job.value()), 1);
  const Cluster cluster = cluster_of(job.value());
  ASSERT_EQ(cluster.workers.size(), 1U);  // a worker for each of the job, not for each device
  EXPECT_EQ(cluster.workers[0].speed, 0.5);
  const Model model = job_model(job.value(), Plan{});
  EXPECT_EQ(model.layers[0].activation, Bytes{16});
  EXPECT_EQ(model.layers[0].backward_weight, from_milliseconds(3));
}

TEST(Load, FilesOfAJobHaveALimit) {
  std::string long_name(1 << 20, 'x');
  std::string text = kModelFile;
  text.replace(text.find("\"a\""), 3, cat("\"", long_name, "\""));
  const File model(text);
  const auto loaded = load_job("", {"device.kind=paced", cat("device.profile=", model.path())});
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("bytes are too many for device.profile, which travels"),
            std::string::npos)
      << loaded.error().message;
}

// A token is neither written down nor taken from a command line.
TEST(Load, ATokenStaysSecret) {
  const File file("[coordinator]\ntoken = \"hush\"\n");
  const auto loaded = load_job(file.path(), {"device.kind=paced"});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().job.coordinator.token, "hush");
  EXPECT_EQ(to_toml(loaded.value().job).find("hush"), std::string::npos);
  EXPECT_EQ(to_toml(loaded.value().job, &loaded.value().origin).find("hush"), std::string::npos);
  const auto refused = load_job("", {"device.kind=paced", "--coordinator.token=hush"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("put it into a file (--token-file FILE)"),
            std::string::npos)
      << refused.error().message;
}

TEST(Load, OriginsAreCommentsThatReadBack) {
  const auto loaded = load_job("", {"device.kind=paced"});
  ASSERT_TRUE(loaded.ok());
  const std::string text = to_toml(loaded.value().job, &loaded.value().origin);
  EXPECT_NE(text.find("kind = \"paced\"                            # flag\n"), std::string::npos)
      << text;
  const auto again = job_from_toml(text, "text");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_toml(again.value()), to_toml(loaded.value().job));
}

// Mutations of a good file are either accepted or refused with a place.
TEST(Load, DamagedFilesAreRefusedWithAPlace) {
  Job job;
  job.data.paths = {"a"};
  const std::string good = to_toml(job);
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    std::string text = good;
    for (int64_t i = random.below(3); i >= 0; --i) {
      const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
      if (random.below(3) == 0) {
        text.erase(at, static_cast<size_t>(1 + random.below(20)));
      } else {
        text[at] = static_cast<char>(random.below(256));
      }
      if (text.empty()) text = "\n";
    }
    const auto result = job_from_toml(text, "damaged");
    if (result.ok()) continue;
    ++refused;
    EXPECT_EQ(result.error().code, Code::Invalid);
    const bool placed = result.error().message.find("damaged:") == 0 ||
                        result.error().message.find("data.paths is empty") == 0;
    EXPECT_TRUE(placed) << result.error().message;
  }
  EXPECT_GT(refused, 500);
}

TEST(Keys, AreUniqueAndDescribed) {
  std::set<std::string_view> names;
  Job job;
  for (const Key& key : job_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    // The key accepts its own default.
    EXPECT_TRUE(
        job_from_toml(cat("device.kind = 'paced'\n",
                          key.name == "device.kind" ? std::string()
                                                    : cat(key.name, " = ", value_text(key, job))),
                      "default")
            .ok())
        << key.name;
  }
}

TEST(Keys, AreAllInTheDocument) {
  std::ifstream file(source_tree() + "/docs/formats.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Job job;
  for (const Key& key : job_keys()) {
    const std::string line = cat("| `", key.name, "` | `", value_text(key, job), "` | ",
                                 expected(key), " | ", key.help, " |");
    EXPECT_NE(text.find(line), std::string::npos) << "docs/formats.md lacks the line\n" << line;
  }
  for (const Key& key : fault_keys()) {
    const std::string line = cat("| `", key.name.substr(key.name.find('.') + 1), "` | ",
                                 expected(key), " | ", key.help, " |");
    EXPECT_NE(text.find(line), std::string::npos) << "docs/formats.md lacks the line\n" << line;
  }
}

}  // namespace
}  // namespace tenuto
