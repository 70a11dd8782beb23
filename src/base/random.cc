#include "base/random.h"

#include "base/check.h"

namespace tenuto {

std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  constexpr uint32_t kFirstMultiplier = 0xD2511F53;
  constexpr uint32_t kSecondMultiplier = 0xCD9E8D57;
  constexpr uint32_t kFirstWeyl = 0x9E3779B9;
  constexpr uint32_t kSecondWeyl = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{kFirstMultiplier} * counter[0];
    const uint64_t second = uint64_t{kSecondMultiplier} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kFirstWeyl;
    key[1] += kSecondWeyl;
  }
  return counter;
}

namespace {

uint64_t first_word(uint64_t key, uint64_t low, uint64_t high) {
  const auto words = philox({static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)},
                            {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                             static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)});
  return uint64_t{words[0]} | uint64_t{words[1]} << 32;
}

}  // namespace

uint64_t mix(uint64_t first, uint64_t second, uint64_t third, uint64_t fourth) {
  return first_word(first_word(first, second, third), fourth, 0);
}

uint64_t Random::next() { return first_word(seed_, counter_++, 0); }

int64_t Random::below(int64_t bound) {
  CHECK(bound > 0, "a bound above 0");
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(static_cast<Wide>(next()) * static_cast<uint64_t>(bound) >> 64);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

}  // namespace tenuto
