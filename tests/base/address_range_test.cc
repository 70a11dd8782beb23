// Addresses and networks from which somebody may connect.
#include "base/address_range.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "base/random.h"

namespace tenuto {
namespace {

sockaddr_storage address(const std::string& text) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    storage.ss_family = AF_INET6;
  }
  return storage;
}

bool contains(const std::string& range, const std::string& text) {
  const auto read = read_address_range(range);
  EXPECT_TRUE(read) << range;
  return read && read->contains(address(text));
}

TEST(AddressRange, ContainsWhatBeginsWithItsBits) {
  EXPECT_TRUE(contains("10.0.0.7", "10.0.0.7"));
  EXPECT_FALSE(contains("10.0.0.7", "10.0.0.8"));
  EXPECT_TRUE(contains("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(contains("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(contains("10.32.0.0/11", "10.63.255.255"));
  EXPECT_FALSE(contains("10.32.0.0/11", "10.64.0.0"));
  EXPECT_TRUE(contains("0.0.0.0/0", "203.0.113.9"));
  EXPECT_FALSE(contains("0.0.0.0/0", "fe80::1"));
  EXPECT_TRUE(contains("fe80::/10", "febf::1"));
  EXPECT_FALSE(contains("fe80::/10", "fec0::1"));
  EXPECT_TRUE(contains("::/0", "10.0.0.1"));
  EXPECT_TRUE(contains("::/0", "fe80::1"));
}

TEST(AddressRange, TakesAnIpv4AddressInEitherForm) {
  EXPECT_TRUE(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
  EXPECT_TRUE(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
}

TEST(AddressRange, ContainsNothingOfAnotherFamily) {
  sockaddr_storage local{};
  local.ss_family = AF_UNIX;
  EXPECT_FALSE(read_address_range("::/0")->contains(local));
}

TEST(AddressRange, OtherTextsAreNone) {
  for (const char* text :
       {"", "/", "10.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/8/8",
        "10.0.0.0/8 ", " 10.0.0.0", "host", "10.0.0.256", "10.0.0.0/99999999999999999999"}) {
    EXPECT_FALSE(read_address_range(text)) << text;
  }
}

// Against the definition, bit by bit.
TEST(AddressRange, EqualsTheDefinition) {
  Random random(11);
  for (int i = 0; i < 2000; ++i) {
    const auto bits = static_cast<int>(random.below(33));
    const auto left = static_cast<uint32_t>(random.next());
    const auto flip = static_cast<int>(random.below(33));
    const uint32_t right = flip == 32 ? left : left ^ (uint32_t{1} << (31 - flip));
    const auto text = [](uint32_t value) {
      in_addr in{htonl(value)};
      char buffer[INET_ADDRSTRLEN];
      return std::string(inet_ntop(AF_INET, &in, buffer, sizeof(buffer)));
    };
    EXPECT_EQ(contains(text(left) + "/" + std::to_string(bits), text(right)), flip >= bits);
  }
}

}  // namespace
}  // namespace tenuto
