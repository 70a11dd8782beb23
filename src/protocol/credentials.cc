#include "protocol/credentials.h"

#include "base/sentence.h"
#include "base/text.h"

namespace tenuto {
namespace {

// Keys of the metadata. gRPC allows any bytes only in values whose key ends with "-bin".
constexpr const char* kProtocolKey = "tenuto-protocol";
constexpr const char* kWorkerKey = "tenuto-worker";
constexpr const char* kJobKey = "tenuto-job-bin";
constexpr const char* kTokenKey = "tenuto-token-bin";

// The value of a key; empty if the caller has not sent it.
std::string value_of(const grpc::ServerContext& context, const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? std::string()
                            : std::string(found->second.data(), found->second.size());
}

// Compares in a time that does not depend on how much of the text is right.
bool same_secret(const std::string& left, const std::string& right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  }
  return difference == 0;
}

}  // namespace

void show(const Credentials& credentials, WorkerId worker, grpc::ClientContext& context,
          int32_t protocol) {
  context.AddMetadata(kProtocolKey, cat(protocol));
  if (worker.value >= 0) context.AddMetadata(kWorkerKey, cat(worker));
  context.AddMetadata(kJobKey, credentials.job);
  context.AddMetadata(kTokenKey, credentials.token);
}

std::string refusal_of(const grpc::ServerContext& context, const Credentials& expected) {
  const std::string protocol = value_of(context, kProtocolKey);
  const std::string advice = ": install the same version of tenuto on every host";
  if (protocol.empty()) {
    return cat("the other end does not speak protocol ", kProtocol, " of the coordinator", advice);
  }
  const std::string worker = value_of(context, kWorkerKey);
  const std::string caller = worker.empty() ? "this command" : cat("worker ", excerpt(worker));
  if (protocol != cat(kProtocol)) {
    return cat(caller, " speaks protocol ", excerpt(protocol), ", the coordinator ", kProtocol,
               advice);
  }
  const std::string job = value_of(context, kJobKey);
  if (job != expected.job) {
    return cat(caller, " belongs to job '", excerpt(job), "', this is the coordinator of '",
               expected.job, "': give it the address of its own coordinator");
  }
  if (!same_secret(value_of(context, kTokenKey), expected.token)) {
    return cat("the token of ", caller, " is not the one of job '", expected.job,
               "': give it the coordinator's with --token-file, or as TENUTO_TOKEN");
  }
  return {};
}

// gRPC itself ends no call with the code for a refusal that is for now.
grpc::Status refusal_status(const std::string& sentence, bool for_now) {
  return {for_now ? grpc::StatusCode::ALREADY_EXISTS : grpc::StatusCode::PERMISSION_DENIED,
          sentence};
}

std::optional<Error> refusal_in(const grpc::Status& status) {
  const bool for_now = status.error_code() == grpc::StatusCode::ALREADY_EXISTS;
  if (!for_now && status.error_code() != grpc::StatusCode::PERMISSION_DENIED) return std::nullopt;
  return Error{for_now ? Code::Timeout : Code::Invalid, Reach::Job, status.error_message()};
}

}  // namespace tenuto
