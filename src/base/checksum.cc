#include "base/checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tenuto {
namespace {

std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kReversedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[i] = rest;
  }
  return table;
}

uint32_t by_table(std::span<const std::byte> bytes, uint32_t state) {
  static const std::array<uint32_t, 256> table = make_table();
  for (const std::byte byte : bytes) {
    state = table[(state ^ static_cast<uint32_t>(byte)) & 0xff] ^ (state >> 8);
  }
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes,
                                                          uint32_t state) {
  uint64_t wide = state;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(sizeof(word));
  }
  state = static_cast<uint32_t>(wide);
  for (const std::byte byte : bytes) state = _mm_crc32_u8(state, static_cast<uint8_t>(byte));
  return state;
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(bytes, ~before);
#endif
  return ~by_table(bytes, ~before);
}

}  // namespace tenuto
