#include "transport/tcp/greeting.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transport/bytes.h"

namespace tenuto::tcp {

namespace {

enum Kind : uint8_t { kChallenge = 1, kHello, kWelcome, kRefusal, kStranger };

// Each message begins with these words: the first is the same in each version of the wire, then the
// kind and the number of bytes that follow.
constexpr uint32_t kFirstWord = 0x74637031;
struct Head {
  uint32_t word = kFirstWord;
  uint16_t kind = 0, size = 0;
};
static_assert(sizeof(Head) == 8);

// The type of an alert of TLS and the first number of its version, as an end with TLS sends them to
// one without.
constexpr std::array<std::byte, 2> kTlsAlert{std::byte{0x15}, std::byte{3}};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

// The version comes first and the job next, in each version of the wire, so that another version or
// job can be told.
std::string write_introduction(const Introduction& one) {
  ByteWriter writer;
  writer.number(one.hello.version);
  writer.number(one.hello.self.value);
  writer.text(one.hello.job);
  writer.number(one.hello.epoch);
  writer.number(one.instance);
  writer.number(one.intent);
  writer.number(one.expected.value);
  writer.number(one.known);
  writer.number(one.session);
  writer.text(one.address);
  return writer.take();
}

// What another version has behind its first fields is not read.
std::optional<Introduction> read_introduction(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Introduction one;
  one.hello.version = reader.number<int32_t>();
  one.hello.self.value = reader.number<int32_t>();
  one.hello.job = printable(reader.text());
  if (one.hello.version != kWireVersion) return one;
  one.hello.epoch = reader.number<int64_t>();
  one.instance = reader.number<uint64_t>();
  one.intent = reader.number<Intent>();
  one.expected.value = reader.number<int32_t>();
  one.known = reader.number<uint64_t>();
  one.session = reader.number<uint64_t>();
  one.address = printable(reader.text());
  const bool good = reader.whole() && one.hello.self.value >= 0 && one.instance != 0 &&
                    one.intent >= Intent::Open && one.intent <= Intent::Drop;
  if (!good) return std::nullopt;
  return one;
}

Greeting::Greeting(const std::string& token, const Entropy& entropy)
    : token_(token), listens_(true) {
  entropy(challenge_);
  say(kChallenge, {reinterpret_cast<const char*>(challenge_.data()), challenge_.size()});
}

Greeting::Greeting(const std::string& token, const Entropy& entropy, const Introduction& mine)
    : token_(token), mine_(mine) {
  entropy(nonce_);
}

std::span<std::byte> Greeting::landing() {
  size_t whole = sizeof(Head);
  if (size_ >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, input_.data(), sizeof(head));
    whole += head.size;
  }
  return std::span(input_).subspan(size_, whole - size_);
}

Greeting::Step Greeting::take(size_t count) {
  size_ += count;
  if (size_ >= kTlsAlert.size() && std::equal(kTlsAlert.begin(), kTlsAlert.end(), input_.begin())) {
    return Step::Encrypted;
  }
  if (size_ < sizeof(Head)) return Step::More;
  Head head;
  std::memcpy(&head, input_.data(), sizeof(head));
  if (head.word != kFirstWord || sizeof(head) + head.size > input_.size()) return Step::Malformed;
  if (size_ < sizeof(head) + head.size) return Step::More;
  const std::span<const std::byte> payload(input_.data() + sizeof(head), head.size);
  size_ = 0;
  if (listens_) return head.kind == kHello && !theirs_ ? on_hello(payload) : Step::Malformed;
  if (head.kind == kChallenge && output_.empty()) return on_challenge(payload);
  if (head.kind == kStranger && payload.empty() && !output_.empty()) return Step::Stranger;
  if ((head.kind != kWelcome && head.kind != kRefusal) || output_.empty()) return Step::Malformed;
  if (payload.size() < sizeof(Proof)) return Step::Malformed;
  const auto said = payload.first(payload.size() - sizeof(Proof));
  Proof proof;
  std::memcpy(proof.data(), payload.data() + said.size(), sizeof(proof));
  if (!same_proof(proof, proof_of(static_cast<uint8_t>(head.kind), said))) return Step::Unproven;
  if (head.kind == kWelcome) return on_answer(said);
  text_ = printable({reinterpret_cast<const char*>(said.data()), said.size()});
  return Step::Refused;
}

Greeting::Step Greeting::on_challenge(std::span<const std::byte> payload) {
  if (payload.size() != challenge_.size()) return Step::Malformed;
  std::memcpy(challenge_.data(), payload.data(), payload.size());
  std::string said(reinterpret_cast<const char*>(nonce_.data()), nonce_.size());
  said += write_introduction(mine_);
  hello_proof_ = proof_of(kHello, bytes_of(said));
  say_signed(kHello, said);
  return Step::More;
}

Greeting::Step Greeting::on_hello(std::span<const std::byte> payload) {
  if (payload.size() < 2 * sizeof(Proof)) return Step::Malformed;
  const auto said = payload.first(payload.size() - sizeof(Proof));
  std::memcpy(nonce_.data(), said.data(), nonce_.size());
  Proof proof;
  std::memcpy(proof.data(), payload.data() + said.size(), sizeof(proof));
  if (!same_proof(proof, proof_of(kHello, said))) return Step::Unproven;
  hello_proof_ = proof;
  theirs_ = read_introduction(said.subspan(sizeof(Proof)));
  return theirs_ ? Step::Proven : Step::Malformed;
}

Greeting::Step Greeting::on_answer(std::span<const std::byte> payload) {
  theirs_ = read_introduction(payload);
  return theirs_ ? Step::Welcomed : Step::Malformed;
}

void Greeting::welcome(const Introduction& mine) { say_signed(kWelcome, write_introduction(mine)); }

void Greeting::refuse(const std::string& why) {
  say_signed(kRefusal, why.substr(0, kLongestGreeting - sizeof(Head) - sizeof(Proof)));
}

void Greeting::refuse_stranger() { say(kStranger, {}); }

std::span<const std::byte> Greeting::output() const { return bytes_of(output_).subspan(written_); }

void Greeting::say(uint8_t kind, const std::string& payload) {
  Head head;
  head.kind = kind;
  head.size = static_cast<uint16_t>(payload.size());
  CHECK(sizeof(head) + payload.size() <= kLongestGreeting, "a message of a greeting is too long");
  output_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  output_ += payload;
}

void Greeting::say_signed(uint8_t kind, const std::string& payload) {
  const Proof proof = proof_of(kind, bytes_of(payload));
  say(kind, payload + std::string(reinterpret_cast<const char*>(proof.data()), proof.size()));
}

Proof Greeting::proof_of(uint8_t kind, std::span<const std::byte> payload) const {
  std::string text = "tenuto wire over tcp";
  text += static_cast<char>(kind);
  const auto add = [&text](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  add(challenge_);
  add(nonce_);
  add(bytes_of(binding_));
  if (kind != kHello) add(hello_proof_);
  add(payload);
  return sign(token_, bytes_of(text));
}

}  // namespace tenuto::tcp
