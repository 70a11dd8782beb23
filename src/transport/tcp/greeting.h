// How the two ends of a new connection learn who the other one is, before either believes anything:
// a function of the bytes that come.
//
//   listener -> dialler   Challenge  a random number, the listener's nonce
//   dialler  -> listener  Hello      a nonce of its own, who it is, what it wants, a proof
//   listener -> dialler   Welcome    who it is, a proof; or Refusal: the reason, a proof
//
// A proof is an HMAC-SHA-256, whose key is the job's token. It covers both nonces, the whole
// message and, if the connection is encrypted, a secret of this connection. The listener's proof
// also covers the dialler's proof. So the token never travels, and a recording of one connection is
// worth nothing on another. A dialler whose proof is wrong gets one fixed answer, Stranger,
// whatever else it says. What it says is kept in a buffer of a fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "transport/tcp/secret.h"
#include "transport/transport.h"

namespace tenuto::tcp {

// The longest message of a greeting, in bytes: what a stranger can make this end keep.
inline constexpr size_t kLongestGreeting = 1024;
// The longest name of a job and the longest address in a greeting, in bytes.
inline constexpr size_t kLongestJob = 512, kLongestAddress = 300;

// Open: a new session between the two, or another attempt to begin it. Repair: the session goes on
// over this connection. Drop: it has ended at the dialler.
enum class Intent : uint8_t { Open = 1, Repair, Drop };

// What an end says about itself. The token of `hello` is not sent.
struct Introduction {
  Hello hello;
  uint64_t instance = 0;  // of this end's wire: each wire has another one
  // Of a dialler only:
  Intent intent = Intent::Open;
  WorkerId expected;     // whom it means to reach
  uint64_t known = 0;    // the instance that it has connected to before; 0 = none
  uint64_t session = 0;  // chosen by the dialler for each call of connect()
  std::string address;   // where it listens
};

// An introduction as it travels.
std::string write_introduction(const Introduction& one);
// The introduction in bytes that may be anything; none if they are none. Of one of another version,
// only version, worker and job are read.
std::optional<Introduction> read_introduction(std::span<const std::byte> bytes);

// The source of nonces: a function that fills bytes; fill_random except in tests.
using Entropy = std::function<void(std::span<std::byte>)>;

// One end of one greeting.
class Greeting {
 public:
  // Proven: at a listener, theirs() has proved that it knows the token; answer() is next. Welcomed:
  // at a dialler, the same, and it was accepted. Refused: text() says why. Stranger: the other end
  // does not accept our proof. Unproven: the other end's proof is wrong. Encrypted: the other end
  // speaks TLS, this one does not. Malformed: its bytes are no greeting.
  enum class Step : uint8_t {
    More,
    Proven,
    Welcomed,
    Refused,
    Stranger,
    Unproven,
    Encrypted,
    Malformed
  };

  // The listener's end, which begins.
  Greeting(const std::string& token, const Entropy& entropy);
  // The dialler's end, which introduces itself as `mine`.
  Greeting(const std::string& token, const Entropy& entropy, const Introduction& mine);

  // Makes a secret of the connection (Sockets::binding) a part of what is proved. So whoever stands
  // between the ends, with an encrypted connection to each, cannot pass the proofs on.
  void bind(std::string binding) { binding_ = std::move(binding); }

  // Where the next bytes that come shall land, never more than belong to the greeting. Not empty
  // while the last step was More.
  std::span<std::byte> landing();
  // So many bytes have come.
  Step take(size_t count);
  // Who the other end is, once Proven or Welcomed.
  const Introduction& theirs() const { return *theirs_; }
  // The reason, once Refused.
  const std::string& text() const { return text_; }

  // The listener's answer to one that is Proven.
  void welcome(const Introduction& mine);
  void refuse(const std::string& why);
  // The listener's answer to one that is Unproven.
  void refuse_stranger();

  // The bytes that are to be written; empty = none now.
  std::span<const std::byte> output() const;
  // So many of them have been written.
  void written(size_t count) { written_ += count; }

 private:
  Step on_challenge(std::span<const std::byte> payload);
  Step on_hello(std::span<const std::byte> payload);
  Step on_answer(std::span<const std::byte> payload);
  void say(uint8_t kind, const std::string& payload);
  void say_signed(uint8_t kind, const std::string& payload);
  Proof proof_of(uint8_t kind, std::span<const std::byte> payload) const;

  std::string token_, binding_;
  bool listens_ = false;
  Introduction mine_;  // of a dialler
  Proof challenge_{}, nonce_{}, hello_proof_{};
  std::optional<Introduction> theirs_;
  std::string text_;
  std::array<std::byte, kLongestGreeting> input_{};
  size_t size_ = 0;
  std::string output_;
  size_t written_ = 0;
};

}  // namespace tenuto::tcp
