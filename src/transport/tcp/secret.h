// The little of cryptography that the wire needs; OpenSSL does it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace tenuto::tcp {

// A HMAC-SHA-256, or as many random bytes.
using Proof = std::array<std::byte, 32>;

// HMAC-SHA-256 of `bytes` with `key`.
Proof sign(const std::string& key, std::span<const std::byte> bytes);

// Whether the two are equal. Compares all bytes even after a difference, so that the time taken
// tells nothing.
bool same_proof(const Proof& left, const Proof& right);

// Fills `bytes` with random bytes that nobody can predict.
void fill_random(std::span<std::byte> bytes);

}  // namespace tenuto::tcp
