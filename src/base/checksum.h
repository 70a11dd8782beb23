// CRC-32C: the checksum of files that are read back after a crash or a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenuto {

// The CRC-32C (Castagnoli) of `bytes`, continued from `before`: crc32c(b, crc32c(a)) is the
// checksum of a followed by b. Uses the processor's instruction where there is one.
//
// Source: RFC 3720, appendix B.4 (its known answers are the test).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace tenuto
