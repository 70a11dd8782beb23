// What a person may ask of a live run with server shards.
#include "run/request.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <utility>
#include <variant>

namespace tenuto {
namespace {

Job with_servers(const std::string& mode) {
  Job job;
  job.parallel.pipelines = 3;
  job.sync.architecture = "servers";
  job.sync.servers = 2;
  job.sync.mode = mode;
  return job;
}

std::string refusal(const std::string& wish, const Job& job) {
  const Result<ServedRequest> request = served_request_of(wish, job);
  return request.ok() ? "" : request.error().message;
}

TEST(ServedRequest, AMode) {
  const Result<ServedRequest> request =
      served_request_of("sync.mode=x:2", with_servers("synchronous"));
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto* wish = std::get_if<ModeWish>(&request.value());
  ASSERT_NE(wish, nullptr);
  ASSERT_TRUE(wish->mode.has_value());
  EXPECT_EQ(to_text(*wish->mode), "x:2");
}

TEST(ServedRequest, AModeWithLocalSteps) {
  const std::string mode = "synchronous+local:4+outer:0.7,0.9";
  const Result<ServedRequest> request =
      served_request_of("sync.mode=" + mode, with_servers("synchronous"));
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto* wish = std::get_if<ModeWish>(&request.value());
  ASSERT_NE(wish, nullptr);
  ASSERT_TRUE(wish->mode.has_value());
  EXPECT_EQ(to_text(*wish->mode), mode);
}

TEST(ServedRequest, TheChooserDecidesAgainWhereThereIsOne) {
  const Result<ServedRequest> request = served_request_of("sync.mode=auto", with_servers("auto"));
  ASSERT_TRUE(request.ok());
  const auto* wish = std::get_if<ModeWish>(&request.value());
  ASSERT_NE(wish, nullptr);
  EXPECT_FALSE(wish->mode.has_value());
  EXPECT_NE(refusal("sync.mode=auto", with_servers("asynchronous")).find("has no chooser"),
            std::string::npos);
}

TEST(ServedRequest, AModeThatTheRunCannotHaveIsRefused) {
  const Job job = with_servers("auto");
  EXPECT_NE(refusal("sync.mode=x:4", job), "");
  EXPECT_NE(refusal("sync.mode=fast", job), "");
  EXPECT_NE(refusal("sync.mode=", job), "");
  EXPECT_NE(refusal("sync.mode=asynchronous+local:1", job).find("local steps"), std::string::npos);
}

TEST(ServedRequest, ProcessesAreNamedByTheirNumber) {
  const Job job = with_servers("synchronous");
  const Result<ServedRequest> request = served_request_of("kill=4", job);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto* signal = std::get_if<Request>(&request.value());
  ASSERT_NE(signal, nullptr);
  EXPECT_EQ(signal->kind, Request::Kind::Signal);
  EXPECT_EQ(signal->number, SIGKILL);
  EXPECT_EQ(signal->fault.worker, "4");
  EXPECT_EQ(refusal("start=5", job),
            "there is no worker 5 in this run of 3 replicas and 2 servers, numbered from 0 to 4");
  EXPECT_EQ(refusal("kill=coordinator", job), "");
}

TEST(ServedRequest, ARunWithoutServersHasOnlyReplicas) {
  Job job = with_servers("auto");
  job.sync.architecture = "all-reduce";
  EXPECT_EQ(refusal("kill=2", job), "");
  EXPECT_EQ(refusal("kill=3", job),
            "there is no worker 3 in this run of 3 replicas, numbered from 0 to 2");
  EXPECT_EQ(refusal("sync.mode=ring:2:0,1,0", job), "");
}

TEST(ServedRequest, HogsBeginAndEnd) {
  const Job job = with_servers("synchronous");
  const Result<ServedRequest> request = served_request_of("cpu-hog=4:2:300ms", job);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto* hog = std::get_if<Request>(&request.value());
  ASSERT_NE(hog, nullptr);
  EXPECT_EQ(hog->kind, Request::Kind::Hog);
  EXPECT_NE(hog->number, 0);
  EXPECT_EQ(describe_request(*hog),
            "requested: a hog of 2 threads computes on the host of worker 4 for 300 ms");
  EXPECT_NE(refusal("cpu-hog=5:2", job).find("there is no worker 5"), std::string::npos);
}

TEST(Request, TracesOfTheNextSteps) {
  const Job job;
  const Result<Request> three = request_of("trace=3", job);
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(three.value().kind, Request::Kind::Trace);
  EXPECT_EQ(three.value().number, 3);
  for (const char* wrong : {"trace=0", "trace=-1", "trace=", "trace=1.5", "trace=9999999"}) {
    const Result<Request> refused = request_of(wrong, job);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("expected 1 to 1000000"), std::string::npos) << wrong;
  }
}

TEST(Request, TroublesAreTreatedInAnotherWay) {
  Job job;
  job.parallel.stages = job.parallel.pipelines = 2;
  const auto asked = [&job](const std::string& wish) {
    const Result<Request> request = request_of(wish, job);
    EXPECT_TRUE(request.ok() && request.value().kind == Request::Kind::Treat) << wish;
    return request.ok() ? std::pair(request.value().key, request.value().how)
                        : std::pair(TreatmentKey::Mode, Treatment::Off);
  };
  const auto refused = [&job](const std::string& wish) {
    const Result<Request> request = request_of(wish, job);
    return request.ok() ? std::string() : request.error().message;
  };
  EXPECT_EQ(asked("resilience.mode=act"), std::pair(TreatmentKey::Mode, Treatment::Adapt));
  EXPECT_EQ(asked("resilience.mode=observe"), std::pair(TreatmentKey::Mode, Treatment::Observe));
  EXPECT_NE(refused("resilience.mode=adapt").find("resilience.mode=act, =observe or =off"),
            std::string::npos);
  EXPECT_EQ(asked("resilience.slow_links=off"), std::pair(TreatmentKey::SlowLinks, Treatment::Off));
  EXPECT_EQ(asked("resilience.slow_workers=adapt"),
            std::pair(TreatmentKey::SlowWorkers, Treatment::Adapt));
  EXPECT_EQ(asked("resilience.slow_workers=observe"),
            std::pair(TreatmentKey::SlowWorkers, Treatment::Observe));
  for (const char* wrong : {"resilience.slow_workers=off", "resilience.slow_workers=",
                            "resilience.slow_workers", "resilience.layers=fast", "resilience"}) {
    EXPECT_NE(refused(wrong).find("resilience.slow_workers=adapt or =observe"), std::string::npos)
        << wrong;
  }
  // Layers can move only if each is a stage of its own from the beginning.
  EXPECT_NE(refused("resilience.layers=adapt").find("its stages are whole"), std::string::npos);
  job.resilience.layers = "observe";
  EXPECT_EQ(asked("resilience.layers=adapt"), std::pair(TreatmentKey::Layers, Treatment::Adapt));
  EXPECT_EQ(asked("resilience.layers=off"), std::pair(TreatmentKey::Layers, Treatment::Off));
  EXPECT_EQ(asked("resilience.slow_workers=adapt"),
            std::pair(TreatmentKey::SlowWorkers, Treatment::Adapt));
  job.resilience.copies = 1;
  EXPECT_NE(refused("resilience.layers=adapt").find("resilience.copies = 0"), std::string::npos);
}

TEST(Request, SlowLinksOfAPairAndOfAPort) {
  Job job;
  job.parallel.stages = job.parallel.pipelines = 2;
  job.device.kind = "paced";
  const Result<Request> pair = request_of("link=0.1-1.1:3.5ms", job);
  ASSERT_TRUE(pair.ok()) << pair.error().message;
  EXPECT_EQ(pair.value().fault.pair, "0.1-1.1");
  EXPECT_EQ(pair.value().fault.latency_ms, 3.5);
  EXPECT_EQ(pair.value().fault.link, -1);
  const Result<Request> port = request_of("port=1.0:0ms", job);
  ASSERT_TRUE(port.ok()) << port.error().message;
  EXPECT_EQ(port.value().fault.port, "1.0");
  EXPECT_TRUE(ends_slowness(port.value().fault));
  for (const char* wish :
       {"link=0.1-1.1", "link=0.1-1.1:", "link=0.1:3ms", "link=0.1-0.1:3ms", "link=0.1-2.0:3ms",
        "port=1.0", "port=:3ms", "port=1.0:-3ms", "port=nic:3ms", "port=4:3ms"}) {
    EXPECT_FALSE(request_of(wish, job).ok()) << wish;
  }
  EXPECT_TRUE(request_of("link=0-1:3ms", job).ok());
}

TEST(Request, HogsOfARunWithRealDevices) {
  Job job;
  job.parallel.stages = 2;
  const Result<Request> sends = request_of("bandwidth-hog=0.1:50MB", job);
  ASSERT_TRUE(sends.ok()) << sends.error().message;
  EXPECT_EQ(sends.value().fault.megabytes_per_second, 50);
  EXPECT_EQ(sends.value().fault.worker, "1");
  EXPECT_EQ(sends.value().fault.for_ms, 0);
  const Result<Request> off = request_of("bandwidth-hog=0.1:off", job);
  ASSERT_TRUE(off.ok()) << off.error().message;
  EXPECT_EQ(off.value().number, 0);
  EXPECT_EQ(describe_request(off.value()), "requested: the bandwidth-hog beside worker 1 ends");
  for (const char* wish :
       {"cpu-hog=0.1", "cpu-hog=0.1:", "cpu-hog=0.1:0", "cpu-hog=0.1:1025", "cpu-hog=0.1:2:0ms",
        "cpu-hog=0.1:2:", "cpu-hog=0.1:2MB", "bandwidth-hog=0.1:2", "bandwidth-hog=0.1:-1MB",
        "bandwidth-hog=0.1:nanMB", "cpu-hog=0.1:2:3ms:4"}) {
    const Result<Request> refused = request_of(wish, job);
    ASSERT_FALSE(refused.ok()) << wish;
    EXPECT_NE(refused.error().message.find("is not a hog"), std::string::npos) << wish;
  }
  job.device.kind = "paced";
  const Result<Request> paced = request_of("cpu-hog=0.1:2", job);
  ASSERT_FALSE(paced.ok());
  EXPECT_NE(paced.error().message.find("only imitate computing"), std::string::npos);
}

TEST(ServedRequest, ACheckpointAndNothingElse) {
  const Job job = with_servers("synchronous");
  const Result<ServedRequest> request = served_request_of("checkpoint", job);
  ASSERT_TRUE(request.ok());
  const auto* asked = std::get_if<Request>(&request.value());
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(asked->kind, Request::Kind::Checkpoint);
  for (const char* wish : {"resilience.slow_links=adapt", "link=0-1:30ms", "worker=0:0.5", ""}) {
    EXPECT_NE(refusal(wish, job).find("sync.mode=MODE"), std::string::npos) << wish;
  }
}

}  // namespace
}  // namespace tenuto
